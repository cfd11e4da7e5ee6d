"""Outermost layer: commands, page, settings, and the wiring and supervision of processes."""
