"""What a scaffold (LASER, arXiv 2309.08172) made of one step: which state it saw, what it left to choose from."""

import msgspec


class Scaffolded(msgspec.Struct, frozen=True, kw_only=True):
    """One step under a scaffold."""

    rules: str
    """Name and digest of the state file, as `store@1f0c2a9b`."""
    state: str
    """The recognised state; empty: none, and the answer was free."""
    choices: int
    """Actions to choose from, one with a free argument counted once; 0: any action at all."""
    remembered: int
    """Candidates in memory, one on this page included."""
    chosen: str
    """Address of the remembered candidate that the backup chose in this step or before; empty: none."""
