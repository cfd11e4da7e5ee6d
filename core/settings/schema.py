"""The settings schema: one section for each part of the system. Unknown keys are refused.

`app.settings.configuration` merges defaults, recipe, settings file, environment and `--set`, in that order, and records the
source of each value. The resolved settings are part of the run's first event.
"""

from math import ceil
from typing import Annotated, Any, Literal

from pydantic import Field

from hindcast.core.rl.loss_normalization import LossMean
from hindcast.core.settings.actors import ActorSettings as ActorSettings
from hindcast.core.settings.computing import ComputingSettings, Device
from hindcast.core.settings.endpoint import EndpointSettings as EndpointSettings
from hindcast.core.settings.operation import LogSettings as LogSettings
from hindcast.core.settings.operation import StorageSettings as StorageSettings
from hindcast.core.settings.operation import TelemetrySettings as TelemetrySettings
from hindcast.core.settings.section import TEN_YEARS_S, Count, Formerly, Seconds, Section, Threads, Tokens
from hindcast.core.settings.sites import SiteSettings as SiteSettings
from hindcast.core.settings.sites import WebSettings as WebSettings
from hindcast.core.settings.vllm import VllmSettings as VllmSettings


class RunSettings(Section):
    """Settings of the run as a whole."""

    seed: int = 1
    """Seed from which every other seed is derived."""


class CurriculumSettings(Section):
    """Selection of tasks, and how often each is attempted."""

    environments: tuple[str, ...] = ("store", "miniwob")
    """Environments of the tasks: built-in ones, or a plugin of another package, by its name or as `module:object`
    (docs/plugins.md)."""
    families: tuple[str, ...] = ()
    """Task families, as `store/find_price`; empty: the recipe's default set of every environment."""
    tasks: tuple[str, ...] = ()
    """Single tasks by family and seed, as `store/find_price:3`, instead of `families`; `hindcast task select` finds
    learnable ones. Empty: the families' tasks."""
    task_pool: Annotated[int, Field(ge=1, le=1_000_000)] = 64
    """Number of distinct tasks per family."""
    group_size: Annotated[int, Field(ge=1, le=65_536)] = 8
    """Episodes of one task that are compared with each other."""
    branches: Annotated[int, Field(ge=0, le=1024)] = 0
    """Continuations from each of `branch_steps` steps of a group's first episode, in addition to `group_size` episodes, for
    `learner.algorithm = "branching"` (docs/planners/branching.md); 0: none."""
    branch_steps: Annotated[int, Field(ge=1, le=1024)] = 1
    """Steps of a group's first episode from which it is continued, if `branches` is above 0."""
    max_running: Annotated[int, Field(ge=1, le=1_000_000)] = 32
    """Maximum episodes requested and not yet ended."""
    lease_s: Annotated[float, Field(ge=0, le=TEN_YEARS_S), Formerly(value=180.0)] = 0.0
    """Time after which a started episode that has not ended, or a requested one that has not started, is abandoned. 0: it
    follows from `actors.episode_timeout_s`: a started episode has 30 s more, and a request has as long as one actor may take
    for all that wait with it."""
    max_attempts: Annotated[int, Field(ge=1, le=1_000_000)] = 3
    """Attempts at one group member before it is given up."""
    demonstrations: Annotated[int, Field(ge=0, le=100_000_000)] = 0
    """Episodes by the sites' scripted demonstrators at the start of the run."""
    hasty_share: Annotated[float, Field(ge=0, le=1)] = 0.0
    """Share of demonstrations in which the demonstrator leaves instead of its last action on a page, as people in haste do, so
    that the task is not done. Where a task asks for an answer, it plays on. See `learner.cloning_failures`."""
    sampling: Literal["learnable", "uniform"] = "learnable"
    """How the tasks of online episodes are drawn: `learnable`: families and tasks in proportion to the variance p(1-p) of
    their outcomes, new tasks first; `uniform`: every family is equally likely, and none of its tasks comes again before all
    others came."""
    revisit_share: Annotated[float, Field(ge=0, lt=1)] = 0.1
    """Share of groups that use tasks of earlier phases, in a phase with tasks of its own."""

    @property
    def members(self) -> int:
        """Episodes in a group, continuations included."""
        return self.group_size + self.branches * self.branch_steps


