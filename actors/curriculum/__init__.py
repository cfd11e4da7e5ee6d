"""The curriculum: what is attempted next, as a fold of the log."""
