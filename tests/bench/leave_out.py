"""Is `hindcast why` confirmed by leaving out what it names? Estimated pulls against policies trained without the data.

    hindcast why FAMILY          pull of each family's episodes on FAMILY, to first order
    hindcast without --plan keep the same updates less one family's episodes; both policies play the same held-out tasks of FAMILY

A pull is confirmed in its direction if success falls without what pulled it up, or rises without what pulled it down.
"""

from collections.abc import Callable

import msgspec

from hindcast.app.evaluation.effect import FamilyEffect, effect_of, held_out, play_latest
from hindcast.app.runs.explanations import parts_by_family
from hindcast.app.runs.left_out import Choice, survey
from hindcast.app.runs.runs import RunHandle, open_run
from hindcast.app.runs.why import FamilyQuestion, explain
from hindcast.app.runs.without import derive


class LeftOut(msgspec.Struct, frozen=True, kw_only=True):
    """One family that was left out: what it did by estimate, and what leaving it out did."""

    family: str
    episodes: int
    """Trained on in the run."""
    pull: float
    """Estimated change of the success rate asked about, by this family's episodes."""
    effect: FamilyEffect
    """Success without it (`derived`) against success with it (`parent`)."""

    @property
    def agrees(self) -> bool:
        """Whether leaving it out changed success against the pull."""
        return self.pull * self.effect.difference < 0

    @property
    def is_sure(self) -> bool:
        """Whether the interval of the effect leaves 0 out."""
        return not self.effect.low <= 0 <= self.effect.high


class Confirmation(msgspec.Struct, frozen=True, kw_only=True):
    """What `why` says about a family, confirmed by leave-out."""

    run: str
    family: str
    updates: int
    cases: list[LeftOut]


async def confirm(
    run: RunHandle,
    family: str,
    *,
    cases: int,
    tasks: int,
    said: Callable[[str], None] = lambda _line: None,
) -> Confirmation:
    """Leave out the `cases` families with the largest pulls on `family`, each in turn, and play `tasks` held-out tasks of it.

    Raises:
        SettingsError, NoSuchPlace, ReplayDiverged: see `explain` and `derive`.
    """
    explanation = await explain(run, FamilyQuestion(family=family), said=said)
    parts = parts_by_family(explanation.episodes)
    chosen = sorted(parts, key=lambda one: -abs(one.pull or 0.0))[:cases]
    requests = held_out(run.settings, [family], episodes=tasks)
    before = await play_latest(run, requests, run.settings)
    found = []
    for part in chosen:
        choice = Choice(families=(part.family,))
        async with run.connect_log() as log:
            surveyed = await survey(log, choice, judge="")
        derived = await derive(run, surveyed, choice, plans="keep", judge="", name=None, said=said)
        after = await play_latest(open_run(derived.run, home=run.home), requests, run.settings)
        effect = effect_of(requests, before, after, run.settings).whole
        found.append(
            LeftOut(family=part.family, episodes=part.episodes, pull=part.pull or 0.0, effect=effect)
        )
        said(
            f"{part.family}: pull {100 * found[-1].pull:+.2f}, left out {100 * effect.difference:+.1f} points"
        )
    return Confirmation(run=run.name, family=family, updates=explanation.recomputed, cases=found)
