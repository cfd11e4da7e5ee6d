"""Importance weights (off-policy correction) for tokens sampled by an older policy version.

mu is the behaviour policy (recorded log-probabilities), pi_prox the learner's own recomputation when the batch
starts. The update's ratio rho = pi / pi_prox is clipped separately; the weights here are constant during an update:

- `none`: 1, as if pi_prox had sampled every token.
- `truncated`: pi_prox / mu, at most `ratio_cap` (truncated importance sampling).
- `decoupled`: pi_prox / mu, and 0 above `ratio_cap` (AReaL, arXiv 2505.24298: the proximal policy in the clip, the
  behaviour policy only in the weight).
- `icepop`: pi_prox / mu, and 0 outside [`icepop_alpha`, `icepop_beta`] (IcePop of the Ling team: Ring-1T, arXiv 2510.18855;
  INTELLECT-3, arXiv 2512.16144, eq. 1: M(k) = k within the bounds, else 0). Where mu is the same version on another engine,
  the ratio is the mismatch of training and inference; for older tokens it contains their staleness, too.
- `masked`: 1, and 0 for tokens whose probability moved by more than `mask_difference`.

Computed in float64, because float32 exponentials differ between instruction sets.
"""

from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

CorrectionKind = Literal["none", "truncated", "decoupled", "icepop", "masked"]

LARGEST_LOG_RATIO = 50.0
"""Ratios are clamped to e^±50, so that one very unlikely token does not turn sums into infinities."""


class TokenCorrection(NamedTuple):
    """Importance weights of one sample, an entry per action token."""

    ratios: NDArray[np.float64]
    """pi_prox / mu, uncapped  # [tokens]."""
    weights: NDArray[np.float32]
    """Factor of the token's policy term, 0 if the token is left out  # [tokens]."""
    kept: NDArray[np.bool_]
    """Whether the token contributes  # [tokens]."""


def correct(
    kind: CorrectionKind,
    *,
    proximal: NDArray[np.float32],
    behaviour: NDArray[np.float32],
    ratio_cap: float,
    icepop_alpha: float,
    icepop_beta: float,
    mask_difference: float,
) -> TokenCorrection:
    """Compute the weights of one sample's action tokens from their log-probabilities  # both [tokens]."""
    prox = proximal.astype(np.float64)
    mu = behaviour.astype(np.float64)
    ratios = np.exp(np.clip(prox - mu, -LARGEST_LOG_RATIO, LARGEST_LOG_RATIO))
    mask = np.ones(len(ratios), dtype=np.bool_)
    weights = np.ones(len(ratios), dtype=np.float64)
    if kind == "truncated":
        weights = np.minimum(ratios, ratio_cap)
    elif kind == "decoupled":
        mask = ratios <= ratio_cap
        weights = np.where(mask, ratios, 0.0)
    elif kind == "icepop":
        mask = (ratios >= icepop_alpha) & (ratios <= icepop_beta)
        weights = np.where(mask, ratios, 0.0)
    elif kind == "masked":
        mask = np.abs(np.exp(prox) - np.exp(mu)) <= mask_difference
        weights = np.where(mask, 1.0, 0.0)
    return TokenCorrection(ratios, weights.astype(np.float32), mask)


def effective_sample_size(ratios: NDArray[np.float64]) -> float:
    """Normalized effective sample size (sum w)^2 / (n sum w^2) of importance ratios, in (0, 1]; 0 if all are 0."""
    squares = float(np.sum(ratios * ratios))
    if squares == 0.0:
        return 0.0
    return float(np.sum(ratios)) ** 2 / (len(ratios) * squares)
