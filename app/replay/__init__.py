"""Recorded episodes played and sampled again: what the commands `hindcast replay …` do."""
