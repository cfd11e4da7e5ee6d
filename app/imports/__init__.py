"""Imports demonstrations: reads and checks files, replays them as episodes, appends them to a run."""
