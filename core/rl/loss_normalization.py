"""Shares of a loss: which part of it one token is. Counts are those before any masking, so that a mask never lifts the
rest."""

from collections import Counter
from collections.abc import Sequence
from typing import Literal

import msgspec

LossMean = Literal["nested", "token", "episode"]


class EpisodeTokens(msgspec.Struct, frozen=True):
    """How one episode stands in a mini-batch."""

    group: str
    tokens: tuple[int, ...]
    """Action tokens of each of its steps."""


def nested_shares(episodes: Sequence[EpisodeTokens]) -> list[float]:
    """The share of one token of each sample under M-GRPO's three nested means  # [samples, in order].

    1/G over the members of a group, 1/|tau| over an episode's steps, 1/|a| over a step's tokens (arXiv 2505.16421,
    eq. 4), and the mean over the groups. An episode's length therefore moves no other episode's share.
    """
    members = Counter(episode.group for episode in episodes)
    shares: list[float] = []
    for episode in episodes:
        steps = len(episode.tokens)
        outer = len(members) * members[episode.group]
        shares += [1.0 / (outer * steps * tokens) for tokens in episode.tokens]
    return shares


def token_shares(episodes: Sequence[EpisodeTokens]) -> list[float]:
    """The share of one token of each sample under one mean over all tokens (the released code)  # [samples, in order]."""
    total = sum(sum(episode.tokens) for episode in episodes)
    return [1.0 / total for episode in episodes for _ in episode.tokens]


def episode_shares(episodes: Sequence[EpisodeTokens]) -> list[float]:
    """The share of one token of each sample under a mean over each episode's tokens, then over episodes (released ARPO,
    `update_policy` with one trajectory a micro-batch)  # [samples, in order]."""
    return [1.0 / (len(episodes) * sum(episode.tokens)) for episode in episodes for _ in episode.tokens]


def loss_shares(mean: LossMean, episodes: Sequence[EpisodeTokens]) -> list[float]:
    """Shares under the named mean."""
    shares = {"nested": nested_shares, "token": token_shares, "episode": episode_shares}
    return shares[mean](episodes)
