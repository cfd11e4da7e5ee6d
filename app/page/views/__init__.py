"""Views: a function for each page, from a query to plain values for the template and the `.json` version."""
