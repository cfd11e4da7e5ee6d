"""Spans and metrics of what actors, judges, relabelers and the curriculum do."""
