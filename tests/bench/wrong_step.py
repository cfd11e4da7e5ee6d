"""Does `hindcast branch` name the step that lost an episode? Measured on episodes whose wrong step is known by construction.

A scripted demonstrator fills in `bench.order_form`, errs once, and continues sensibly. The shipped policy, which never saw the form,
continues each episode from each of its steps; `branch` says where its success falls most.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from bench.order_form import ENVIRONMENT, wrong_step
from hindcast.app.evaluation.branches import Branches, branch
from hindcast.app.evaluation.evaluation import plan_requests, play
from hindcast.app.runs.open_log import open_log
from hindcast.app.runs.runs import RunHandle, create_run
from hindcast.app.settings.configuration import resolve
from hindcast.core.models.folders import base_policy_folder
from hindcast.core.rl.statistics import Interval, wilson
from hindcast.core.settings.schema import Settings

NAME = f"{ENVIRONMENT.__module__}:ENVIRONMENT"
OVERRIDES = [f"curriculum.environments=['{NAME}']", "curriculum.families=[]", "evaluation.every=0"]


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """One episode, and what its continuations say."""

    episode: str
    wrong_step: int
    """Where its demonstrator erred."""
    last_step: int
    branches: Branches

    @property
    def named(self) -> int | None:
        """The step with the largest fall; None: there is no fall."""
        return None if self.branches.fall is None else self.branches.fall.step

    @property
    def is_right(self) -> bool:
        """Whether the step with the largest fall is the wrong one."""
        return self.named == self.wrong_step


class Naming(msgspec.Struct, frozen=True, kw_only=True):
    """How often the wrong step was named."""

    continuations: int
    """From each step."""
    cases: list[Case]

    @property
    def right(self) -> Interval:
        """Share of the cases whose wrong step is named, with its 95 % interval."""
        return wilson(sum(case.is_right for case in self.cases), len(self.cases))

    @property
    def sure(self) -> list[Case]:
        """Cases in which the fall is too large for chance."""
        return [case for case in self.cases if case.branches.fall and case.branches.fall.is_sure]


async def measure_naming(
    home: Path,
    *,
    episodes: int,
    each: int,
    said: Callable[[str], None] = lambda _line: None,
    overrides: tuple[str, ...] = (),
) -> Naming:
    """Record erring demonstrations in a run of its own in `home`, and continue each `each` times from each step."""
    settings = resolve(environment={}, folder=home, overrides=[*OVERRIDES, *overrides])
    parent = create_run(settings, home=home, name="forms")
    await open_log(parent, None)
    recorded = await _record(parent, parent.settings, episodes=episodes)
    cases = []
    for name, seed in recorded:
        found = await branch(parent, name, steps=(), each=each, version=None, name=None)
        case = Case(
            episode=name, wrong_step=wrong_step(seed), last_step=len(found.values) - 1, branches=found
        )
        said(f"{name}: step {case.wrong_step} is wrong, {case.named} is named")
        cases.append(case)
    return Naming(continuations=each, cases=cases)


async def _record(run: RunHandle, settings: Settings, *, episodes: int) -> list[tuple[str, int]]:
    """Play the demonstrations; their names and seeds."""
    requests = [
        msgspec.structs.replace(one, origin="demonstration")
        for one in plan_requests(
            ENVIRONMENT.tasks(NAME, settings),
            episodes=episodes,
            families=(),
            temperature=1.0,
            lease_s=settings.curriculum.lease_s,
            first_seed=0,
        )
    ]
    tally = await play(requests, folder=base_policy_folder(), weights=None, settings=settings, run=run)
    outcomes = [tally.outcome_of(one.episode) for one in requests]
    assert set(outcomes) == {"failure"}, f"an erring demonstration did not fail: {outcomes}"
    return [(one.episode, one.task.seed) for one in requests]


def value_rows(naming: Naming) -> Iterator[tuple[object, ...]]:
    """One row per case: wrong step, named step, whether that is sure, and the successes from each step."""
    for case in naming.cases:
        fall = case.branches.fall
        yield (
            case.episode,
            case.wrong_step,
            "-" if case.named is None else case.named,
            "-" if fall is None else f"{fall.difference:+.2f} [{fall.low:+.2f}, {fall.high:+.2f}]",
            " ".join(f"{one.successes}/{one.continuations}" for one in case.branches.values),
        )
