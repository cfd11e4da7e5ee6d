"""What the read model answers. Numbers of episodes stand beside every rate, and no rate without its interval."""

from typing import Any

import msgspec

from hindcast.core.rl.statistics import Interval


class Success(msgspec.Struct, frozen=True, kw_only=True):
    """How often a judge said success; 95 % Wilson interval. Undecided verdicts are counted apart, never as failure."""

    judged: int
    """Successes and failures: n of the rate."""
    successes: int
    undecided: int
    rate: float
    low: float
    high: float


class VersionSuccess(msgspec.Struct, frozen=True, kw_only=True):
    """Success of the episodes that a policy version began."""

    version: int
    """Lowest version that sampled a token of the episode."""
    origin: str
    success: Success
    """As played: the families in the shares that this version met."""
    weighted: Interval
    """Every family weighted by its share of the run's judged episodes of this origin; 95 % interval. A family that the version
    did not play has the run's rate and the interval [0, 1]."""
    mean_reward: float | None
    mixed: int
    """Episodes in which a newer version took over on the way."""


class MetricColumn(msgspec.Struct, frozen=True, kw_only=True):
    """A metric over one update, or over several that follow each other."""

    first: int
    """Update."""
    last: int
    updates: int
    """With a number there."""
    low: float
    high: float
    value: float
    """Of the last update."""


class EpisodeRow(msgspec.Struct, frozen=True, kw_only=True):
    """One episode in a list."""

    episode: str
    task: str | None
    environment: str | None
    family: str | None
    group_id: str | None
    member: int | None
    attempt: int | None
    origin: str | None
    state: str
    reason: str | None
    steps: int | None
    version_low: int | None
    version_high: int | None
    actor: str | None
    outcome: str | None
    """The training judge's verdict; None until there is one."""
    reward: float | None
    swept: str | None
    duration_ms: float | None
    requested_position: int | None


class StepRow(msgspec.Struct, frozen=True, kw_only=True):
    """One step of an episode; the token ids and log-probabilities stand in the log at `position`."""

    position: int
    step: int
    url: str | None
    answer: str | None
    action: str | None
    element: int | None
    argument: str | None
    result: str | None
    detail: str | None
    prompt_tokens: int | None
    answer_tokens: int | None
    version_low: int | None
    version_high: int | None
    temperature: float | None
    observation_digest: str | None
    observation_blob: str | None
    prompt_truncated: bool | None
    scaffold_state: str | None
    """Recognised by the scaffold; empty: none; None: no scaffold."""
    scaffold_choices: int | None
    scaffold_remembered: int | None
    scaffold_chosen: str | None
    observe_ms: float | None
    generate_ms: float | None
    act_ms: float | None
    touched: str | None
    """Box of the action's element in the window, as JSON."""


class ScreenshotRow(msgspec.Struct, frozen=True, kw_only=True):
    """An image of an episode's window."""

    position: int
    step: int | None
    """None: of the page that the episode ended on."""
    shows: str
    """The page `before` the step, or `after` it."""
    sha256: str | None
    size_bytes: int | None
    missing: str | None
    """Why there is none."""
    width: int | None
    height: int | None
    scale: float | None
    """Pixels of the image for one CSS pixel of the window."""
    marks: str | None
    """Numbers and boxes of the elements that could be acted upon, as JSON, in CSS pixels."""
    released: int | None
    """Position at which it was let go of."""


class VerdictRow(msgspec.Struct, frozen=True, kw_only=True):
    """What one judge said about an episode."""

    position: int
    judge: str
    judge_version: str
    prompt_digest: str | None
    """Of a judge that reads one."""
    outcome: str
    reward: float | None
    reason: str | None
    model_version: int | None
    """Published version of the model that spoke, where the judge is one."""
    probability: float | None
    """What it gave to success."""
    asked_model: str | None
    """Model behind an endpoint that was asked."""
    prompt_tokens: int | None
    answer_tokens: int | None
    cost_usd: float | None


class DisputeRow(msgspec.Struct, frozen=True, kw_only=True):
    """What a person said against a verdict."""

    position: int
    judge: str
    """Whose verdict."""
    judge_version: str
    outcome: str
    """What it should have been."""
    author: str
    reason: str


class TrainedIn(msgspec.Struct, frozen=True, kw_only=True):
    """A batch that an episode went into, however often the batch went through it."""

    batch: int
    position: int
    trained: bool
    rehearsed: bool
    """Only imitated, as a remembered success. Neither: used up without being trained on."""
    replaces: str | None
    """As a replayed success: the member that it stood in for."""
    epochs: int
    """How often its samples were gone through."""
    samples: int | None
    """Of one epoch."""
    reward: float | None
    advantage: float | None
    updates: tuple[int, ...]
    """Numbers of the policy updates computed from its samples."""


class EpisodeDetail(msgspec.Struct, frozen=True, kw_only=True):
    """An episode with everything known about it."""

    episode: EpisodeRow
    instruction: str | None
    renderer: str | None
    answer: str | None
    final_url: str | None
    detail: str | None
    steps: tuple[StepRow, ...]
    pages_released: int
    """Steps whose snapshot of the page was let go of since."""
    screenshots: tuple[ScreenshotRow, ...]
    verdicts: tuple[VerdictRow, ...]
    disputes: tuple[DisputeRow, ...]
    """Of its verdicts; training does not heed them."""
    batches: tuple[TrainedIn, ...]


