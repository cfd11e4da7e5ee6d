"""Judges: verdicts as durable, versioned facts."""
