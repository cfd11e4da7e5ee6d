"""Outermost layer: command line, wiring of processes, the supervisors that honcho starts."""
