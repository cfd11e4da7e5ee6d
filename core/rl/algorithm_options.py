"""Options that families of algorithms share, in `learner.options`: other parts of the system read them, too."""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from hindcast.core.rl.advantages import EPSILON, Deviation

Number = Annotated[int, Meta(ge=1)]
Share = Annotated[float, Meta(gt=0, le=1)]
Positive = Annotated[float, Meta(gt=0)]
NotNegative = Annotated[float, Meta(ge=0)]


class GroupOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of algorithms that compare the members of a task's group.

    The buffer, `GroupPlanner` and the curriculum honor `group_batch`, `group_filter`, `success_replay`, `replay_memory` and
    `rehearsal_memory` for every algorithm that derives from this struct and from that planner. The others are honored up to a point, and have no
    effect unless the algorithm's own planner or loss does the rest:

    - `group_deviation`, `group_epsilon`: `GroupPlanner` computes its advantages with them. A planner with advantages of its
      own must apply them itself, or has no use for them.
    - `format_penalty`: `GroupPlanner` compares rewards with it and records it as `PlannedEpisode.format_term`. A planner with
      advantages of its own must add that term to the reward.
    - `kl_coefficient`: above 0, the learner computes `SampleTerms.reference`. The loss must add the penalty.
    - `replay_correction`: the learner sets `SampleTerms.correction` by it. The loss must apply those weights, and take its
      ratio to `SampleTerms.proximal`.
    - `rehearsal_episodes`: `GroupPlanner` adds rehearsed episodes to each mini-batch. The planner must leave their advantage
      at 0, and the loss must give them a share of its cloning term.
    """

    group_batch: Number = 4
    """Groups in one batch."""
    group_filter: bool = True
    """Whether groups whose members have equal rewards are left out, and others played instead (dynamic sampling, DAPO, arXiv
    2503.14476, eq. 11). False: they count in `group_batch` with advantage 0 (plain GRPO, ARPO). A batch of such groups alone
    has no policy gradient; its updates still follow the KL penalty and AdamW's moments."""
    group_deviation: Deviation = "population"
    """Standard deviation of a group's rewards: `population`: over N; `sample`: over N - 1 (torch.std, in the released code of
    WebAgent-R1 and ARPO); `none`: advantages are not divided. WebAgent-R1's paper does not say which of the first two."""
    group_epsilon: Positive = EPSILON
    """Added to that deviation: 1e-4 in WebAgent-R1, 1e-6 in ARPO's released code."""
    kl_coefficient: NotNegative = 0.01
    """Weight of the k3 estimate of KL to the reference policy."""
    format_penalty: NotNegative = 0.0
    """Subtracted once from the reward of an episode with an unparsable action (ARPO: 1 in the paper, .5 as released); 0:
    none."""
    success_replay: Literal["off", "random", "first"] = "off"
    """If a whole group failed, a stored success of its task replaces one member: `random`: a random one (ARPO's paper);
    `first`: the first (as released)."""
    replay_memory: Number = 8
    """Latest successes stored per task for `success_replay`."""
    replay_correction: Literal["behaviour", "recomputed"] = "behaviour"
    """Old log-probabilities of a replayed success: `behaviour`: its recorded ones, under `learner.correction`; `recomputed`:
    fresh ones, so that its ratio starts at 1 (as ARPO was released)."""
    rehearsal_episodes: Annotated[int, Meta(ge=0)] = 0
    """Stored successes in each mini-batch, imitated against forgetting; 0: none."""
    rehearsal_memory: Number = 16
    """Latest successes stored per task family for rehearsal."""


class PhaseOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of algorithms that learn in phases, with a critic that is trained before the policy."""

    discount: Share = 1.0
    """gamma of advantages (WebRL's experiments: .9, which lowers the advantages of early steps in long successes)."""
    phase_replay: Literal["off", "successes", "all"] = "off"
    """Replay of earlier phases: `successes`: the first success of each task; `all`: also its first failure."""
    phase_demonstrations: bool = False
    """Whether successful demonstrations count as successes of earlier phases, so that the first phase replays, too (as WebRL
    was released)."""
    phase_memory: Number = 512
    """Latest episodes of earlier phases stored for replay."""
    phase_replay_ratio: Positive = 2.0
    """Most replayed steps per step of the phase's own."""
    phase_window: tuple[Share, Share] = (0.5, 0.95)
    """Bounds of 1/perplexity: a step is replayed if its action lies within them under the policy at the phase's start."""
    phase_window_open: bool = False
    """Whether the window excludes its lower bound, as released."""