class EvaluationSettings(Section):
    """Evaluation during the run: its policy's success on held-out tasks, which are never trained on (docs/evaluation.md)."""

    every: Annotated[int, Field(ge=0, le=1_000_000)] = 0
    """Policy versions between two evaluations. The version that the run begins with is the first; a run with a goal also
    evaluates its last. 0: no evaluations."""
    episodes: Annotated[int, Field(ge=1, le=4096)] = 64
    """Held-out tasks, the same at every evaluation; each is played once at every temperature."""
    families: tuple[str, ...] = ()
    """Task families, as `store/find_price`; empty: those of the curriculum, or an environment's own test families."""
    temperatures: Annotated[tuple[Literal["greedy", "training"], ...], Field(min_length=1)] = (
        "greedy",
        "training",
    )
    """Temperatures of sampling: `greedy`: 0; `training`: `actors.temperature`."""
    max_running: Annotated[int, Field(ge=1, le=1_000_000)] = 16
    """Maximum evaluation episodes requested and not yet ended, in addition to `curriculum.max_running`."""
    final_wait_s: Seconds = 600.0
    """Time that the end of a run with a goal waits for the evaluation of its last version; then it ends without it."""


class EvolutionSettings(Section):
    """Task generation from failed tasks, phase by phase (WebRL). `learner.phase_episodes` is the length of a phase."""

    generator: Literal["", "embedded", "endpoint"] = ""
    """Task generator: `embedded`: varies goals by the site's own data; `endpoint`: a prompted model, whose goals are
    text, so the first judge must be able to judge any text goal; empty: every phase uses the settings' tasks."""
    tasks_per_phase: Annotated[int, Field(ge=1, le=1_000_000)] = 64
    """Tasks to admit in each phase after the first."""
    valued_by: Literal["critic", "orm"] = "critic"
    """Model that estimates the value of a task's first state, with its weights at the start of the phase: `critic`, if one
    is trained; `orm`: P(YES) of the outcome reward model (WebRL before it has a critic)."""
    value_low: Annotated[float, Field(ge=0, le=1)] = 0.05
    """Minimum value with which a task is admitted."""
    value_high: Annotated[float, Field(ge=0, le=1)] = 0.75
    """Maximum value with which a task is admitted."""
    feasibility: Literal["rules", "endpoint", "none"] = "rules"
    """Check that a generated task is feasible: `rules`: by the site's own data; `endpoint`: by a prompted model, which also
    checks goals that are text; `none`: no check."""


class ScaffoldSettings(Section):
    """A scaffold around the policy: the states of a site, with instruction and allowed actions for each (LASER)."""

    states: str = ""
    """State files: `laser`: the shipped ones, at most one per environment; `laser/2`: the same, but in the store an episode
    ends with "done" only after a confirmation; or the path of one; empty: no scaffold. Pages in no state, and sites without a
    file, are unaffected."""
    shown: Literal["nothing", "instruction", "layout"] = "instruction"
    """What prompts show of a page's state: nothing, its instruction, or its instruction and the layout of its pages."""
    constrained: bool = True
    """Whether answers are constrained to the state's actions; otherwise the scaffold only shows the state."""
    stages: Literal[1, 2] = 2
    """Stages of a constrained answer: 1: the action at once, in the form of demonstrations; 2: a free rationale, then the
    action."""
    memory: bool = True
    """Whether viewed candidates are remembered."""
    backup_at: Annotated[int, Field(ge=0)] = 2
    """Steps before an episode's limit at which the best remembered candidate is chosen, if the search is not finished (LASER:
    2, at 13 of 15); 0: never. The choice is a constrained answer."""


class PolicySettings(Section):
    """The policy: the model that acts and learns."""

    base: str = "base"
    """Folder of a Hugging Face causal model, or `base`: the small policy that ships with Hindcast."""
    engine: str = "in_process"
    """Where training episodes are sampled: in each actor, on vLLM servers (`vllm`, docs/vllm.md), or by a plugin of another
    package, by its name or as `module:object` (docs/plugins.md)."""
    options: dict[str, Any] = Field(default={})
    """Options of an engine plugin, by name; the plugin declares them."""
    threads: Threads = 1
    """Threads of an actor's engine."""
    device: Annotated[Device, Formerly(value="cpu")] = "auto"
    """Device of models that are computed in process: the policy of an actor or an evaluation, the models of judges and
    relabelers, and `hindcast replay sampling`. Each process has a float32 copy of its model. `cpu`, `cuda`, or `auto`: with
    `engine = "in_process"` a GPU if there is one; with other engines the CPU, since the GPUs are the servers'."""
    max_batch: Annotated[int, Field(ge=1, le=65_536)] = 32
    """Maximum requests in one forward pass."""

    @property
    def model_device(self) -> Device:
        """`device`, with what `auto` is under the run's engine."""
        return "cpu" if self.device == "auto" and self.engine != "in_process" else self.device


