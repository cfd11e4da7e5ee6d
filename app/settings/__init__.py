"""Settings of a run: merged from their sources, and checked against each other."""
