"""What a scaffold (LASER, arXiv 2309.08172) did at one step: the state it recognized and the choices it allowed."""

import msgspec


class Scaffolded(msgspec.Struct, frozen=True, kw_only=True):
    """One step under a scaffold."""

    rules: str
    """Name and digest of the state file, as `store@1f0c2a9b`."""
    state: str
    """The recognized state; empty if there is none, and the answer is then unconstrained."""
    choices: int
    """Number of allowed actions; an action with a free argument counts once. 0: any action."""
    remembered: int
    """Number of candidates in memory, including one on this page."""
    chosen: str
    """Address of the remembered candidate that the backup chose at this step or before; empty: none."""