class TaskRow(msgspec.Struct, frozen=True, kw_only=True):
    """One task in a list."""

    task: str
    environment: str | None
    family: str | None
    seed: int | None
    instruction: str | None
    state: str | None
    reason: str | None
    """Why it was rejected."""
    phase: int | None
    value: float | None
    change: str | None
    """How it differs from the tasks it was made from."""
    checked: str | None
    """What a model said when it was asked whether it can be done; None: none was asked."""
    episodes: int
    success: Success


class PhaseRow(msgspec.Struct, frozen=True, kw_only=True):
    """One phase of the curriculum: what was proposed for it, what became of that, and how its tasks went."""

    phase: int
    reference_version: int
    """Policy version that it began with."""
    position: int
    proposed: int
    admitted: int
    rejected: dict[str, int]
    """How many for each reason; what follows a colon in it is left out."""
    changes: dict[str, int]
    """How many candidates of each kind of change."""
    valued: int
    """Candidates with a critic's value."""
    value_low: float | None
    value_median: float | None
    value_high: float | None
    """Lowest, middle and highest value of the candidates."""
    episodes: int
    """Online ones that were requested in it."""
    success: Success
    """Of all online episodes, in whatever phase, of tasks that were admitted for this one."""
    revisits: Success
    """Of its own episodes on tasks of earlier phases."""


class PolicyRow(msgspec.Struct, frozen=True, kw_only=True):
    """One policy version in a list."""

    version: int
    at_update: int | None
    sha256: str | None
    size_bytes: int | None
    published_position: int
    adopted_by: tuple[str, ...]
    """Actors that sample from it now."""
    released: bool
    """Whether its weights were let go of."""
    success: Success
    """Of online episodes."""


class Throughput(msgspec.Struct, frozen=True, kw_only=True):
    """What happened in the last stretch of time that the log knows of; clocks are the producers'."""

    window_s: float
    """Length of the stretch; shorter than asked for when the run is younger."""
    episodes: int
    """Ended in it."""
    steps: int
    updates: int
    episodes_per_minute: float
    steps_per_second: float
    updates_per_minute: float
    answer_tokens_per_second: float
    learner_busy: float
    """Share of the time in which an update was computed."""
    mean_observe_ms: float | None
    mean_generate_ms: float | None
    mean_act_ms: float | None


class Stretch(msgspec.Struct, frozen=True, kw_only=True):
    """Success of the online episodes that consecutive policy versions began; 95 % Wilson interval."""

    first_version: int
    last_version: int
    judged: int
    successes: int
    rate: float
    low: float
    high: float


class FamilyRetention(msgspec.Struct, frozen=True, kw_only=True):
    """What a family's tasks once came to, and come to now."""

    family: str
    best: Stretch
    """Of all before the present one."""
    present: Stretch
    change: tuple[float, float, float]
    """Present minus best, and its 95 % interval."""


class RecipeChange(msgspec.Struct, frozen=True, kw_only=True):
    """Settings that hold from a position on."""

    position: int
    text: str
    """Who changed what, and why."""


class ModelSummary(msgspec.Struct, frozen=True, kw_only=True):
    """A model beside the policy, such as a critic."""

    model: str
    updates: int
    skipped_updates: int
    version: int
    """Newest published; 0: none."""


class Consultations(msgspec.Struct, frozen=True, kw_only=True):
    """What a model behind an endpoint was asked for one purpose, added up."""

    purpose: str
    """`verdict`, `relabel`, `task` (to invent some), `feasibility` (of an invented one)."""
    model: str
    questions: int
    remembered: int
    """Questions to which the answer was known: they cost nothing."""
    requests: int
    """Sent, tries included."""
    prompt_tokens: int
    answer_tokens: int
    cost_usd: float


class RunSummary(msgspec.Struct, frozen=True, kw_only=True):
    """A run as of a position."""

    run: str
    position: int
    """As of which everything here holds."""
    state: str | None
    recipe: str | None
    run_seed: int | None
    base_policy_name: str | None
    parent: str | None
    """Run it was forked from."""
    forked_at: int | None
    """Position up to which its log is its parent's."""
    goal: dict[str, Any]
    finished_reason: str | None
    pauses: dict[str, str]
    """Who halted it and why."""
    phase: int | None
    started_ns: int | None
    tasks: int
    episodes: dict[str, int]
    """By state."""
    verdicts: dict[str, int]
    """Outcomes by the training judge."""
    disputed: int
    """Episodes a verdict on which somebody disputes."""
    trained_episodes: int
    """Trained on; each once, however many epochs or batches, and without rehearsals."""
    steps: int
    batches: int
    updates: int
    skipped_updates: int
    beside: tuple[ModelSummary, ...]
    """The other models that were trained, by name; `updates` and `policy_version` are the policy's."""
    consulted: tuple[Consultations, ...]
    """Models behind endpoints, by purpose and name."""
    policy_version: int | None
    """Newest published."""
    sampling_from: dict[str, int]
    """Actor -> version it adopted last."""
    checkpoint_update: int | None
    notices: dict[str, int]
    """By type."""
    success: tuple[VersionSuccess, ...]
    retention: tuple[FamilyRetention, ...]
    """Of families with episodes enough to compare."""
    changes: tuple[RecipeChange, ...]
    """Of the recipe while the run went on, in order."""
    throughput: Throughput
