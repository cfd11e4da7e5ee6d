"""Measurements on demand: evaluation of policies, judges and relabelers, and selection of tasks."""
