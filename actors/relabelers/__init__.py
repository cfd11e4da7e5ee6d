"""Relabelers: record the goals that an episode did achieve, as durable, versioned events (hindsight)."""
