"""Advantages of single steps from a critic's values. Pure arithmetic: the same bits on every machine.

An episode of T steps has values V(s_0) … V(s_{T-1}), an outcome R in [0, 1], and V(after the end) = 0.
"""

from collections.abc import Sequence

MARGIN = 0.05
"""Taken off in the released code of WebRL and DigiRL: a step that gains less in value is no progress."""
GOOD, BAD = 1.0, -0.6
"""What the released code of WebRL makes of an advantage that is not below 0, and of one that is."""


def blended_advantages(
    values: Sequence[float], reward: float, *, blend: float, discount: float
) -> list[float]:
    """WebRL's advantage (arXiv 2411.02337, eq. 8 and 15), one per step.

    A = blend (r_t + discount V(s_{t+1}) - V(s_t)) + (1 - blend) (discount^(T-t) R - V(s_t)), where r_t = R at the last
    step and 0 before, and the last step's exponent is 0.
    """
    last = len(values) - 1
    found = []
    for step, value in enumerate(values):
        gained = reward if step == last else discount * values[step + 1]
        returned = discount ** (last - step) * reward
        found.append(blend * (gained - value) + (1 - blend) * (returned - value))
    return found


def clamped_advantages(values: Sequence[float], rewards: Sequence[float], *, discount: float) -> list[float]:
    """clamp(V(s_{t+1}) - V(s_t) - .05 + r_t + sum_k discount^k r_{t+k}, ±1), one per step, as WebRL and DigiRL were released.

    WebRL's data repeat R at every step; DigiRL's have it at the last one alone (`webrl/algorithms/webrl/trainer.py`,
    `digirl/algorithms/digirl/trainer.py`).
    """
    found, returned = [0.0] * len(values), 0.0
    for step in reversed(range(len(values))):
        following = values[step + 1] if step + 1 < len(values) else 0.0
        returned = rewards[step] + discount * returned
        found[step] = min(1.0, max(-1.0, following - values[step] - MARGIN + rewards[step] + returned))
    return found


def released_advantages(values: Sequence[float], reward: float, *, discount: float) -> list[float]:
    """WebRL's as released: the clamped advantage with R at every step, then +1 or -.6. A success gives +1 for every step."""
    clamped = clamped_advantages(values, [reward] * len(values), discount=discount)
    return [GOOD if advantage >= 0 else BAD for advantage in clamped]


def progress_weights(values: Sequence[float], reward: float, *, discount: float) -> list[float]:
    """DigiRL's step filter as released: 1 where the advantage, clamped to [0, 1], is above 0, else 0."""
    rewards = [0.0] * (len(values) - 1) + [reward]
    return [
        1.0 if advantage > 0 else 0.0 for advantage in clamped_advantages(values, rewards, discount=discount)
    ]


def surprising(gains: Sequence[float], *, share: float) -> list[bool]:
    """DigiRL's episode filter: which episodes are among the top `share` by return - V(first state).

    The cut is the (1 - share) quantile, interpolated as numpy's, and what lies on it is in (`filter_buffer` of the released
    code). Where the gains are all equal, all are in.
    """
    ordered = sorted(gains)
    place = (1 - share) * (len(ordered) - 1)
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    cut = ordered[below] + (place - below) * (ordered[above] - ordered[below])
    return [gain >= cut for gain in gains]
