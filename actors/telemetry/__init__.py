"""Spans and metrics of actors, judges, relabelers and the curriculum."""
