"""What a question about lineage answers: trees whose branches count all of their entries and show the first of them."""

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
    """Everything that stands in one relation to the node above."""

    relation: str
    """Read from the node above: `sampled by`, `trained on`, `judged by` …"""
    kind: Kind
    """Of all its entries."""
    total: int
    """How many there are; `nodes` may show fewer."""
    counts: dict[str, int] = msgspec.field(default_factory=dict)
    """All of them by outcome, where they have one: success, failure, undecided, and unjudged without a verdict."""
    nodes: list["Node"] = msgspec.field(default_factory=list)


class Node(msgspec.Struct, kw_only=True):
    """One thing in a tree."""

    kind: Kind
    id: str
    """As commands take it: an episode's id, `EPISODE/INDEX`, a number; `MODEL/NUMBER` of models other than the policy."""
    position: int | None = None
    """Where the log says so. None: it was only named so far, or is no event."""
    facts: dict[str, Any] = msgspec.field(default_factory=dict)
    """What is known of it."""
    share: dict[str, Any] = msgspec.field(default_factory=dict)
    """Its part in the node above: tokens, weight, ratio, mask, advantage …"""
    branches: list[Branch] = msgspec.field(default_factory=list)
    expanded: bool = False
    """Whether `branches` say what there is; False at the depth asked for, and where the tree has it elsewhere."""


class Origins(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that the weights behind the node were trained on, down to the base policy."""

    policy: int
    """The newest version that had a part in it; of an update the one before it."""
    updates: int
    """Optimiser steps that made that version; of an update those up to itself."""
    batches: int
    episodes: int
    """Trained on or rehearsed in those batches; each once."""
    tasks: int
    """Attempted in those episodes; each once."""


class Reach(msgspec.Struct, frozen=True, kw_only=True):
    """What has come from the node by way of training."""

    first_update: int | None
    """The first update computed from it; None of a policy version, which is one's own beginning."""
    first_policy: int | None
    """The first version with that in it; every later version descends from this one. None: not published yet."""
    newest_policy: int | None
    episodes: int
    """Episodes of which at least one token was sampled from those versions."""
    outcomes: dict[str, int]
    """Those episodes by the training judge's verdict."""


class Lineage(msgspec.Struct, frozen=True, kw_only=True):
    """One thing, what it came from and what came from it."""

    run: str
    position: int
    """As of which everything here holds."""
    kind: Kind
    id: str
    backward: Node | None
    """None where it was not asked for."""
    origins: Origins | None
    """None where no weights are behind it, or backward was not asked for."""
    forward: Node | None
    reach: Reach | None
    """None where nothing was trained on it, or forward was not asked for."""
