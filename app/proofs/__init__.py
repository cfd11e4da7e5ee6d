"""Signed proofs that a policy follows from a run's log. See docs/prove.md."""
