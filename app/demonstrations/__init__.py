"""Demonstrations: recorded from a person or from scripted demonstrators, and appended to a run."""
