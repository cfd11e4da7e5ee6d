"""Alerts about a run: its processes, success, sampler mismatch, consumer lag and standstill."""

ALERTS = "alerts"
"""The kind of plugin."""
