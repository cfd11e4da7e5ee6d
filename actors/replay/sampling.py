"""What a run's sampled answers are when they are computed again: pure sums over steps, no model in here."""

from collections.abc import Mapping

import msgspec

from actors.replay.recorded import RecordedStep
from core.arrays import unpack_floats, unpack_ids
from events.catalogue import BlobReleased, RunStarted, WeightsPublished
from events.envelope import BlobRef
from events.log import EventLog
from events.reader import read

TOLERANCE = 1e-4
"""Of log-probabilities, and of a draw's distance from its token's share: what another order of summation may come to."""


class PublishedWeights(msgspec.Struct, frozen=True, kw_only=True):
    """Where the weights of each policy version lie."""

    refs: Mapping[int, BlobRef]
    released: frozenset[str]
    """Digests of blobs that a retention rule let go of."""


async def published_weights(log: EventLog) -> PublishedWeights:
    """Every policy version that a log names."""
    refs: dict[int, BlobRef] = {}
    released: set[str] = set()
    async for recorded in read(log, after=0, strict=False):
        match recorded.fact:
            case RunStarted(base_policy=blob):
                refs[0] = blob
            case WeightsPublished(model="policy", version=version, weights=blob):
                refs[version] = blob
            case BlobReleased(blob=blob):
                released.add(blob.sha256)
    return PublishedWeights(refs=refs, released=frozenset(released))


def version_of(step: RecordedStep) -> int | None:
    """The policy version that sampled a step's answer: -1 for a demonstrator, None where it was more than one."""
    versions = set(unpack_ids(step.fact.versions).tolist())
    return versions.pop() if len(versions) == 1 else None


class AnswerReplay(msgspec.Struct, frozen=True, kw_only=True):
    """One sampled answer, computed again."""

    episode: str
    step: int
    position: int
    version: int
    tokens: int
    largest_difference: float
    """Of a token's log-probability from the recorded one."""
    beyond: int
    """Tokens whose log-probability is further off than the tolerance."""
    not_drawn: int
    """Tokens that the recorded seed does not draw, by more than the tolerance."""
    rounded: int
    """Tokens that the seed misses by less: another order of summation decided."""
    differing_tokens: int
    """Of the answer generated anew with the recorded seed, in tokens that stand at another place or not at all."""
    seed_derived: bool
    """Whether the recorded seed is the one that follows from the run's seed, the episode and the step."""

    @property
    def differs(self) -> bool:
        """Whether weights, prompt and seed do not give what was recorded."""
        return bool(self.beyond or self.not_drawn)


def differing_tokens(recorded: list[int], again: list[int]) -> int:
    """Places at which two answers do not hold the same token, the longer one's rest included."""
    same = sum(1 for one, other in zip(recorded, again, strict=False) if one == other)
    return max(len(recorded), len(again)) - same


def recorded_logprobs(step: RecordedStep) -> list[float]:
    """Per token; empty where none were recorded."""
    values: list[float] = unpack_floats(step.fact.logprobs).tolist()
    return values
