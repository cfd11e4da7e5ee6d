"""Checks of settings that are each allowed but contradict each other."""
