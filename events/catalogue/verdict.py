"""Facts about what judges and relabelers said. Invariant 5: a second opinion is another event, never an overwrite."""

import msgspec

from core.evidence import Judgment
from events.envelope import Fact
from events.registry import fact


class JudgeIdentity(msgspec.Struct, frozen=True, kw_only=True):
    """Which judge spoke."""

    name: str
    version: str
    prompt_digest: str | None = None
    """Digest of the prompt for judges that read one."""


class Reading(msgspec.Struct, frozen=True, kw_only=True):
    """What a judge that is a language model read, and how sure it was.

    The ids stand here, and not in a blob, for the reason that they stand in step.taken: it is what such a model is
    trained on (invariant 4), a few kB, each read once.
    """

    prompt_ids: bytes
    """int32 little-endian: exactly what the model read, or would have read if there had been one."""
    truncated: bool
    """Whether part of the page, or an early answer, was left out to fit."""
    model_version: int | None
    """Published version that answered; None: none was published yet."""
    probability: float | None
    """P(YES) over {YES, NO}; None without a model."""


@fact("episode.judged", family="verdict", version=2)
class EpisodeJudged(Fact, frozen=True, kw_only=True):
    """One judge's verdict on one episode; created if absent per (episode, judge)."""

    episode: str
    task_id: str
    judge: JudgeIdentity
    judgment: Judgment
    reading: Reading | None = None
    """None: the judge is no language model, or had nothing to read."""


class Relabel(msgspec.Struct, frozen=True, kw_only=True):
    """A goal the episode did achieve."""

    instruction: str
    until_step: int
    """The goal was first achieved by this step (exclusive end of the demonstration)."""
    relevance: tuple[float, ...]
    """z_t per step up to `until_step`."""


@fact("episode.relabeled", family="verdict")
class EpisodeRelabeled(Fact, frozen=True, kw_only=True):
    """Every goal a relabeler found in one episode."""

    episode: str
    relabeler: JudgeIdentity
    relabels: tuple[Relabel, ...]


@fact("verdict.disputed", family="dispute")
class VerdictDisputed(Fact, frozen=True, kw_only=True):
    """A person disagrees with a verdict."""

    episode: str
    judge: JudgeIdentity
    author: str
    reason: str
    outcome: str
