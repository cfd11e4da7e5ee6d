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


@fact("episode.judged", family="verdict")
class EpisodeJudged(Fact, frozen=True, kw_only=True):
    """One judge's verdict on one episode; created if absent per (episode, judge)."""

    episode: str
    task_id: str
    judge: JudgeIdentity
    judgment: Judgment


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
