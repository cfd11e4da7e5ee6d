"""Facts about episodes and their steps."""

from typing import Literal

import msgspec

from hindcast.core.domain.action import Action
from hindcast.core.domain.evidence import Evidence
from hindcast.core.domain.observation import Box, Mark
from hindcast.core.domain.sampling import Sampling, Scaffolded
from hindcast.events.envelope import BlobRef, Fact
from hindcast.events.registry import fact
from hindcast.events.subjects import EPISODE, EPISODE_END, STEP

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
    """A screenshot of the window, stored as a blob.

    Nothing is computed from it again unless the policy read it: then `StepTaken.pictures` names it, too.
    """

    image: BlobRef | None
    """JPEG; None if it could not be taken."""
    missing: str
    """Why it could not be taken; empty if it was."""
    when: Literal["before", "after"]
    """Whether it shows the page before or after the step."""
    width: int
    """Width of the image in its own pixels."""
    height: int
    """Height of the image in its own pixels."""
    scale: float
    """Image pixels per CSS pixel of the window."""
    marks: tuple[Mark, ...]
    """Positions of the page's numbered elements in the window, in CSS pixels."""


class ShownPicture(msgspec.Struct, frozen=True, kw_only=True):
    """A picture that the policy read. Invariant 4: training reads the same."""

    blob: BlobRef
    """Image file of the step's screenshot."""
    tokens: int
    """Number of its placeholder tokens in the prompt."""
    digest: str
    """sha256 of the processed image (`core.models.vision.ProcessedImage`)."""


@fact("episode.started", subject=EPISODE, roles="actor", refs={"episode": "episode"})
class EpisodeStarted(Fact, frozen=True, kw_only=True):
    """An actor started a requested episode. Created if absent: a second actor is refused."""

    episode: str
    actor: str
    instruction: str
    """Instruction to the agent; from the page if the task leaves it open."""
    renderer: str
    """Name and version, such as `lines/1`."""


@fact(
    "step.taken",
    subject=STEP,
    roles="actor",
    version=6,
    refs={"episode": "episode", "observation": "page", "screenshot.image": "page"},
)
class StepTaken(Fact, frozen=True, kw_only=True):
    """One step: the observation, the sampled tokens and their weights, the action and its result.

    Invariant 4: training uses exactly what is recorded here.
    """

    episode: str
    index: int
    """0, 1, 2 … within the episode."""
    observation_digest: str
    observation: BlobRef | None
    """Encoded page (`core.domain.observation.Page`)."""
    url: str
    world_ordinal: int
    """`Page.ordinal` of the observation: number of the site's facts before this step."""
    prompt_ids: bytes
    """int32 little-endian: the tokens that the policy read."""
    action_ids: bytes
    """int32: the tokens that it sampled, including the end token if sampled."""
    logprobs: bytes
    """float32 per action token: log-probability under the sampling distribution."""
    versions: bytes
    """int32 per action token: policy version that sampled it."""
    sampling: Sampling
    prompt_truncated: bool
    answer: str
    """Decoded text of the action tokens."""
    answer_from: int = 0
    """Index of the first action token after the thought; 0 without a thought."""
    action: Action | None
    """None if the answer does not parse."""
    result: StepResult
    detail: str
    """Explanation of a result other than `ok`."""
    observe_ms: float
    generate_ms: float
    act_ms: float
    allowed: bytes = b""
    """The set that each token was drawn from, as `core.grammar.allowed_tokens` packs them; empty: the whole vocabulary each time."""
    scaffold: Scaffolded | None = None
    """What the scaffold made of it; None where there is none for this site."""
    touched: Box | None = None
    """Position of the action's element when it was acted upon; None if it has none, or was not visible."""
    screenshot: Screenshot | None = None
    """None if the settings ask for none (`actors.screenshots`)."""
    pictures: tuple[ShownPicture, ...] = ()
    """Pictures that the policy read, in their order in `prompt_ids`; empty if it read only text."""
    context: int = 0
    """Number of the context within the episode that the step belongs to. An agent of the user's own begins another one when its
    messages do not continue an earlier chat (`actors.agents.contexts`); every other episode has context 0 alone."""


EndReason = Literal["exit", "done", "max_steps", "unparsable", "repeated"]


@fact(
    "episode.ended",
    subject=EPISODE_END,
    roles="actor",
    version=4,
    refs={"episode": "episode", "final_observation": "page", "screenshot.image": "page"},
)
class EpisodeEnded(Fact, frozen=True, kw_only=True):
    """The episode ended by itself. Terminal; created if absent."""

    episode: str
    task_id: str
    actor: str
    reason: EndReason
    """`exit`: the agent exited; `done`: the page ended it; `max_steps`: truncated; `unparsable`: too many consecutive
    unparsable answers (`actors.ends_unparsable`); `repeated`: too many equal steps (`actors.ends_repeated`)."""
    steps: int
    evidence: Evidence
    final_observation: BlobRef | None
    policy_versions: tuple[int, int]
    """Lowest and highest version that sampled a token."""
    duration_ms: float
    screenshot: Screenshot | None = None
    """Screenshot of the final page; None if the settings ask for none."""


@fact("episode.abandoned", subject=EPISODE_END, roles=("curriculum", "actor"), refs={"episode": "episode"})
class EpisodeAbandoned(Fact, frozen=True, kw_only=True):
    """The episode failed and will never end by itself. Terminal; created if absent."""

    episode: str
    task_id: str
    reason: str
    """`lease_expired`, `episode_timeout`, `browser_died`, `environment_failed`, `engine_failed`, `actor_stopped`,
    `actor_restarted`, `forked`, `error`."""
    detail: str
    steps: int


@fact("episode.cancelled", subject=EPISODE_END, roles="curriculum", refs={"episode": "episode"})
class EpisodeCancelled(Fact, frozen=True, kw_only=True):
    """The curriculum cancelled the episode, because of a control request or its staleness. Terminal; created if absent."""

    episode: str
    task_id: str
    reason: str
    detail: str
