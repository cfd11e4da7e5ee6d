"""Checks of settings that are each allowed but do not fit together."""
