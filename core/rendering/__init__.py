"""Renderers: a page as text, each under a name and version."""
