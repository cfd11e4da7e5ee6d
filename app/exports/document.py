"""Document of one episode: a line of `episodes.jsonl`, and the format of imported demonstrations.

It contains instruction, pages, actions, end and verdicts of an episode, but not the data of one policy (token ids,
log-probabilities). Unknown keys are refused, so that nothing is ignored silently.
"""

from typing import Any, Literal

import msgspec

from hindcast.app.exports.exporter import EpisodeFile, Exporter, ExportSources
from hindcast.core.domain.action import Action
from hindcast.core.domain.evidence import Evidence
from hindcast.core.domain.observation import Page
from hindcast.core.domain.task import Task
from hindcast.core.grammar.answer_parser import split_form
from hindcast.events.catalogue.episode import EndReason, StepResult
from hindcast.events.log.episode_assembler import AssembledEpisode, AssembledStep

FORMAT: Literal["hindcast-episode/1"] = "hindcast-episode/1"


class Document(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Base class of the document's parts."""


class DocumentTask(Document, frozen=True, kw_only=True):
    """A task, as `core.domain.task.Task`."""

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
    """An observation and the answer to it."""

    page: Page | None
    """None: it was not recorded, or was deleted."""
    action: Action | None
    """None: the answer was no action."""
    thought: str = ""
    """Text before the answer, if answers have a thought."""
    answer: str = ""
    """The answer as sampled. An import ignores it and writes the action in the run's form and dialect."""
    result: StepResult = "ok"
    detail: str = ""


class DocumentVerdict(Document, frozen=True, kw_only=True):
    """One judge's verdict, for information only: after an import, the run's own judges judge."""

    judge: str
    version: str
    outcome: str
    reward: float | None
    reason: str | None


class DocumentSource(Document, frozen=True, kw_only=True):
    """Origin of the episode."""

    run: str
    episode: str
    position: int
    """Position of its end in that run's log."""
    origin: str
    policy_versions: tuple[int, int]
    """Lowest and highest policy version that sampled a token; -1: a demonstrator's."""


class EpisodeDocument(Document, frozen=True, kw_only=True):
    """The episode."""

    format: Literal["hindcast-episode/1"]
    task: DocumentTask
    instruction: str
    """Instruction given to the agent."""
    steps: tuple[DocumentStep, ...]
    reason: EndReason
    evidence: Evidence
    """Input of evaluators: answer, final address, the site's own state."""
    final_page: Page | None = None
    verdicts: tuple[DocumentVerdict, ...] = ()
    source: DocumentSource | None = None


def document_of(played: AssembledEpisode, sources: ExportSources, *, steps: bool = True) -> EpisodeDocument:
    """Build the document of an episode. `steps` False: without steps and pages."""
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


def _step(step: AssembledStep, sources: ExportSources) -> DocumentStep:
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


EXPORTER = Exporter(
    writes="a document for each episode, with its pages and verdicts",
    episode_file=EpisodeFile(
        suffix="json",
        media_type="application/json",
        content=lambda played, sources: msgspec.json.encode(document_of(played, sources)),
    ),
)
