"""Lineage: what a thing came from, and what came from it. `lineage.lineage` is the query."""
