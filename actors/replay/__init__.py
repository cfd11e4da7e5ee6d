"""Replays, resamples and rejudges recorded episodes. Invariant 9: nothing here appends to a log."""
