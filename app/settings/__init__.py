"""Merges the settings of a run from their sources and checks them against each other."""
