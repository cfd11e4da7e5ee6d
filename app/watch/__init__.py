"""The current state of a run, folded from its log, for `hindcast watch`."""
