"""What the buffer knows about steps, episodes and groups: plain records, changed only by the projection in `buffer`."""

from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec

from hindcast.core.domain.evidence import Outcome
from hindcast.core.settings.schema import LearnerSettings
from hindcast.events.catalogue.episode import ShownPicture
from hindcast.events.envelope import BlobRef

DEMONSTRATION = "demonstration"
"""The origin of an episode that somebody shows."""


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """One step as it is trained on. Invariant 4: the arrays are the recorded ones, untouched."""

    position: int
    """Of its step.taken in the log."""
    digest: bytes
    """First 8 bytes of the sha256 of its stored bytes."""
    episode: str
    prompt_ids: bytes
    """int32 little-endian."""
    action_ids: bytes
    """int32."""
    logprobs: bytes
    """float32 per action token, under the distribution sampled from."""
    versions: bytes
    """int32 per action token."""
    temperature: float
    allowed: bytes = b""
    """The set that each action token was drawn from, as `core.grammar.allowed_tokens` packs them; empty: the whole vocabulary."""
    answer_from: int = 0
    """Action tokens before it are the thought that precedes the answer."""
    pictures: tuple[ShownPicture, ...] = ()
    """Those that stand in the prompt, in order."""

    @property
    def tokens(self) -> int:
        """Number of action tokens."""
        return len(self.action_ids) // 4

    @property
    def length(self) -> int:
        """Number of prompt and action tokens."""
        return (len(self.prompt_ids) + len(self.action_ids)) // 4


class Verdict(NamedTuple):
    """What one judge said first about an episode."""

    outcome: Outcome | None
    """None: nothing yet."""
    reward: float
    position: int


@dataclass(slots=True)
class Episode:
    """One episode that may be trained on."""

    id: str
    origin: str
    family: str
    """Environment and task family, as `store/find_price`."""
    task: str
    group: str
    member: int
    attempt: int
    requested: int
    """Position of its request."""
    samples: list[Sample] = field(default_factory=list)
    steps: int = 0
    oldest_version: int | None = None
    """Lowest policy version that sampled a token of it."""
    unparsable: bool = False
    """Whether an answer of it was no action."""
    ended: bool = False
    gone: str | None = None
    """Why it will never end: reason of its abandonment or cancellation."""
    outcome: Outcome | None = None
    """The training judge's first verdict."""
    reward: float = 0.0
    judged: int = 0
    """Position of that verdict."""
    verdicts: dict[str, Verdict] = field(default_factory=dict)
    """Of the other judges, by name."""
    swept: bool = False
    uses: int = 0
    """Batches it was trained in; of a stored success, groups that it was replayed into."""
    unrelabelled: bool = False
    """It ended before a fork and no relabeler had spoken about it: none will."""
    collected: int = 0
    """Position at which both the judge and the relabeler had spoken about it; 0: not yet, or nobody relabels."""

    @property
    def decided(self) -> bool:
        """Whether it ended and a judge could tell how: only such episodes are trained on."""
        return self.ended and not self.swept and self.outcome in ("success", "failure")

    @property
    def succeeded(self) -> bool:
        """Whether the training judge called it a success."""
        return self.outcome == "success"


@dataclass(slots=True)
class Group:
    """Episodes of one task that are compared with each other."""

    id: str
    size: int
    members: dict[int, str] = field(default_factory=dict)
    """Latest attempt of each member."""
    started: dict[int, int] = field(default_factory=dict)
    """How many of each member's attempts were started."""
    complete: bool = False
    """Nothing more is to be expected of any member."""


@dataclass(slots=True)
class RelabelledDemonstration:
    """A demonstration of a goal that an episode achieved."""

    episode: Episode
    """With the steps up to the goal alone, as they would have read under its instruction."""
    relabel: int
    """Which goal of its `episode.relabeled`."""
    relevance: tuple[float, ...]
    """Of each of those steps."""


class ReplayUse(NamedTuple):
    """How worn a stored success is when it is replayed."""

    age: int
    """Versions since the oldest of its tokens was sampled."""
    uses: int
    """Groups that it was replayed into so far, those of this batch included."""


@dataclass(slots=True)
class Batch:
    """A planned batch whose weights are not published yet."""

    number: int
    position: int
    """Of its batch.planned."""
    event: str
    """Id of that event."""
    settings: LearnerSettings
    """In force when it was planned."""
    samples: list[Sample]
    """In training order."""
    succeeded: list[bool]
    """Per planned episode."""
    replays: dict[str, ReplayUse] = field(default_factory=dict)
    """Of the stored successes among them, by episode."""
    reference: BlobRef | None = None
    """Weights of the plan's reference version, where they were not released."""
    done: int = 0
    """Mini-batches computed so far, skipped ones included."""
