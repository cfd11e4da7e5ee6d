"""Worlds that episodes are played in."""
