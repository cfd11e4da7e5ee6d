"""Advantages of steps from a critic's values, and which steps of earlier phases are replayed. Pure arithmetic: the same bits on every machine.

An episode of T steps has values V(s_0) … V(s_{T-1}), an outcome R in [0, 1], and V(after the end) = 0.
"""

from collections.abc import Sequence
from math import exp, fsum

MARGIN = 0.05
"""Subtracted from the value gain of a step in the released code of WebRL and DigiRL."""
GOOD, BAD = 1.0, -0.6
"""Replace an advantage of at least 0, and a negative one, in the released code of WebRL."""


def blended_advantages(
    values: Sequence[float], reward: float, *, blend: float, discount: float
) -> list[float]:
    """Compute WebRL's advantage (arXiv 2411.02337, eq. 8 and 15)  # [steps].

    A = blend (r_t + discount V(s_{t+1}) - V(s_t)) + (1 - blend) (discount^(T-t) R - V(s_t)), where r_t = R at the last
    step and 0 before, and the last step's exponent is 0.
    """
    last = len(values) - 1
    advantages = []
    for step, value in enumerate(values):
        gained = reward if step == last else discount * values[step + 1]
        returned = discount ** (last - step) * reward
        advantages.append(blend * (gained - value) + (1 - blend) * (returned - value))
    return advantages


def clamped_advantages(values: Sequence[float], rewards: Sequence[float], *, discount: float) -> list[float]:
    """Compute clamp(V(s_{t+1}) - V(s_t) - .05 + r_t + sum_k discount^k r_{t+k}, ±1)  # [steps].

    As released: `webrl/algorithms/webrl/trainer.py`, whose data repeat R at every step, and
    `digirl/algorithms/digirl/trainer.py`, whose data have R at the last step only.
    """
    advantages, returned = [0.0] * len(values), 0.0
    for step in reversed(range(len(values))):
        following = values[step + 1] if step + 1 < len(values) else 0.0
        returned = rewards[step] + discount * returned
        advantages[step] = min(1.0, max(-1.0, following - values[step] - MARGIN + rewards[step] + returned))
    return advantages


def released_advantages(values: Sequence[float], reward: float, *, discount: float) -> list[float]:
    """Compute WebRL's released advantage: clamped, with R at every step, then +1 or -.6. A success gives +1 at every step."""
    clamped = clamped_advantages(values, [reward] * len(values), discount=discount)
    return [GOOD if advantage >= 0 else BAD for advantage in clamped]


def progress_weights(values: Sequence[float], reward: float, *, discount: float) -> list[float]:
    """Compute DigiRL's released step filter: 1 where the advantage, clamped to [0, 1], is above 0, else 0  # [steps]."""
    rewards = [0.0] * (len(values) - 1) + [reward]
    return [
        1.0 if advantage > 0 else 0.0 for advantage in clamped_advantages(values, rewards, discount=discount)
    ]


def surprising(gains: Sequence[float], *, share: float) -> list[bool]:
    """DigiRL's episode filter: mark the episodes in the top `share` by gain, return - V(first state).

    The cut is the (1 - share) quantile, interpolated as numpy's; a gain equal to it is kept (`filter_buffer` of the released
    code). If all gains are equal, all are kept.
    """
    ordered = sorted(gains)
    rank = (1 - share) * (len(ordered) - 1)
    below = int(rank)
    above = min(below + 1, len(ordered) - 1)
    cut = ordered[below] + (rank - below) * (ordered[above] - ordered[below])
    return [gain >= cut for gain in gains]


def perplexity(log_probs: Sequence[float]) -> float:
    """Compute exp(mean of -log pi) over an action's tokens; at least 1. `log_probs`  # [tokens], not empty.

    WebRL (arXiv 2411.02337) replays steps of earlier phases that the actor is neither sure of nor lost on. Its measure is
    1/perplexity of the recorded action under the policy at the phase's start: the geometric mean of its tokens' probabilities.
    """
    return exp(-fsum(log_probs) / len(log_probs))


def in_window(perplexity: float, *, lowest: float, highest: float, lowest_is_in: bool) -> bool:
    """Whether 1/perplexity lies in [lowest, highest], as in the paper, or in (lowest, highest], as released.

    Compares perplexities rather than their inverses, so that rounding does not move a value off the bound.
    """
    below = perplexity <= 1.0 / lowest if lowest_is_in else perplexity < 1.0 / lowest
    return below and perplexity >= 1.0 / highest
