"""Reinforcement learning as arithmetic: advantages, loss normalization, importance weights, staleness, statistics."""
