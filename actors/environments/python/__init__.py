"""Environments that are plain Python classes."""
