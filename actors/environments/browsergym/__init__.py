"""Any installed BrowserGym task, played in a process of its own Python environment."""
