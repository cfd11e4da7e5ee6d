"""How a step's answer was chosen: sampling settings, and what a scaffold allowed."""

import msgspec


class Sampling(msgspec.Struct, frozen=True, kw_only=True):
    """Sampling settings of one policy call, recorded with every step because they define the behaviour distribution."""

    temperature: float
    """Divides the logits. 0 is greedy decoding, whose recorded log-probabilities are those at temperature 1."""
    max_tokens: int
    """Answer length at which generation stops (finish `length`)."""
    seed: int
    """Seed of this call's own generator: the other requests of its forward pass do not matter."""


class Scaffolded(msgspec.Struct, frozen=True, kw_only=True):
    """One step under a scaffold (LASER, arXiv 2309.08172)."""

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
