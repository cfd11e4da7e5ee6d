"""One episode as one document: what `episodes.jsonl` holds a line of, and what demonstrations are imported from.

Everything that an episode is, without what belongs to one policy (token ids, log-probabilities): instruction, pages,
actions, how it ended, what judges said. Strict: an unknown key is refused, so that nothing is passed over.
"""

from typing import Any, Literal

import msgspec

from hindcast.app.exports.episodes import AssembledEpisode, AssembledStep
from hindcast.app.exports.writer import Sources
from hindcast.core.domain.action import Action
from hindcast.core.domain.evidence import Evidence
from hindcast.core.domain.observation import Page
from hindcast.core.domain.task import Task
from hindcast.core.grammar.answer_form import split_form
from hindcast.events.catalogue.episode import EndReason, StepResult

FORMAT: Literal["hindcast-episode/1"] = "hindcast-episode/1"


class Document(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Base of what stands in the file."""


class DocumentTask(Document, frozen=True, kw_only=True):
    """As `core.domain.task.Task`."""

    environment: str
    family: str
    seed: int
    instruction: str
    goal: dict[str, Any]
    max_steps: int

    def as_task(self) -> Task:
        """The task."""
        return Task(**{name: getattr(self, name) for name in self.__struct_fields__})


class DocumentStep(Document, frozen=True, kw_only=True):
    """What was seen, and what was done about it."""

    page: Page | None
    """None: it was not recorded, or was let go of since."""
    action: Action | None
    """None: the answer was no action."""
    thought: str = ""
    """What preceded the answer, where answers have a thought."""
    answer: str = ""
    """As it was given. An import writes its own, in the run's form and dialect."""
    result: StepResult = "ok"
    detail: str = ""


class DocumentVerdict(Document, frozen=True, kw_only=True):
    """What one judge said. Told; an import asks the run's own judges."""

    judge: str
    version: str
    outcome: str
    reward: float | None
    reason: str | None


class DocumentSource(Document, frozen=True, kw_only=True):
    """Where it comes from."""

    run: str
    episode: str
    position: int
    """Of its end in that run's log."""
    origin: str
    policy_versions: tuple[int, int]
    """Lowest and highest that sampled a token; -1: a demonstrator's."""


class EpisodeDocument(Document, frozen=True, kw_only=True):
    """The episode."""

    format: Literal["hindcast-episode/1"]
    task: DocumentTask
    instruction: str
    """What the agent was told."""
    steps: tuple[DocumentStep, ...]
    reason: EndReason
    evidence: Evidence
    """What evaluators read: answer, final address, what the site said about itself."""
    final_page: Page | None = None
    verdicts: tuple[DocumentVerdict, ...] = ()
    source: DocumentSource | None = None


def document_of(played: AssembledEpisode, sources: Sources, *, steps: bool = True) -> EpisodeDocument:
    """The document of an episode of a run. `steps` False: without steps and pages."""
    task, ended = played.request.task, played.ended
    return EpisodeDocument(
        format=FORMAT,
        task=DocumentTask(**{name: getattr(task, name) for name in DocumentTask.__struct_fields__}),
        instruction=played.started.instruction,
        steps=tuple(_step(step, sources) for step in played.steps) if steps else (),
        reason=ended.reason,
        evidence=ended.evidence,
        final_page=sources.page(ended.final_observation) if steps else None,
        verdicts=tuple(
            DocumentVerdict(
                judge=one.judge,
                version=one.judge_version,
                outcome=one.outcome,
                reward=one.reward,
                reason=one.reason,
            )
            for one in sources.verdicts(ended.episode)
        ),
        source=DocumentSource(
            run=sources.origin.run,
            episode=ended.episode,
            position=played.position,
            origin=played.request.origin,
            policy_versions=ended.policy_versions,
        ),
    )


def _step(step: AssembledStep, sources: Sources) -> DocumentStep:
    fact = step.fact
    thought, answer = split_form(fact.answer)
    return DocumentStep(
        page=sources.page(fact.observation),
        action=fact.action,
        thought=thought,
        answer=answer,
        result=fact.result,
        detail=fact.detail,
    )
