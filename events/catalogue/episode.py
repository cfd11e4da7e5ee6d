"""Facts about episodes and their steps."""

from typing import Literal

import msgspec

from hindcast.core.domain.action import Action
from hindcast.core.domain.evidence import Evidence
from hindcast.core.domain.sampling import Sampling
from hindcast.core.domain.scaffold_step import Scaffolded
from hindcast.core.domain.screen import Box, Mark
from hindcast.events.envelope import BlobRef, Fact
from hindcast.events.registry import fact

StepResult = Literal[
    "ok",
    "exit",
    "parse_failure",
    "no_such_element",
    "not_actionable",
    "timeout",
    "navigation_blocked",
    "page_closed",
]


class Screenshot(msgspec.Struct, frozen=True, kw_only=True):
    """What a person would have seen of the window, as an image beside the log. Nothing is computed from it again, but
    where the policy read it: then `StepTaken.pictures` names it, too.
    """

    image: BlobRef | None
    """JPEG; None where it could not be had."""
    missing: str
    """Why not, in words; empty where it was."""
    when: Literal["before", "after"]
    """Whether it shows the page that the step began with, or what it led to."""
    width: int
    """Of the image, in its own pixels."""
    height: int
    scale: float
    """Pixels of the image for one CSS pixel of the window."""
    marks: tuple[Mark, ...]
    """Where the numbered elements of the page were in the window, in CSS pixels."""


class ShownPicture(msgspec.Struct, frozen=True, kw_only=True):
    """A picture that the policy read. Invariant 4: it is trained on as it was read."""

    blob: BlobRef
    """The image file: that of the step's screenshot."""
    tokens: int
    """Of the prompt that stand for it."""
    digest: str
    """sha256 of what the policy's image processor made of it (`core.models.vision.ProcessedImage`)."""


@fact("episode.started", family="episode")
class EpisodeStarted(Fact, frozen=True, kw_only=True):
    """An actor took the request. Created if absent: a second actor is refused."""

    episode: str
    actor: str
    instruction: str
    """What the agent is told; from the page where the task leaves it open."""
    renderer: str
    """Name and version, such as `lines/1`."""


@fact("step.taken", family="step", version=5)
class StepTaken(Fact, frozen=True, kw_only=True):
    """Observation, what was sampled from which weights, what it did. Invariant 4: this is what is trained on."""

    episode: str
    index: int
    """0, 1, 2 … within the episode."""
    observation_digest: str
    observation: BlobRef | None
    """The page as encoded `core.domain.observation.Page`."""
    url: str
    world_ordinal: int
    """`Page.ordinal` of the observation: facts of the site before this step."""
    prompt_ids: bytes
    """int32 little-endian: exactly what the policy read."""
    action_ids: bytes
    """int32: exactly what it sampled, end token included when sampled."""
    logprobs: bytes
    """float32 per action token under the distribution sampled from."""
    versions: bytes
    """int32 per action token: policy version it was sampled from."""
    sampling: Sampling
    prompt_truncated: bool
    answer: str
    """Decoded text of the action tokens."""
    answer_from: int = 0
    """Action tokens before it are the thought that precedes the answer; 0 where there is none."""
    action: Action | None
    """None when the answer does not parse."""
    result: StepResult
    detail: str
    """Why, in words, unless the result is `ok`."""
    observe_ms: float
    generate_ms: float
    act_ms: float
    allowed: bytes = b""
    """The set that each token was drawn from, as `core.grammar.allowed_tokens` packs them; empty: the whole vocabulary each time."""
    scaffold: Scaffolded | None = None
    """What the scaffold made of it; None where there is none for this site."""
    touched: Box | None = None
    """Where the action's element was in the window when it was acted upon; None: it has none, or it could not be seen."""
    screenshot: Screenshot | None = None
    """None: none was asked for (`actors.screenshots`)."""
    pictures: tuple[ShownPicture, ...] = ()
    """Those that the policy read, in their order in `prompt_ids`; empty: it read text alone."""


EndReason = Literal["exit", "done", "max_steps", "unparsable", "repeated"]


@fact("episode.ended", family="episode_end", version=4)
class EpisodeEnded(Fact, frozen=True, kw_only=True):
    """The episode reached its natural end. Terminal; created if absent."""

    episode: str
    task_id: str
    actor: str
    reason: EndReason
    """`done`: the page itself ended it; `max_steps`: truncated; `unparsable`: as many answers in a row were no action as
    `actors.ends_unparsable` says; `repeated`: as many steps were equal as `actors.ends_repeated` says."""
    steps: int
    evidence: Evidence
    final_observation: BlobRef | None
    policy_versions: tuple[int, int]
    """Lowest and highest version that sampled a token."""
    duration_ms: float
    screenshot: Screenshot | None = None
    """Of the page that it ended on; None: none was asked for."""


@fact("episode.abandoned", family="episode_end")
class EpisodeAbandoned(Fact, frozen=True, kw_only=True):
    """The episode will never end by itself. Terminal; created if absent."""

    episode: str
    task_id: str
    reason: str
    """`lease_expired`, `episode_timeout`, `browser_died`, `environment_failed`, `engine_failed`, `actor_stopped`,
    `actor_restarted`, `forked`, `error`."""
    detail: str
    steps: int


@fact("episode.cancelled", family="episode_end")
class EpisodeCancelled(Fact, frozen=True, kw_only=True):
    """Somebody or the staleness rule gave it up. Terminal; created if absent."""

    episode: str
    task_id: str
    reason: str
    detail: str
