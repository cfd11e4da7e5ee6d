"""Records demonstrations of people and scripted demonstrators, and appends them to a run."""
