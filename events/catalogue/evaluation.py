"""Facts of evaluations during the run: what one plays, and what came of it."""

import msgspec

from hindcast.events.envelope import Fact
from hindcast.events.registry import fact
from hindcast.events.subjects import EVALUATION


@fact("evaluation.started", subject=EVALUATION, roles="curriculum", refs={"version": "policy"})
class EvaluationStarted(Fact, frozen=True, kw_only=True):
    """An evaluation of the policy started: every task is played once at every temperature, by episodes of origin `evaluation`.

    At most one evaluation is open, so the episodes of that origin up to its `evaluation.finished` are its own.
    """

    number: int
    """Evaluations of the run before it."""
    version: int
    """Policy version that is evaluated: the least one that may play its episodes."""
    tasks: tuple[str, ...]
    """Names of the held-out tasks, `environment/family:seed`."""
    temperatures: tuple[float, ...]
    """Temperatures of sampling; 0 is greedy."""
    skipped: tuple[int, ...] = ()
    """Versions that were due since the one before, and are not evaluated because that one was still going on."""


class EvaluationResult(msgspec.Struct, frozen=True, kw_only=True):
    """Outcomes of one family's tasks at one temperature."""

    temperature: float
    family: str
    """Environment and family, `store/find_price`."""
    successes: int
    failures: int
    lost: int
    """Tasks without a success or failure: their episodes broke twice, were cancelled, or the judge was undecided."""
    reward: float
    """Sum of the rewards of successes and failures."""


@fact("evaluation.finished", subject=EVALUATION, roles="curriculum", refs={"version": "policy"})
class EvaluationFinished(Fact, frozen=True, kw_only=True):
    """The evaluation that was open is over."""

    number: int
    version: int
    """As in its `evaluation.started`."""
    version_low: int | None
    """Lowest policy version that sampled a token of its episodes; None if none ended."""
    version_high: int | None
    results: tuple[EvaluationResult, ...]
    """One for each temperature and family, in the order of the temperatures and of the families' first tasks."""
    seconds: float
    """Time from its start to its last verdict, by the clocks of the processes that recorded them."""
    share: float
    """Share of evaluations in all episodes that the run has requested so far."""
    reason: str = ""
    """Why it ended before every task had an outcome; empty: each has one."""
