"""Results of lineage queries: trees whose branches count all of their entries and show the first ones."""

from typing import Any, Literal

import msgspec

Kind = Literal[
    "step",
    "episode",
    "task",
    "verdict",
    "batch",
    "update",
    "policy",
    "page",
    "settings",
    "demonstrator",
    "adoption",
    "checkpoint",
    "notice",
]


class Branch(msgspec.Struct, kw_only=True):
    """Everything in one relation to the node above."""

    relation: str
    """Read from the node above: `sampled by`, `trained on`, `judged by` …"""
    kind: Kind
    """Kind of all its entries."""
    total: int
    """Number of entries; `nodes` may show fewer."""
    counts: dict[str, int] = msgspec.field(default_factory=dict)
    """All entries by outcome, if they have one: success, failure, undecided, and unjudged without a verdict."""
    nodes: list["Node"] = msgspec.field(default_factory=list)


class Node(msgspec.Struct, kw_only=True):
    """One thing in a lineage tree, such as an episode or an update."""

    kind: Kind
    id: str
    """As commands accept it: an episode's id, `EPISODE/INDEX`, a number; `MODEL/NUMBER` of models other than the policy."""
    position: int | None = None
    """Position in the log. None: it was only named so far, or is no event."""
    facts: dict[str, Any] = msgspec.field(default_factory=dict)
    """Facts about it."""
    share: dict[str, Any] = msgspec.field(default_factory=dict)
    """Its part in the node above: tokens, weight, ratio, mask, advantage …"""
    branches: list[Branch] = msgspec.field(default_factory=list)
    expanded: bool = False
    """Whether `branches` is filled; False at the requested depth, and if the tree expands it elsewhere."""


class Origins(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that the weights behind the node were trained on, down to the base policy."""

    policy: int
    """The newest version that contributed to it; of an update, the version before it."""
    updates: int
    """Optimizer steps that made that version; of an update, those up to itself."""
    batches: int
    episodes: int
    """Distinct episodes trained on or rehearsed in those batches."""
    tasks: int
    """Distinct tasks of those episodes."""


class Reach(msgspec.Struct, frozen=True, kw_only=True):
    """What came from the node through training."""

    first_update: int | None
    """The first update computed from it; None for a policy version."""
    first_policy: int | None
    """The first version that includes that update; every later version descends from it. None: not published yet."""
    newest_policy: int | None
    episodes: int
    """Episodes with at least one token sampled from those versions."""
    outcomes: dict[str, int]
    """Those episodes by the training judge's verdict."""


class Lineage(msgspec.Struct, frozen=True, kw_only=True):
    """One thing, what it came from and what came from it."""

    run: str
    position: int
    """Position as of which everything here holds."""
    kind: Kind
    id: str
    backward: Node | None
    """None if it was not requested."""
    origins: Origins | None
    """None if no weights are behind it, or backward was not requested."""
    forward: Node | None
    reach: Reach | None
    """None if nothing was trained on it, or forward was not requested."""
