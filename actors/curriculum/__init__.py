"""The curriculum: decides what is attempted next, as a fold of the log."""
