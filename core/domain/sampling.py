"""How tokens are drawn from a policy. Recorded with every step, since it defines the behaviour distribution."""

import msgspec


class Sampling(msgspec.Struct, frozen=True, kw_only=True):
    """Sampling settings of one policy call."""

    temperature: float
    """Divides the logits; 0 is greedy, and recorded log-probabilities are then those at temperature 1."""
    max_tokens: int
    """Answer length at which generation is cut (finish `length`)."""
    seed: int
    """Seed of this call's own generator: a call does not depend on who shares its forward pass."""
