"""Arithmetic of reinforcement learning: advantages, loss normalization, importance weights, staleness, statistics."""
