"""Measurements behind `hindcast bench`."""
