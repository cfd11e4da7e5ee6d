"""Replays recorded episodes and recomputes their answers. Invariant 9: nothing here appends to a log."""
