"""The store's goal space: which goals can be reached, and which are close to one."""
