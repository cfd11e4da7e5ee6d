"""Which steps of earlier phases are replayed: those that the actor is neither sure of nor lost on (WebRL, arXiv 2411.02337).

The measure is 1/perplexity of the recorded action under the policy at the phase's start: the geometric mean of its tokens'
probabilities, in (0, 1].
"""

from collections.abc import Sequence
from math import exp, fsum


def perplexity(log_probs: Sequence[float]) -> float:
    """Compute exp(mean of -log pi) over an action's tokens; at least 1. `log_probs`  # [tokens], not empty."""
    return exp(-fsum(log_probs) / len(log_probs))


def in_window(perplexity: float, *, lowest: float, highest: float, lowest_is_in: bool) -> bool:
    """Whether 1/perplexity lies in [lowest, highest], as in the paper, or in (lowest, highest], as released.

    Compares perplexities rather than their inverses, so that rounding does not move a value off the bound.
    """
    below = perplexity <= 1.0 / lowest if lowest_is_in else perplexity < 1.0 / lowest
    return below and perplexity >= 1.0 / highest
