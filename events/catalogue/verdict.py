"""Facts of judges and relabelers. Invariant 5: a second opinion is another event, never an overwrite."""

from typing import Any

import msgspec

from hindcast.core.domain.evidence import Judgment
from hindcast.events.catalogue.consulted import Consulted
from hindcast.events.envelope import Fact
from hindcast.events.registry import fact
from hindcast.events.subjects import DISPUTE, RELABEL, VERDICT


class JudgeIdentity(msgspec.Struct, frozen=True, kw_only=True):
    """Identity of a judge or relabeler."""

    name: str
    version: str
    prompt_digest: str | None = None
    """Digest of the prompt format, if the judge reads a prompt."""


class Reading(msgspec.Struct, frozen=True, kw_only=True):
    """Prompt of a judge that is a language model, and its answer's probability.

    The ids are in the event rather than in a blob, as in step.taken: the model is trained on them (invariant 4), and they
    take a few kB and are read once.
    """

    prompt_ids: bytes
    """int32 little-endian: the tokens that the model read, or would have read if none was published yet."""
    truncated: bool
    """Whether part of the page, or an early answer, was left out to fit."""
    model_version: int | None
    """Published version that answered; 0: a model that the run does not train, named by the judge's version; None: no version
    was published yet."""
    probability: float | None
    """P(YES) over {YES, NO}; None without a model."""


@fact("episode.judged", subject=VERDICT, roles="judge", version=3, refs={"episode": "episode"})
class EpisodeJudged(Fact, frozen=True, kw_only=True):
    """One judge's verdict on one episode; created if absent per (episode, judge)."""

    episode: str
    task_id: str
    judge: JudgeIdentity
    judgment: Judgment
    reading: Reading | None = None
    """None if the judge computes no language model, or had nothing to read."""
    consulted: Consulted | None = None
    """None if the judge asks no endpoint, or had nothing to ask."""


class RewrittenPrompt(msgspec.Struct, frozen=True, kw_only=True):
    """A step's prompt under another instruction, as a difference from the recorded prompt.

    The first `head` and the last `tail` token ids of the step's `prompt_ids` stay; `ids` replace those between.
    """

    head: int
    ids: bytes
    """int32 little-endian."""
    tail: int

    def of(self, recorded: bytes) -> bytes:
        """Make the rewritten token ids from the step's recorded ones."""
        return b"".join((recorded[: 4 * self.head], self.ids, recorded[len(recorded) - 4 * self.tail :]))

    def fits(self, recorded: bytes) -> bool:
        """Whether the recorded prompt is long enough for `head` and `tail`."""
        return self.head >= 0 and self.tail >= 0 and 4 * (self.head + self.tail) <= len(recorded)


class StoppingStep(msgspec.Struct, frozen=True, kw_only=True):
    """The step after a goal was achieved, answered as a demonstrator would: it ends the episode."""

    prompt: RewrittenPrompt
    """Prompt of the step after `until_step`, whose page shows the goal achieved."""
    action_ids: bytes
    """int32 little-endian: the answer's tokens, including the end token. The relabeler wrote them; no policy sampled them."""
    answer_from: int
    """Number of tokens that are the thought before the answer."""


class Relabel(msgspec.Struct, frozen=True, kw_only=True):
    """A goal that the episode achieved."""

    instruction: str
    until_step: int
    """Exclusive end of the demonstration: the step before this one first achieved the goal."""
    relevance: tuple[float, ...]
    """z_t in [0, 1] per step up to `until_step`."""
    prompts: tuple[RewrittenPrompt, ...]
    """Per step up to `until_step`: the recorded page and answers with this instruction, by the run's renderer and the
    policy's tokenizer, so that training renders nothing."""
    family: str
    """Environment and task family of the goal, as `store/find_price`; empty if the relabeler does not know it."""
    goal: dict[str, Any] | None
    """Goal as in a task of the family; None if the relabeler does not know it."""
    stop: StoppingStep | None = None
    """How to stop after it; None if the episode has no later step, because it ended there or an answer achieved the goal."""


class BackwardReading(msgspec.Struct, frozen=True, kw_only=True):
    """Prompt and output of the learned relabeler for an episode, and its training target.

    The ids are in the event rather than in a blob, as in step.taken (invariant 4).
    """

    prompt_ids: bytes
    """int32 little-endian: the tokens that the model read, or would have read."""
    truncated: bool
    """Whether part of the page, or an early answer, was left out to fit."""
    model_version: int | None
    """Published version that wrote; None if no model was used."""
    written_ids: bytes
    """int32: the tokens that it wrote; empty if no model was used."""
    dropped: int
    """Number of dropped output lines: goals that no judge could check, lines without a goal, and repetitions."""
    lesson_ids: bytes
    """int32: the training target, including the end token; empty if there is nothing to learn."""
    needs_success: bool
    """Whether the target is valid only if the training judge calls the episode a success."""


@fact("episode.relabeled", subject=RELABEL, roles="relabeler", version=5, refs={"episode": "episode"})
class EpisodeRelabeled(Fact, frozen=True, kw_only=True):
    """All goals that a relabeler found in one episode; created if absent per (episode, relabeler)."""

    episode: str
    task_id: str
    relabeler: JudgeIdentity
    relabels: tuple[Relabel, ...]
    failure: str
    """Why the relabeler failed; then there are no relabels. Empty if it succeeded."""
    consulted: Consulted | None = None
    """None if the relabeler asks no endpoint, or had nothing to ask."""
    reading: BackwardReading | None = None
    """None if the relabeler is not a model of the run, or had nothing to read."""


@fact("verdict.disputed", subject=DISPUTE, roles="control", refs={"episode": "episode"})
class VerdictDisputed(Fact, frozen=True, kw_only=True):
    """A person disputes a judge's verdict."""

    episode: str
    judge: JudgeIdentity
    author: str
    reason: str
    outcome: str
