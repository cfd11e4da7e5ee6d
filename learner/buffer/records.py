"""Records of the buffer about steps, episodes, groups and batches; only the projection changes them."""

from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec

from hindcast.core.domain.evidence import Outcome
from hindcast.core.settings.schema import LearnerSettings
from hindcast.events.catalogue import BranchPoint, EpisodeRequested, StepTaken
from hindcast.events.catalogue.episode import ShownPicture
from hindcast.events.envelope import BlobRef, Recorded


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """One step as it is trained on. Invariant 4: the arrays are the recorded ones, unchanged."""

    position: int
    """Position of its step.taken in the log."""
    digest: bytes
    """First 8 bytes of the sha256 of its stored bytes."""
    episode: str
    index: int = 0
    """Of the step in its episode."""
    prompt_ids: bytes
    """Prompt tokens, int32 little-endian."""
    action_ids: bytes
    """Action tokens, int32."""
    logprobs: bytes
    """Float32 per action token, under the distribution that it was sampled from."""
    versions: bytes
    """Policy version per action token, int32."""
    temperature: float
    allowed: bytes = b""
    """Tokens that each action token was drawn from, as `core.grammar.allowed_tokens` packs them; empty: the whole vocabulary."""
    answer_from: int = 0
    """Number of action tokens that are the thought before the answer."""
    pictures: tuple[ShownPicture, ...] = ()
    """Pictures in the prompt, in order."""

    @property
    def tokens(self) -> int:
        """Number of action tokens."""
        return len(self.action_ids) // 4

    @property
    def length(self) -> int:
        """Number of prompt and action tokens."""
        return (len(self.prompt_ids) + len(self.action_ids)) // 4


def sample_of(recorded: Recorded, fact: StepTaken) -> Sample:
    """The sample of a recorded step."""
    return Sample(
        position=recorded.position,
        digest=recorded.digest[:8],
        episode=fact.episode,
        index=fact.index,
        prompt_ids=fact.prompt_ids,
        action_ids=fact.action_ids,
        logprobs=fact.logprobs,
        versions=fact.versions,
        temperature=fact.sampling.temperature,
        allowed=fact.allowed,
        answer_from=fact.answer_from,
        pictures=fact.pictures,
    )


class Verdict(NamedTuple):
    """One judge's first verdict about an episode."""

    outcome: Outcome | None
    """None: no verdict yet."""
    reward: float
    position: int


@dataclass(slots=True)
class Episode:
    """One episode that may be trained on."""

    id: str
    origin: str
    family: str
    """Environment and task family, as in `store/find_price`."""
    task: str
    group: str
    member: int
    attempt: int
    requested: int
    """Position of its request."""
    samples: list[Sample] = field(default_factory=list)
    """Its steps with an answer, without those that a continuation repeats."""
    branch: BranchPoint | None = None
    """Where it leaves the episode that it continues."""
    steps: int = 0
    oldest_version: int | None = None
    """Lowest policy version that sampled one of its tokens."""
    unparsable: bool = False
    """Whether one of its answers was no action."""
    max_steps: int = 0
    """Its task's limit of steps."""
    ended: bool = False
    truncated: bool = False
    """Whether it ended at that limit."""
    gone: str | None = None
    """Why it will never end: reason of its abandonment or cancellation."""
    outcome: Outcome | None = None
    """The training judge's first verdict."""
    reward: float = 0.0
    judged: int = 0
    """Position of that verdict."""
    verdicts: dict[str, Verdict] = field(default_factory=dict)
    """First verdicts of the other judges, by judge name."""
    swept: bool = False
    uses: int = 0
    """Batches that it was trained in; for a stored success, groups that it was replayed into."""
    unrelabelled: bool = False
    """It ended before a fork without a relabel, and will never be relabeled."""
    collected: int = 0
    """Position at which both verdict and relabel were known; 0: not yet, or nothing is relabeled."""

    @property
    def decided(self) -> bool:
        """Whether it ended with a decided verdict: only such episodes are trained on."""
        return self.ended and not self.swept and self.outcome in ("success", "failure")

    @property
    def succeeded(self) -> bool:
        """Whether the training judge's verdict is success."""
        return self.outcome == "success"


def requested_episode(fact: EpisodeRequested, *, position: int) -> Episode:
    """The record of an episode that was requested at position `position`."""
    return Episode(
        id=fact.episode,
        origin=fact.origin,
        family=f"{fact.task.environment}/{fact.task.family}",
        task=fact.task.id,
        group=fact.group,
        member=fact.member,
        attempt=fact.attempt,
        requested=position,
        max_steps=fact.task.max_steps,
        branch=fact.branch,
    )


@dataclass(slots=True)
class Group:
    """Episodes of one task that are compared with each other."""

    id: str
    size: int
    members: dict[int, str] = field(default_factory=dict)
    """Latest attempt of each member."""
    started: dict[int, int] = field(default_factory=dict)
    """Number of attempts started, by member."""
    complete: bool = False
    """Whether every member has its final event."""


@dataclass(slots=True)
class RelabelledDemonstration:
    """A demonstration of a goal that an episode achieved."""

    episode: Episode
    """The episode with its steps up to the goal, with the prompts that they would have had under its instruction."""
    relabel: int
    """Index of the goal in its `episode.relabeled`."""
    relevance: tuple[float, ...]
    """Relevance of each of its steps."""
    stop: Sample | None = None
    """The step after these, with the answer that stops there as the relabeler wrote it; None: there is none."""

    @property
    def with_stop(self) -> list[Sample]:
        """Its steps, and the one that stops if there is one."""
        return [*self.episode.samples, *([self.stop] if self.stop else [])]


class ReplayUse(NamedTuple):
    """Age and uses of a stored success when it is replayed."""

    age: int
    """Versions since its oldest token was sampled."""
    uses: int
    """Groups that it was replayed into so far, including those of this batch."""


@dataclass(slots=True)
class Batch:
    """A planned batch whose weights are not published yet."""

    number: int
    position: int
    """Position of its batch.planned."""
    event: str
    """Id of its batch.planned."""
    settings: LearnerSettings
    """Settings in force when it was planned."""
    samples: list[Sample]
    """Steps in training order."""
    succeeded: list[bool]
    """Whether each planned episode succeeded."""
    truncated: list[bool]
    """Whether each planned episode ended at its task's limit of steps."""
    replays: dict[str, ReplayUse] = field(default_factory=dict)
    """Use of its stored successes, by episode."""
    reference: BlobRef | None = None
    """Weights of the plan's reference version, unless released."""
    follows_cloning: bool = False
    """Whether it is the policy's first batch after its cloning, by another algorithm."""
    values: dict[int, float] = field(default_factory=dict)
    """Values of its states, by position, that do not come from the critic as it is now (`phase_values`)."""
    done: int = 0
    """Mini-batches computed so far, including skipped ones."""
