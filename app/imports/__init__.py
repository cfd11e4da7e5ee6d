"""Demonstrations from elsewhere: read, checked, played over, appended to a run."""
