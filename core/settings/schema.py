"""The settings schema: sections named as the folders, every field documented, unknown keys refused.

Values come from defaults, the recipe, the user's TOML, `--set`, in that order; `app.settings.configuration` merges them and
remembers where each came from. The resolved settings are the run's first event.
"""

from typing import Annotated, Any, Literal

from pydantic import Field

from hindcast.core.rl.advantages import EPSILON, Deviation
from hindcast.core.rl.loss_normalization import LossMean
from hindcast.core.settings.actors import ActorSettings as ActorSettings
from hindcast.core.settings.browsergym import BrowsergymSettings
from hindcast.core.settings.computing import ComputingSettings
from hindcast.core.settings.endpoint import EndpointSettings as EndpointSettings
from hindcast.core.settings.operation import LogSettings as LogSettings
from hindcast.core.settings.operation import StorageSettings as StorageSettings
from hindcast.core.settings.operation import TelemetrySettings as TelemetrySettings
from hindcast.core.settings.section import Count, Seconds, Section, Threads, Tokens
from hindcast.core.settings.vllm import VllmSettings as VllmSettings
from hindcast.core.settings.webarena import WebArenaSettings
from hindcast.core.settings.webshop import WebshopSettings


class RunSettings(Section):
    """The run as a whole."""

    seed: int = 1
    """Every other seed derives from this one."""


class SiteSettings(WebArenaSettings, WebshopSettings, BrowsergymSettings):
    """The embedded store, and where WebArena and WebShop are."""

    products: Annotated[int, Field(ge=20, le=100_000)] = 400
    """Products in the seeded catalogue."""
    catalogue_seed: int = 7
    """Fixes the catalogue."""
    port: Annotated[int, Field(ge=0, le=65535)] = 0
    """Port of the store on loopback; 0: any free one, kept across restarts."""


class WebSettings(Section):
    """Sites of the user's own (environment `web`, docs/your-site.md)."""

    file: str = ""
    """Task file, TOML or JSONL, that `tasks` were read from; whoever names one brings its tasks. Read once: a run keeps what
    stood in it then, and neither a resume nor a fork opens it again."""
    tasks: tuple[dict[str, Any], ...] = ()
    """The tasks, each whole."""


class CurriculumSettings(Section):
    """What is attempted."""

    environments: tuple[str, ...] = ("store", "miniwob")
    """Sites that tasks come from."""
    families: tuple[str, ...] = ()
    """Task families, as `store/find_price`; empty: the recipe's default set of every environment."""
    tasks: tuple[str, ...] = ()
    """Single tasks by family and seed, as `store/find_price:3`, instead of `families`; `hindcast task select` finds those
    that can be learned; empty: the families' tasks."""
    task_pool: Annotated[int, Field(ge=1, le=1_000_000)] = 64
    """Distinct tasks per family that the run draws from."""
    group_size: Annotated[int, Field(ge=1, le=65_536)] = 8
    """Episodes of one task that are compared with each other."""
    max_running: Annotated[int, Field(ge=1, le=1_000_000)] = 32
    """Episodes requested and not yet terminal, at most."""
    lease_s: Seconds = 180.0
    """An episode that has not ended this long after it started, or was requested and not started, is abandoned."""
    max_attempts: Annotated[int, Field(ge=1, le=1_000_000)] = 3
    """Tries of one group member before it is given up."""
    demonstrations: Annotated[int, Field(ge=0, le=100_000_000)] = 0
    """Episodes by the sites' scripted demonstrators that the run begins with."""
    revisit_share: Annotated[float, Field(ge=0, lt=1)] = 0.1
    """Share of the groups of a phase with tasks of its own that draw from the tasks of earlier phases instead."""


class EvolutionSettings(Section):
    """Tasks made from failed ones, phase by phase (WebRL). How long a phase is: `learner.phase_episodes`."""

    generator: Literal["", "embedded", "endpoint"] = ""
    """What makes them: `embedded` varies goals by what the site knows; `endpoint`: a model that is asked, in words, so that
    the first judge must be one that reads; empty: every phase draws from the settings' tasks."""
    tasks_per_phase: Annotated[int, Field(ge=1, le=1_000_000)] = 64
    """Tasks to admit in each phase after the first."""
    valued_by: Literal["critic", "orm"] = "critic"
    """Which model of the run values a task's first state, as of the phase's start: the critic, where one is trained, or the
    outcome reward model's P(YES) (WebRL, while there is no critic)."""
    value_low: Annotated[float, Field(ge=0, le=1)] = 0.05
    """Least such value with which a task is admitted."""
    value_high: Annotated[float, Field(ge=0, le=1)] = 0.75
    """Highest such value."""
    feasibility: Literal["rules", "endpoint", "none"] = "rules"
    """Who must say that a generated task can be done: the site's own truth; a model that is asked, which reads goals in words
    too (`endpoint`); nobody."""


