"""The store's goal space: which goals can be reached, and which lie near one."""
