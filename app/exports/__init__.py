"""A run in other people's formats: one module for each, and what they share."""
