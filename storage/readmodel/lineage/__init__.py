"""Lineage: what a step, episode, task, batch, update or policy version came from, and what came from it.

A graph over the read model's tables. `names` resolves ids, `sources` has the edges backward, `effects` those forward,
`nodes` describes each thing, `reach` counts what lies beyond the edges, `traversal` builds the tree. Contents are
referenced: token ids by a step's position in the log, pages and weights by the digests of their blobs.
"""

from hindcast.storage.readmodel.lineage.results import Branch, Lineage, Node, Origins, Reach
from hindcast.storage.readmodel.lineage.traversal import DEPTH, LIMIT, lineage

__all__ = ["DEPTH", "LIMIT", "Branch", "Lineage", "Node", "Origins", "Reach", "lineage"]
