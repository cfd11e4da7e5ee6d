"""Sampling settings, recorded with every step because they define the behaviour distribution."""

import msgspec


class Sampling(msgspec.Struct, frozen=True, kw_only=True):
    """Sampling settings of one policy call."""

    temperature: float
    """Divides the logits. 0 is greedy decoding, whose recorded log-probabilities are those at temperature 1."""
    max_tokens: int
    """Answer length at which generation stops (finish `length`)."""
    seed: int
    """Seed of this call's own generator: the other requests of its forward pass do not matter."""
