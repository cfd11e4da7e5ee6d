"""Results of the read model's queries. Every rate has its number of episodes and its interval."""

from typing import Any

import msgspec

from hindcast.core.rl.statistics import Interval


class Success(msgspec.Struct, frozen=True, kw_only=True):
    """How often a judge decided success; 95 % Wilson interval. Undecided verdicts are counted separately, never as failure."""

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
    """As played: with the families in the shares that this version met."""
    weighted: Interval
    """Every family weighted by its share of the run's judged episodes of this origin; 95 % interval. A family that the version
    did not play has the run's rate and the interval [0, 1].
    """
    mean_reward: float | None
    mixed: int
    """Episodes in which a newer version took over on the way."""


class MetricColumn(msgspec.Struct, frozen=True, kw_only=True):
    """A metric over one update, or over several consecutive ones."""

    first: int
    """Number of the first update."""
    last: int
    updates: int
    """Number of updates with a value."""
    low: float
    high: float
    value: float
    """Value of the last update."""


class EpisodeRow(msgspec.Struct, frozen=True, kw_only=True):
    """One episode in a list, without its steps."""

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
    """One step of an episode; the log has its token ids and log-probabilities at `position`."""

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
    """State that the scaffold recognized; empty: none; None: no scaffold."""
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
    """None: the page that the episode ended on."""
    shows: str
    """The page `before` the step, or `after` it."""
    sha256: str | None
    size_bytes: int | None
    missing: str | None
    """Why there is no image."""
    width: int | None
    height: int | None
    scale: float | None
    """Pixels of the image for one CSS pixel of the window."""
    marks: str | None
    """Numbers and boxes of the elements that could be acted upon, as JSON, in CSS pixels."""
    released: int | None
    """Position of its release."""


class VerdictRow(msgspec.Struct, frozen=True, kw_only=True):
    """One judge's verdict on an episode."""

    position: int
    judge: str
    judge_version: str
    prompt_digest: str | None
    """Digest of the judge's prompt, if it has one."""
    outcome: str
    reward: float | None
    reason: str | None
    model_version: int | None
    """Published version of the run's model that judged; None of other judges."""
    probability: float | None
    """Probability of success that this model gave."""
    asked_model: str | None
    """Model behind an endpoint that was asked."""
    prompt_tokens: int | None
    answer_tokens: int | None
    cost_usd: float | None


class DisputeRow(msgspec.Struct, frozen=True, kw_only=True):
    """A person's objection to a verdict."""

    position: int
    judge: str
    """Judge of the disputed verdict."""
    judge_version: str
    outcome: str
    """What the verdict should have been."""
    author: str
    reason: str


class TrainedIn(msgspec.Struct, frozen=True, kw_only=True):
    """A batch with an episode, over all its epochs."""

    batch: int
    position: int
    trained: bool
    rehearsed: bool
    """Only cloned, as a remembered success. If neither: used up without being trained on."""
    replaces: str | None
    """As a replayed success: the member that it replaced."""
    epochs: int
    """Number of passes over its samples."""
    samples: int | None
    """Samples of one epoch."""
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
    """Steps whose page snapshot was released."""
    screenshots: tuple[ScreenshotRow, ...]
    verdicts: tuple[VerdictRow, ...]
    disputes: tuple[DisputeRow, ...]
    """Disputes of its verdicts; they do not affect training."""
    batches: tuple[TrainedIn, ...]


class TaskRow(msgspec.Struct, frozen=True, kw_only=True):
    """One task in a list, with its success."""

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
    """A model's answer whether it can be done; None: none was asked."""
    episodes: int
    success: Success


class PhaseRow(msgspec.Struct, frozen=True, kw_only=True):
    """One phase of the curriculum: its proposed tasks, their admission, and their success."""

    phase: int
    reference_version: int
    """Policy version that it began with."""
    position: int
    proposed: int
    admitted: int
    rejected: dict[str, int]
    """Number of rejected tasks by reason, up to its first colon."""
    changes: dict[str, int]
    """Number of candidates by kind of change."""
    valued: int
    """Candidates with a critic's value."""
    value_low: float | None
    value_median: float | None
    value_high: float | None
    """Lowest, middle and highest value of the candidates."""
    episodes: int
    """Online episodes requested in it."""
    success: Success
    """Of all online episodes, in any phase, of tasks that were admitted for this one."""
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
    """Whether its weights were released."""
    success: Success
    """Of online episodes."""


class Throughput(msgspec.Struct, frozen=True, kw_only=True):
    """Rates over the latest stretch of recorded time, by the producers' clocks."""

    window_s: float
    """Length of the stretch; shorter than requested if the run is younger."""
    episodes: int
    """Episodes that ended in it."""
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
    """A family's best earlier success and its present one."""

    family: str
    best: Stretch
    """Best stretch before the present one."""
    present: Stretch
    change: tuple[float, float, float]
    """Present minus best, and its 95 % interval."""


class RecipeChange(msgspec.Struct, frozen=True, kw_only=True):
    """A change of settings, in force from its position on."""

    position: int
    text: str
    """Author, change and reason."""


class ModelSummary(msgspec.Struct, frozen=True, kw_only=True):
    """An auxiliary model, such as the critic."""

    model: str
    updates: int
    skipped_updates: int
    version: int
    """Newest published version; 0: none."""


class Consultations(msgspec.Struct, frozen=True, kw_only=True):
    """Questions to one model behind an endpoint for one purpose, summed."""

    purpose: str
    """`verdict`, `relabel`, `task` (to invent some), `feasibility` (of an invented one)."""
    model: str
    questions: int
    remembered: int
    """Questions answered from memory, without cost."""
    requests: int
    """Requests sent, including retries."""
    prompt_tokens: int
    answer_tokens: int
    cost_usd: float


class RunSummary(msgspec.Struct, frozen=True, kw_only=True):
    """Summary of a run as of a position."""

    run: str
    position: int
    """Position as of which everything here holds."""
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
    """Author -> reason of each pause in force."""
    phase: int | None
    started_ns: int | None
    tasks: int
    episodes: dict[str, int]
    """Number of episodes by state."""
    verdicts: dict[str, int]
    """Outcomes by the training judge."""
    disputed: int
    """Number of episodes with a disputed verdict."""
    trained_episodes: int
    """Distinct episodes trained on, in any number of epochs or batches, without rehearsals."""
    steps: int
    batches: int
    updates: int
    skipped_updates: int
    beside: tuple[ModelSummary, ...]
    """The auxiliary models by name; `updates` and `policy_version` are the policy's."""
    consulted: tuple[Consultations, ...]
    """Models behind endpoints, by purpose and name."""
    policy_version: int | None
    """Newest published version."""
    sampling_from: dict[str, int]
    """Actor -> version it adopted last."""
    checkpoint_update: int | None
    notices: dict[str, int]
    """Number of notices by type."""
    success: tuple[VersionSuccess, ...]
    retention: tuple[FamilyRetention, ...]
    """Of families with enough episodes to compare."""
    changes: tuple[RecipeChange, ...]
    """Changes of the recipe during the run, in order."""
    throughput: Throughput
