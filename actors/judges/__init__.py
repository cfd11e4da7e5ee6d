"""Judges: decide whether episodes reached their goals, and record verdicts as durable, versioned events."""
