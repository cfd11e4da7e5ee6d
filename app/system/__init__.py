"""The running system: supervisors and workers, broker, start, join and stop."""
