"""Relabelers: the goals that an episode did achieve, as durable, versioned facts (hindsight)."""