class ScaffoldSettings(Section):
    """A scaffold round the policy: states of a site, what is said and what may be done in each (LASER)."""

    states: str = ""
    """State files: `laser` for those that ship, one per environment that has one; or the path of one; empty: no scaffold.
    On a page in no state, and on sites without a file, nothing is changed."""
    shown: Literal["nothing", "instruction", "layout"] = "instruction"
    """What prompts say of a page's state: its instruction, and what such pages look like."""
    constrained: bool = True
    """Whether only the state's actions can be answered; else the scaffold only says what it sees."""
    stages: Literal[1, 2] = 2
    """How a constrained answer comes about: the action at once, in the form of demonstrations, or a rationale in free words
    and then the action chosen from it."""
    memory: bool = True
    """Whether candidates that were looked at are remembered."""
    backup_at: Annotated[int, Field(ge=0)] = 2
    """Steps before an episode's limit at which the best remembered candidate is chosen, if one is still looked for (LASER:
    2, at 13 of 15); 0: never. A choice is a constrained answer."""


class PolicySettings(Section):
    """The model that acts and learns."""

    base: str = "base"
    """Folder of a Hugging Face causal model, or `base`: the small policy that ships with Hindcast."""
    engine: Literal["in_process", "vllm"] = "in_process"
    """Where training episodes are sampled: in each actor, or on vLLM servers (`vllm`, docs/vllm.md)."""
    threads: Threads = 1
    """Threads of an actor's engine."""
    max_batch: Annotated[int, Field(ge=1, le=65_536)] = 32
    """Requests in one forward pass."""


class JudgeSettings(Section):
    """Verdicts."""

    judges: tuple[str, ...] = ("rules",)
    """Judges that look at every episode; training uses the first."""
    timeout_s: Seconds = 30.0
    """One verdict; beyond it the episode is undecided."""
    orm_threshold: Annotated[float, Field(gt=0, lt=1)] = 0.5
    """P(YES) from which on the judges `orm` and `webrl_orm` call an episode a success."""
    orm_prompt_tokens: Tokens = 1024
    """Length of what the judge `orm` reads; the page is cut to fit, never the question."""
    webrl_orm: str = ""
    """Folder of WebRL's published outcome reward model, for the judge `webrl_orm` (docs/planners/orm.md)."""
    webrl_orm_server: str = ""
    """Address of a vLLM server that serves it, as `http://10.0.0.5:8000`; of the folder only the tokenizer is read then.
    Empty: the judge computes it in its own process."""
    webrl_orm_tokens: Annotated[int, Field(ge=512, le=100_000)] = 16384
    """Length of what it reads (16384 as released); the page is cut to fit."""


class RelabelerSettings(Section):
    """Hindsight: the goals that episodes did achieve, whatever they were asked."""

    kind: Literal["", "rules", "endpoint", "learned"] = ""
    """`rules`: by what the embedded store knows of itself; `endpoint`: in the words of a model that is asked; `learned`: in
    those of a model that the run itself trains (`learner.relabeler_every`); empty: nothing is relabelled."""
    goals: Annotated[int, Field(ge=1, le=16)] = 8
    """Goals of one episode, at most."""
    timeout_s: Seconds = 60.0
    """One relabelling; beyond it the episode is tried again later."""
    teacher: Literal["", "rules"] = ""
    """Whose goals `learned` learns to name: those that `rules` finds in any episode; empty: of each success the goal that it
    was asked for."""
    prompt_tokens: Tokens = 1024
    """Length of what `learned` reads; the page is cut to fit."""
    answer_tokens: Tokens = 192
    """Length of what `learned` writes, at most."""


