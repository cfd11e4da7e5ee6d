"""Replays recorded episodes and their sampling, for the commands `hindcast replay …`."""
