"""Environments: the worlds in which episodes are played."""