class LearnerSettings(ComputingSettings):
    """Training."""

    algorithm: str = "grpo"
    """`grpo`: M-GRPO of WebAgent-R1; `cloning`: cross-entropy on demonstrations and successes; `sft`: on demonstrations
    alone; `filtered_bc`: on the run's best episodes; `self_imitation`: on successes where the policy does not always
    succeed; `dpo`: demonstrations preferred to failures at the same task; in phases, with a critic: `webrl`, `reinforce`
    (WebRL without its KL), `awr`, `digirl`; `hsl`: hindsight supervised learning, on what a relabeler says that episodes
    achieved; or a plugin of another package, by its name or as `module:object` (docs/plugins.md)."""
    options: dict[str, Any] = Field(default={})
    """Settings of an algorithm that another package brings, by name; it says which there are."""
    cloning_updates: Annotated[int, Field(ge=0)] = 0
    """Updates of `sft` on demonstrations that the run begins with, at least, before the algorithm takes over: then the
    KL reference is what they led to."""
    cloning_rate: Annotated[float, Field(ge=0)] = 0.0
    """AdamW's rate during those; 0: `learning_rate`."""
    loss_mean: LossMean = "nested"
    """M-GRPO's three nested means (WebAgent-R1's paper), one mean over all tokens (its released code), or a mean over each
    episode's tokens, then over episodes (ARPO's released code)."""
    group_deviation: Deviation = "population"
    """Deviation by which `grpo` divides a group's rewards: over N, or `sample`, over N - 1 (torch.std, in the released code
    of WebAgent-R1 and ARPO). WebAgent-R1's paper does not say which."""
    group_epsilon: Annotated[float, Field(gt=0)] = EPSILON
    """Added to that deviation: 1e-4 in WebAgent-R1, 1e-6 in ARPO's released code."""
    correction: Literal["none", "truncated", "decoupled", "masked"] = "decoupled"
    """Off-policy correction of fresh online episodes."""
    ratio_cap: Annotated[float, Field(gt=1)] = 2.0
    """Upper bound of the proximal-to-behaviour ratio (`truncated`, `decoupled`)."""
    mask_difference: Annotated[float, Field(gt=0, le=1)] = 0.3
    """Tokens whose probability moved more than this are left out (`masked`)."""
    clip_low: Annotated[float, Field(gt=0, lt=1)] = 0.2
    """Lower clip of the ratio."""
    clip_high: Annotated[float, Field(gt=0)] = 0.28
    """Upper clip of the ratio; higher than the lower one lets unlikely tokens rise faster than likely ones fall (ARPO)."""
    dual_clip: Annotated[float, Field(ge=0)] = 0.0
    """Most that one token of a negative advantage weighs, times that advantage; above 1 (ARPO's option: 3); 0: no bound."""
    format_penalty: Annotated[float, Field(ge=0)] = 0.0
    """Taken once from the reward of an episode with an unparsable action, in `grpo` (ARPO: 1 in the paper, .5 as
    released); 0: none."""
    success_replay: Literal["off", "random", "first"] = "off"
    """Where all of a group failed, a stored success of its task stands in for one member of `grpo`: a random one (ARPO's
    paper) or the first (as released)."""
    replay_memory: Count = 8
    """Successes stored per task for `success_replay`, the latest ones."""
    replay_correction: Literal["behaviour", "recomputed"] = "behaviour"
    """What a replayed success is compared with: its own log-probabilities under `correction`, or recomputed ones, so that
    its ratio begins at 1 (as ARPO was released)."""
    kl_coefficient: Annotated[float, Field(ge=0)] = 0.01
    """Weight of the k3 estimate of KL to the reference policy."""
    cloning_coefficient: Annotated[float, Field(ge=0)] = 0.0
    """Weight of a cloning term on the batch's successful steps."""
    rehearsal_episodes: Annotated[int, Field(ge=0)] = 0
    """Remembered successes in each mini-batch of `grpo`, imitated so that what is mastered stays; 0: none."""
    rehearsal_coefficient: Annotated[float, Field(gt=0)] = 0.5
    """Weight of the cloning term on remembered successes."""
    rehearsal_memory: Count = 16
    """Successes remembered per task family, the latest ones."""
    group_batch: Count = 4
    """Informative groups in one batch."""
    minibatches: Count = 2
    """Updates computed from one batch in each of its epochs."""
    epochs: Count = 1
    """Times `grpo` goes through a batch; the clip bounds how far it gets from where the batch began."""
    phase_episodes: Annotated[int, Field(ge=0)] = 0
    """Decided online episodes in one phase: of the curriculum, which ends with the weights of the next batch, and of `webrl`,
    `reinforce`, `awr` and `digirl`, which train on them then; 0: the run is one phase, and those cannot train."""
    loss: Literal["paper", "released"] = "paper"
    """WebRL's actor loss: the squared error of the paper, or the smooth L1 on good steps alone of the released code."""
    beta: Annotated[float, Field(gt=0)] = 0.3
    """Of the paper's loss of `webrl`: how much log(pi/pi_ref) stands for an advantage of 1. Of `awr`: what an advantage is
    divided by before the exponential."""
    advantage: Literal["paper", "released"] = "paper"
    """How `webrl`, `reinforce` and `awr` make advantages of values: one step and the whole return blended (WebRL's paper),
    or +1 and -.6 (WebRL as released). `digirl` has its own."""
    advantage_blend: Annotated[float, Field(ge=0, le=1)] = 0.5
    """lambda: the weight of the one-step part of the paper's advantage."""
    discount: Annotated[float, Field(gt=0, le=1)] = 1.0
    """gamma of advantages (WebRL's experiments: .9, which makes early steps of long successes look bad)."""
    episode_share: Annotated[float, Field(gt=0, le=1)] = 0.1
    """Share of a batch's episodes that `digirl` keeps: those that brought most beyond the value of their first state."""
    critic_heads: Literal["scalar", "double"] = "scalar"
    """One logit per state, or two heads of two classes of which the lower counts, trained on next states, too (as WebRL and
    DigiRL were released). Fixed at the critic's first batch."""
    critic_epochs: Count = 2
    """Times the critic goes through a phase before the policy does."""
    critic_learning_rate: Annotated[float, Field(gt=0)] = 1e-4
    """AdamW's rate of the critic, constant."""
    critic_replay: bool = True
    """Whether the critic is trained on what is replayed, too (WebRL's ablation: on the phase's episodes alone)."""
    phase_replay: Literal["off", "successes", "all"] = "off"
    """Which episodes of earlier phases are replayed: of each task its first success, or its first failure, too."""
    phase_demonstrations: bool = False
    """Whether demonstrations that succeeded count as successes of earlier phases, so that the first one replays, too (as WebRL was
    released)."""
    phase_memory: Count = 512
    """Episodes of earlier phases remembered for replay, the latest ones."""
    phase_replay_ratio: Annotated[float, Field(gt=0)] = 2.0
    """Replayed steps per step of the phase's own, at most."""
    phase_window: tuple[Annotated[float, Field(gt=0, le=1)], Annotated[float, Field(gt=0, le=1)]] = (
        0.5,
        0.95,
    )
    """Replayed are steps whose action has a 1/perplexity within these bounds under the policy at the phase's start."""
    phase_window_open: bool = False
    """Whether the lower bound itself is outside, as released."""
    loss_on: Literal["all", "answer"] = "all"
    """Tokens of an answer that are trained on: all, or those after its thought (`actors.answer_format = "thinking"`).
    Counts are those of all tokens."""
    filter_episodes: Count = 64
    """The run's own episodes that `filtered_bc` takes the best of, for one batch."""
    filter_percentile: Annotated[float, Field(ge=0, le=100)] = 70.0
    """Percentile of their returns from which `filtered_bc` imitates successes."""
    filter_discount: Annotated[float, Field(gt=0, le=1)] = 0.9
    """gamma of those returns: of two successes the shorter one has the better."""
    pair_batch: Count = 16
    """Pairs in one batch of `dpo`."""
    dpo_beta: Annotated[float, Field(gt=0)] = 0.1
    """How far from the policy after cloning `dpo` may go for a preference: large is near."""
    max_staleness: Annotated[int, Field(ge=0)] = 2
    """eta: versions an online episode may be behind the policy it is trained into."""
    hsl_episodes: Count = 18
    """Episodes collected for each update of `hsl`: both judged and relabelled."""
    hsl_memory: Count = 100
    """Relabelled demonstrations remembered, the latest ones."""
    hsl_batch: Count = 16
    """Demonstrations drawn for an update of `hsl`, of each kind: relabelled ones and given ones."""
    hsl_weighting: Literal["sampling", "factor", "uniform"] = "sampling"
    """Where the weight (n/T)^alpha n of a relabelled demonstration counts, n of its T actions being relevant: when it is
    drawn, or as a factor of its loss; never both. `uniform`: nowhere (the paper's ablation)."""
    hsl_alpha: Annotated[float, Field(ge=0)] = 0.8
    """Exponent of that weight."""
    hsl_mixture: Annotated[float, Field(gt=0, le=1)] = 0.3
    """lambda: share of the relabelled demonstrations in the loss of `hsl`; the rest is the given ones'."""
    hsl_tokens: Literal["mean", "sum"] = "mean"
    """Log-probability of an action in `hsl`: mean over its tokens, or their sum."""
    hsl_mask: bool = True
    """Whether actions that are irrelevant to the goal are left out; off: the paper's ablation."""
    hsl_failures_only: bool = False
    """Whether only episodes that failed at what they were asked are learned from in hindsight (the paper's ablation)."""
    learning_rate: Annotated[float, Field(gt=0)] = 2e-5
    """AdamW's rate, constant after the warm-up."""
    warmup_updates: Annotated[int, Field(ge=0)] = 5
    """Updates over which the rate rises."""
    weight_decay: Annotated[float, Field(ge=0)] = 0.0
    """AdamW's decay."""
    max_gradient_norm: Annotated[float, Field(gt=0)] = 1.0
    """Gradients are scaled down to this norm."""
    cloning_batch: Count = 64
    """Samples in one batch of cloning, at least: whole episodes are taken. Fewer where `sft`, or the cloning that a run
    begins with, has played all its demonstrations and there are not so many."""
    cloning_epochs: Count = 4
    """Batches of cloning that one episode takes part in, at most."""
    orm_every: Annotated[int, Field(ge=0)] = 0
    """Newly labelled episodes after which the outcome reward model, the judge `orm`, is trained on a batch; 0: never."""
    orm_truth: str = "rules"
    """The judge whose verdicts it learns."""
    orm_epochs: Count = 4
    """Times that it sees a labelled episode, about; the rarer outcome more often."""
    orm_batch: Annotated[int, Field(ge=2, multiple_of=2)] = 16
    """Episodes in one of its updates, half of them successes."""
    orm_rate: Annotated[float, Field(gt=0)] = 5e-4
    """AdamW's rate of it, constant after the warm-up."""
    orm_memory: Count = 512
    """Labelled episodes of each outcome that it goes on being trained on, the latest ones."""
    orm_held_out: Annotated[float, Field(ge=0, lt=1)] = 0.2
    """Share of the tasks that it never learns from, so that its accuracy can be measured on them."""
    relabeler_every: Annotated[int, Field(ge=0)] = 0
    """New lessons after which the model of the relabeler `learned` is trained on a batch; 0: never."""
    relabeler_epochs: Count = 4
    """Times that it sees a lesson, about."""
    relabeler_batch: Count = 16
    """Lessons in one of its updates."""
    relabeler_rate: Annotated[float, Field(gt=0)] = 1e-3
    """AdamW's rate of it, constant after the warm-up."""
    relabeler_memory: Count = 1024
    """Lessons that it goes on being trained on, the latest ones."""
    relabeler_held_out: Annotated[float, Field(ge=0, lt=1)] = 0.2
    """Share of the tasks that it never learns from, so that its accuracy can be measured on them."""
    tokens_per_forward: Count = 8192
    """Padded tokens in one forward pass; samples are packed to fit."""
    threads: Threads = 1
    """Threads the learner computes with; part of what makes results bit-equal."""
    batch_wait_s: Seconds = 600.0
    """Time without a batch after which the learner records that it is waiting."""
    checkpoint_every: Count = 1
    """Batches between checkpoints."""
    keep_checkpoints: Count = 2
    """Checkpoints kept; older ones are released."""
    keep_weights: Count = 4
    """Latest weight versions kept beside every `keep_weights_every`-th."""
    keep_weights_every: Count = 10
    """Every so many-th version stays for evaluation."""


class Settings(Section):
    """All settings of a run."""

    run: RunSettings = RunSettings()
    log: LogSettings = LogSettings()
    sites: SiteSettings = SiteSettings()
    web: WebSettings = WebSettings()
    curriculum: CurriculumSettings = CurriculumSettings()
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
