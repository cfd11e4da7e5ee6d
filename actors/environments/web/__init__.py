"""Any web site by its address: tasks that a user writes in a file, see docs/your-site.md."""
