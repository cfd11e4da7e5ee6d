"""Planners: which episodes make the next batch of the policy, or of a model next to it."""
