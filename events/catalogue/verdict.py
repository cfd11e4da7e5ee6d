"""Facts about what judges and relabelers said. Invariant 5: a second opinion is another event, never an overwrite."""

from typing import Any

import msgspec

from hindcast.core.domain.evidence import Judgment
from hindcast.events.catalogue.consulted import Consulted
from hindcast.events.envelope import Fact
from hindcast.events.registry import fact


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
    """Published version that answered; 0: a model that the run does not train, which the judge's version names; None: none
    was published yet."""
    probability: float | None
    """P(YES) over {YES, NO}; None without a model."""


@fact("episode.judged", family="verdict", version=3)
class EpisodeJudged(Fact, frozen=True, kw_only=True):
    """One judge's verdict on one episode; created if absent per (episode, judge)."""

    episode: str
    task_id: str
    judge: JudgeIdentity
    judgment: Judgment
    reading: Reading | None = None
    """None: the judge computes no language model, or had nothing to read."""
    consulted: Consulted | None = None
    """None: the judge asks nobody, or had nothing to ask."""


class RewrittenPrompt(msgspec.Struct, frozen=True, kw_only=True):
    """What a step would have read under another instruction, told by how it differs from what it did read.

    The first `head` token ids and the last `tail` of the step's `prompt_ids` stay; `ids` stand between them.
    """

    head: int
    ids: bytes
    """int32 little-endian."""
    tail: int

    def of(self, recorded: bytes) -> bytes:
        """The prompt's token ids, from those that the step has recorded."""
        return b"".join((recorded[: 4 * self.head], self.ids, recorded[len(recorded) - 4 * self.tail :]))

    def fits(self, recorded: bytes) -> bool:
        """Whether the step has read that much."""
        return self.head >= 0 and self.tail >= 0 and 4 * (self.head + self.tail) <= len(recorded)


class Relabel(msgspec.Struct, frozen=True, kw_only=True):
    """A goal the episode did achieve."""

    instruction: str
    until_step: int
    """The goal was first achieved by the step before this one: exclusive end of the demonstration."""
    relevance: tuple[float, ...]
    """z_t in [0, 1] per step up to `until_step`."""
    prompts: tuple[RewrittenPrompt, ...]
    """Per step up to `until_step`: the recorded page and answers with this instruction, by the run's renderer and the
    policy's tokenizer, so that nobody who trains on it has to render anything."""
    family: str
    """Environment and task family of the goal, as `store/find_price`; empty where the relabeler knows none."""
    goal: dict[str, Any] | None
    """As in a task of the family, where the relabeler knows."""


class BackwardReading(msgspec.Struct, frozen=True, kw_only=True):
    """What the learned relabeler read of an episode, what it wrote, and what it should have written.

    The ids stand here, and not in a blob, for the reason that they stand in step.taken (invariant 4).
    """

    prompt_ids: bytes
    """int32 little-endian: exactly what the model read, or would have read if it had been asked."""
    truncated: bool
    """Whether part of the page, or an early answer, was left out to fit."""
    model_version: int | None
    """Published version that wrote; None: none was asked."""
    written_ids: bytes
    """int32: what it wrote; empty where none was asked."""
    dropped: int
    """Goals in it that are none of a task that could be judged, lines that name none, and repeated ones."""
    lesson_ids: bytes
    """int32: what it should have written, the end token included; empty: there is nothing to learn."""
    needs_success: bool
    """Whether the lesson holds only where the training judge calls the episode a success."""


@fact("episode.relabeled", family="relabel", version=4)
class EpisodeRelabeled(Fact, frozen=True, kw_only=True):
    """Every goal a relabeler found in one episode; created if absent per (episode, relabeler)."""

    episode: str
    task_id: str
    relabeler: JudgeIdentity
    relabels: tuple[Relabel, ...]
    failure: str
    """Why the relabeler could not tell, in words; there are no relabels then. Empty: it could."""
    consulted: Consulted | None = None
    """None: the relabeler asks nobody, or had nothing to ask."""
    reading: BackwardReading | None = None
    """None: the relabeler is no model of the run's own, or had nothing to read."""


@fact("verdict.disputed", family="dispute")
class VerdictDisputed(Fact, frozen=True, kw_only=True):
    """A person disagrees with a verdict."""

    episode: str
    judge: JudgeIdentity
    author: str
    reason: str
    outcome: str
