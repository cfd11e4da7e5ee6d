"""Actors: play episodes, serve the policy, judge and relabel episodes, run the curriculum, and append events."""
