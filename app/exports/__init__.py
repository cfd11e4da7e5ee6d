"""Exports of a run: one module for each format, and their common parts."""

EXPORTERS = "exporters"
"""The kind of plugin. It stands here because `exporter` loads SQLAlchemy, which few processes need."""