class JudgeSettings(Section):
    """Judges and their verdicts."""

    judges: tuple[str, ...] = ("rules",)
    """Judges of every episode; training uses the verdicts of the first. One may be a plugin, by its name or as `module:object`
    (docs/plugins.md)."""
    options: dict[str, dict[str, Any]] = Field(default={})
    """Options of judge plugins, by the judge's name: `{judge={key=value}}` (docs/plugins.md)."""
    timeout_s: Seconds = 30.0
    """Time limit of one verdict, after which the episode is undecided."""
    orm_threshold: Annotated[float, Field(gt=0, lt=1)] = 0.5
    """Minimum P(YES) with which the judges `orm` and `webrl_orm` call an episode a success."""
    orm_prompt_tokens: Tokens = 1024
    """Maximum prompt tokens of the judge `orm`; the page is cut to fit, never the question."""
    webrl_orm: str = ""
    """Folder of WebRL's published outcome reward model, for the judge `webrl_orm` (docs/planners/orm.md)."""
    webrl_orm_server: str = ""
    """Address of a vLLM server that serves this model, as `http://10.0.0.5:8000`; then only the folder's tokenizer is read.
    Empty: the judge runs the model in its own process."""
    webrl_orm_tokens: Annotated[int, Field(ge=512, le=100_000)] = 16384
    """Maximum prompt tokens of the judge `webrl_orm` (16384 as released); the page is cut to fit."""


class RelabelerSettings(Section):
    """Hindsight relabeling: finds the goals that episodes achieved, independent of their instruction."""

    kind: str = ""
    """Relabeler: `rules`: by the embedded store's own data; `endpoint`: a prompted model; `learned`: a model that the run
    trains (`learner.relabeler_every`); or a plugin of another package, by its name or as `module:object`
    (docs/plugins.md); empty: none."""
    options: dict[str, Any] = Field(default={})
    """Options of a relabeler plugin, by name; the plugin declares them."""
    goals: Annotated[int, Field(ge=1, le=16)] = 8
    """Maximum goals of one episode."""
    families: Literal["all", "run"] = "all"
    """Families of the goals: `all`, or those of the run's own tasks (`curriculum.tasks`, else `curriculum.families`, as the
    run started; none named: all). Other goals are dropped."""
    timeout_s: Seconds = 60.0
    """Time limit of relabeling one episode, after which it is tried again later."""
    teacher: Literal["", "rules"] = ""
    """Goals that `learned` is trained to name: `rules`: those that `rules` finds in any episode; empty: the instructions of
    successful episodes."""
    prompt_tokens: Tokens = 1024
    """Maximum prompt tokens of `learned`; the page is cut to fit."""
    answer_tokens: Tokens = 192
    """Maximum tokens that `learned` writes."""


