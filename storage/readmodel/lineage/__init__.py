"""Lineage: what a step, episode, task, batch, update or policy version came from, and what came from it.

A graph over the read model's tables. `naming` finds what is meant by an id, `sources` has the edges backward, `effects`
those forward, `describing` says what is known of each thing, `reach` counts what lies beyond the edges, `walking`
puts a tree of it together. Contents stay where they are: token ids in the log at a step's position, pages and weights in
the blobs of their digest.
"""

from hindcast.storage.readmodel.lineage.results import Branch, Lineage, Node, Origins, Reach
from hindcast.storage.readmodel.lineage.traversal import DEPTH, LIMIT, lineage

__all__ = ["DEPTH", "LIMIT", "Branch", "Lineage", "Node", "Origins", "Reach", "lineage"]
