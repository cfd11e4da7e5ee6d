"""One file per training algorithm."""
