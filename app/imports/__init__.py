"""Imports of demonstrations: read, checked, replayed as episodes, appended to a run."""
