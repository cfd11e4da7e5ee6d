"""Exports of a run: one module for each format, and their common parts."""
