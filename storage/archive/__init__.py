"""Archives with their blobs: written while a run continues, checked, and used to shorten the log."""
