"""Compares a run's sampled answers with recomputed ones. Pure: contains no model."""

from collections.abc import Mapping

import msgspec

from hindcast.core.domain.arrays import unpack_floats, unpack_ids
from hindcast.events.catalogue import BlobReleased, RunForked, RunStarted, WeightsPublished
from hindcast.events.envelope import BlobRef
from hindcast.events.log.episode_assembler import AssembledStep
from hindcast.events.log.port import EventLog
from hindcast.events.log.reader import read

TOLERANCE = 1e-4
"""Largest error that another order of summation causes: in log-probabilities, and in a draw's distance from its token's share."""


class Origins(msgspec.Struct, frozen=True, kw_only=True):
    """Inputs of a run's answers that are not in the steps themselves."""

    run_seeds: frozenset[int]
    """The seeds of the run and, for a fork, of its ancestors."""
    refs: Mapping[int, BlobRef]
    """Weights by policy version."""
    released: frozenset[str]
    """Digests of blobs that a retention rule deleted."""


async def read_origins(log: EventLog) -> Origins:
    """Collect the seeds, weights and deleted blobs that a log names."""
    seeds: set[int] = set()
    refs: dict[int, BlobRef] = {}
    released: set[str] = set()
    async for recorded in read(log, after=0, strict=False):
        match recorded.fact:
            case RunStarted(run_seed=seed, base_policy=blob):
                seeds.add(seed)
                refs[0] = blob
            case RunForked(start=RunStarted(run_seed=seed)):
                seeds.add(seed)
            case WeightsPublished(model="policy", version=version, weights=blob):
                refs[version] = blob
            case BlobReleased(blob=blob):
                released.add(blob.sha256)
    return Origins(run_seeds=frozenset(seeds), refs=refs, released=frozenset(released))


def version_of(step: AssembledStep) -> int | None:
    """Return the policy version that sampled a step's answer: -1 for a demonstrator, None if there were several."""
    versions = set(unpack_ids(step.fact.versions).tolist())
    return versions.pop() if len(versions) == 1 else None


class AnswerReplay(msgspec.Struct, frozen=True, kw_only=True):
    """One sampled answer, recomputed."""

    episode: str
    step: int
    position: int
    version: int
    tokens: int
    largest_difference: float
    """Largest difference of a token's log-probability from the recorded one."""
    beyond: int
    """Tokens whose log-probability differs by more than the tolerance."""
    not_drawn: int
    """Tokens that the recorded seed misses by more than the tolerance."""
    rounded: int
    """Tokens that the recorded seed misses by less, because of the order of summation."""
    differing_tokens: int
    """Tokens of the regenerated answer (same seed) that differ in place or are missing."""
    seed_derived: bool
    """Whether the recorded seed follows from the run's seed, the episode and the step."""

    @property
    def differs(self) -> bool:
        """Whether weights, prompt and seed do not reproduce the recording."""
        return bool(self.beyond or self.not_drawn)


def differing_tokens(recorded: list[int], resampled: list[int]) -> int:
    """Count the places at which two answers have different tokens, including the rest of the longer one."""
    equal = sum(
        1 for token, resampled_token in zip(recorded, resampled, strict=False) if token == resampled_token
    )
    return max(len(recorded), len(resampled)) - equal


def recorded_logprobs(step: AssembledStep) -> list[float]:
    """Return the log-probability of each token; empty if none were recorded."""
    values: list[float] = unpack_floats(step.fact.logprobs).tolist()
    return values
