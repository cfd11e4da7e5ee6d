"""Shipped state files, one per environment, which `actors.scaffold.files` reads."""
