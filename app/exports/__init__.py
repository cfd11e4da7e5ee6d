"""Exports a run: one module for each format, and their common parts."""

EXPORTERS = "exporters"
"""The kind of plugin. Defined here because `exporter` imports SQLAlchemy, which few processes need."""
