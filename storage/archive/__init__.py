"""Archives with their blobs: written while a run goes, checked, and used to shorten the log."""