class LearnerSettings(ComputingSettings):
    """Algorithm, batches, optimizer and auxiliary models."""

    algorithm: str = "grpo"
    """`grpo`: M-GRPO of WebAgent-R1, and its variants `dr_grpo`, `gspo`, `cispo` and `dapo` (docs/recipes.md); `cloning`: cross-entropy on demonstrations and successes; `sft`: on demonstrations
    alone; `filtered_bc`: on the run's best episodes; `self_imitation`: on successes where the policy does not always
    succeed; `dpo`: demonstrations preferred to failures at the same task; in phases, with a critic: `webrl`, `reinforce`
    (WebRL without its KL), `awr`, `digirl`; `hsl`: hindsight supervised learning, on the goals that episodes achieved
    according to a relabeler; or a plugin of another package, by its name or as `module:object` (docs/plugins.md)."""
    options: dict[str, Any] = Field(default={})
    """Options of the algorithm, as `learner.options.clip_low`; each algorithm declares its own."""
    cloning_updates: Annotated[int, Field(ge=0)] = 0
    """Minimum number of initial `sft` updates on demonstrations before the algorithm takes over. The resulting policy is the KL
    reference."""
    cloning_rate: Annotated[float, Field(ge=0)] = 0.0
    """Learning rate of AdamW during the initial cloning; 0: `learning_rate`."""
    loss_mean: LossMean = "nested"
    """Mean of the loss: `nested`: M-GRPO's three nested means (WebAgent-R1's paper); `token`: over all tokens (its released
    code); `episode`: over each episode's tokens, then over episodes (ARPO's released code). Variants of GRPO have the mean of
    their paper."""
    correction: Literal["none", "truncated", "decoupled", "icepop", "masked"] = "decoupled"
    """Off-policy correction (importance weights) of online episodes: `core.rl.importance_weights`."""
    ratio_cap: Annotated[float, Field(gt=1)] = 2.0
    """Upper bound of the ratio of proximal to behaviour policy (`truncated`, `decoupled`)."""
    icepop_alpha: Annotated[float, Field(ge=0, le=1)] = 0.5
    """Lower bound of that ratio, below which a token is left out (`icepop`)."""
    icepop_beta: Annotated[float, Field(ge=1)] = 5.0
    """Upper bound of that ratio, above which a token is left out (`icepop`)."""
    mask_difference: Annotated[float, Field(gt=0, le=1)] = 0.3
    """Change of a token's probability above which it is left out (`masked`)."""
    minibatches: Count = 2
    """Updates from one batch in each epoch."""
    cloning_minibatches: Annotated[int, Field(ge=0)] = 0
    """Updates from one batch of `cloning` or `sft`, initial cloning included; 0: `minibatches`."""
    fresh_optimizer: bool = False
    """Whether AdamW's moments and the warm-up of the learning rate begin anew where another algorithm takes over from
    cloning: the gradients of imitation say nothing about those that follow."""
    epochs: Count = 1
    """Passes of `grpo` and its variants over one batch; the clip bounds the total change."""
    phase_episodes: Annotated[int, Field(ge=0)] = 0
    """Decided online episodes in one phase. A phase of the curriculum ends with the weights of the next batch; `webrl`,
    `reinforce`, `awr` and `digirl` train once per phase. 0: the run is one phase, and those four cannot train."""
    critic_heads: Literal["scalar", "double"] = "scalar"
    """Heads of the critic: `scalar`: one logit; `double`: two heads of two classes, of which the lower value counts, trained
    on next states, too (as WebRL and DigiRL were released). Fixed at the critic's first batch."""
    critic_epochs: Count = 2
    """Passes of the critic over a phase, before the policy's."""
    critic_learning_rate: Annotated[float, Field(gt=0)] = 1e-4
    """Constant learning rate of the critic's AdamW."""
    critic_head_rate: Annotated[float, Field(ge=0)] = 0.0
    """That of the critic's head, which begins at zero; 0: `critic_learning_rate`."""
    critic_from: Literal["base", "policy"] = "base"
    """Weights that the critic begins with at its first batch: the base policy's, or those of the policy then (WebRL: the
    cloned one). Fixed from then on."""
    critic_replay: bool = True
    """Whether the critic also trains on replayed episodes (WebRL's ablation: only on the phase's own)."""
    loss_on: Literal["all", "answer"] = "all"
    """Tokens of an answer with a loss: all, or those after its thought (`actors.answer_format = "thinking"`). The loss is
    normalized by all tokens in either case."""
    max_staleness: Annotated[int, Field(ge=0)] = 2
    """Maximum staleness eta: how many versions an online episode may be behind the policy that is trained on it."""
    learning_rate: Annotated[float, Field(gt=0)] = 2e-5
    """Learning rate of AdamW, constant after the warm-up."""
    warmup_updates: Annotated[int, Field(ge=0)] = 5
    """Updates of the learning rate's warm-up."""
    weight_decay: Annotated[float, Field(ge=0)] = 0.0
    """Weight decay of AdamW."""
    max_gradient_norm: Annotated[float, Field(gt=0)] = 1.0
    """Maximum norm of the gradient; larger gradients are scaled down to it."""
    cloning_batch: Count = 64
    """Minimum number of samples in one batch of cloning; a batch has whole episodes. It is smaller if `sft`, or a run's initial
    cloning, has fewer demonstrations in all."""
    cloning_epochs: Count = 4
    """Maximum batches of cloning that contain the same episode."""
    cloning_failures: bool = False
    """Whether `cloning` and `sft`, initial cloning included, imitate demonstrations that failed, too: behaviour cloning on
    unfiltered demonstrations. Nothing else imitates them."""
    orm_every: Annotated[int, Field(ge=0)] = 0
    """Newly labeled episodes after which the outcome reward model (judge `orm`) is trained on a batch; 0: never."""
    orm_truth: str = "rules"
    """Judge whose verdicts are the labels of the outcome reward model."""
    orm_epochs: Count = 4
    """Approximate number of passes of the outcome reward model over a labeled episode; the rarer outcome gets more."""
    orm_batch: Annotated[int, Field(ge=2, multiple_of=2)] = 16
    """Episodes in one update of the outcome reward model, half of them successes."""
    orm_rate: Annotated[float, Field(gt=0)] = 5e-4
    """Learning rate of the outcome reward model's AdamW, constant after the warm-up."""
    orm_memory: Count = 512
    """Number of latest labeled episodes of each outcome that are kept to train the outcome reward model."""
    orm_held_out: Annotated[float, Field(ge=0, lt=1)] = 0.2
    """Share of tasks held out from the outcome reward model's training, to measure its accuracy."""
    relabeler_every: Annotated[int, Field(ge=0)] = 0
    """New training examples after which the model of the relabeler `learned` is trained on a batch; 0: never."""
    relabeler_epochs: Count = 4
    """Approximate number of passes of the relabeler over an example."""
    relabeler_batch: Count = 16
    """Examples in one update of the relabeler."""
    relabeler_rate: Annotated[float, Field(gt=0)] = 1e-3
    """Learning rate of the relabeler's AdamW, constant after the warm-up."""
    relabeler_memory: Count = 1024
    """Number of latest examples that are kept to train the relabeler."""
    relabeler_held_out: Annotated[float, Field(ge=0, lt=1)] = 0.2
    """Share of tasks held out from the relabeler's training, to measure its accuracy."""
    tokens_per_forward: Count = 8192
    """Maximum tokens, including padding, in one forward pass."""
    threads: Threads = 1
    """Threads of the learner; equal bits need an equal number."""
    batch_wait_s: Seconds = 600.0
    """Time without a batch after which the learner records that it is waiting."""
    checkpoint_every: Annotated[int, Field(ge=0, le=2**31 - 1), Formerly(value=1)] = 0
    """Batches between two checkpoints; 0: by the model's size, 1 for each 400 MB of base weights, 10 at most; with an adapter
    1."""
    keep_checkpoints: Count = 2
    """Number of latest checkpoints that are kept."""
    keep_weights: Count = 4
    """Number of latest weight versions that are kept, in addition to those of `keep_weights_every`."""
    keep_weights_every: Count = 10
    """Interval, in versions, at which weights are kept for evaluation."""


