"""Recorded episodes played, sampled and judged again. Invariant 9: nothing here appends to a log."""
