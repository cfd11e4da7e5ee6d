"""Imports of episodes that were recorded elsewhere, as demonstrations or as a run of another system."""

IMPORTERS = "importers"
"""Kind of the plugins that read another system's runs (`core.plugins`)."""