LEASE_MARGIN_S = 30.0
"""How much longer than its time limit a started episode keeps its lease."""


class Settings(Section):
    """All settings of a run."""

    run: RunSettings = RunSettings()
    log: LogSettings = LogSettings()
    sites: SiteSettings = SiteSettings()
    web: WebSettings = WebSettings()
    curriculum: CurriculumSettings = CurriculumSettings()
    evaluation: EvaluationSettings = EvaluationSettings()
    evolution: EvolutionSettings = EvolutionSettings()
    actors: ActorSettings = ActorSettings()
    scaffold: ScaffoldSettings = ScaffoldSettings()
    policy: PolicySettings = PolicySettings()
    vllm: VllmSettings = VllmSettings()
    judge: JudgeSettings = JudgeSettings()
    relabeler: RelabelerSettings = RelabelerSettings()
    endpoint: EndpointSettings = EndpointSettings()
    learner: LearnerSettings = LearnerSettings()
    storage: StorageSettings = StorageSettings()
    telemetry: TelemetrySettings = TelemetrySettings()

    @property
    def episode_lease_s(self) -> float:
        """Lease of a started episode, in seconds: its actor, if alive, ends it within this time."""
        return self.curriculum.lease_s or self.actors.episode_timeout_s + LEASE_MARGIN_S

    @property
    def request_lease_s(self) -> float:
        """Lease of a request that no actor has started, in seconds: one actor begins it within this time.

        Online requests and those of evaluations wait in one queue; an actor plays `actors.contexts` of them at a time.
        """
        requests = self.curriculum.max_running + self.evaluation.max_running
        rounds = 1 if self.curriculum.lease_s else ceil(requests / self.actors.contexts)
        return rounds * self.episode_lease_s
