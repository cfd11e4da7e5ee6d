"""Loss normalization: the share of one token in a mini-batch's loss.

Tokens are counted before masking, so that a mask does not raise the share of the remaining tokens.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Literal

import msgspec

LossMean = Literal["nested", "token", "episode"]


class EpisodeTokens(msgspec.Struct, frozen=True):
    """Token counts of one episode of a mini-batch."""

    group: str
    """Group to which the episode belongs."""
    tokens: tuple[int, ...]
    """Number of action tokens at each step  # [steps]."""


def nested_shares(episodes: Sequence[EpisodeTokens]) -> list[float]:
    """Compute the share of one token of each sample under M-GRPO's nested means  # [samples, in order].

    1/G over the members of a group, 1/|tau| over an episode's steps, 1/|a| over a step's tokens (arXiv 2505.16421,
    eq. 4), and the mean over the groups. An episode's length therefore does not change another episode's share.
    """
    members = Counter(episode.group for episode in episodes)
    shares: list[float] = []
    for episode in episodes:
        steps = len(episode.tokens)
        episode_count = len(members) * members[episode.group]
        shares += [1.0 / (episode_count * steps * tokens) for tokens in episode.tokens]
    return shares


def token_shares(episodes: Sequence[EpisodeTokens]) -> list[float]:
    """Compute the share of one token of each sample under one mean over all tokens (WebAgent-R1's released code)."""
    total = sum(sum(episode.tokens) for episode in episodes)
    return [1.0 / total for episode in episodes for _ in episode.tokens]


def episode_shares(episodes: Sequence[EpisodeTokens]) -> list[float]:
    """Compute the share of one token of each sample under a mean over each episode's tokens, then over episodes.

    As released by ARPO: `update_policy` with one trajectory per micro-batch.
    """
    return [1.0 / (len(episodes) * sum(episode.tokens)) for episode in episodes for _ in episode.tokens]


def constant_shares(episodes: Sequence[EpisodeTokens], tokens: int) -> list[float]:
    """Compute the share of one token of each sample under a mean over episodes of their sum over tokens / a constant.

    Dr. GRPO (arXiv 2503.20783): a token counts the same in long and in short episodes, and one episode's length does not
    change another's share.
    """
    return [1.0 / (len(episodes) * tokens) for episode in episodes for _ in episode.tokens]


def loss_shares(mean: LossMean, episodes: Sequence[EpisodeTokens]) -> list[float]:
    """Compute the share of one token of each sample under the named mean  # [samples, in order]."""
    shares = {"nested": nested_shares, "token": token_shares, "episode": episode_shares}
    return shares[mean](episodes)
