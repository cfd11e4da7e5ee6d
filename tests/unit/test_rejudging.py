"""Stored evidence judged again: flips, agreement, and verdicts that are appended beside those that are there."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest
from typer.testing import CliRunner

from hindcast.actors.judges.base import Judge, Verdict
from hindcast.actors.judges.judged_episode import JudgedEpisode
from hindcast.actors.judges.second_opinion import NO_VERDICT, SecondOpinion, agreement_of
from hindcast.actors.replay.recorded import EpisodeSelection
from hindcast.app.cli import app as cli
from hindcast.app.evaluation.rejudge import RejudgeReport, rejudge
from hindcast.core.domain.evidence import Judgment, Outcome
from hindcast.core.errors import JudgeUnavailable, SettingsError
from hindcast.core.rl.statistics import cohen_kappa
from hindcast.events.catalogue import EpisodeEnded, EpisodeJudged, EpisodeRequested
from hindcast.events.catalogue.verdict import JudgeIdentity
from hindcast.events.envelope import Recorded
from hindcast.events.log.reader import read
from stories.held_run import HeldRun
from stories.recorded_home import make_home
from stories.synthetic_run import RULES, a_run, recorded_run


class Saying:
    """A judge that says of every episode what it is told to say of its task's family."""

    asks_model = False

    def __init__(self, identity: JudgeIdentity, **outcomes: Outcome) -> None:
        self.identity = identity
        self._outcomes = outcomes

    async def judge(self, episode: JudgedEpisode) -> Verdict:
        task = episode.task
        outcome = self._outcomes.get(task.family.replace("-", "_"), "failure")
        if outcome == "undecided":
            raise JudgeUnavailable("the endpoint is down")
        return Verdict(
            judgment=Judgment(
                outcome=outcome, reward=float(outcome == "success"), reason=f"{task.family} {outcome}"
            )
        )


OTHER = JudgeIdentity(name="other", version="1")


async def judged_again(
    judge: Judge, wanted: EpisodeSelection | None = None
) -> tuple[RejudgeReport, list[Recorded]]:
    log, history = await recorded_run(groups=8)
    report = await rejudge(HeldRun(log), wanted or EpisodeSelection(), judge=judge)
    assert (await log.identity()).last == history[-1].position, "nothing is appended unless asked for"
    return report, history


def first_verdicts(history: Sequence[Recorded]) -> dict[str, str]:
    said: dict[str, str] = {}
    for recorded in history:
        fact = recorded.fact
        if isinstance(fact, EpisodeJudged) and fact.judge == RULES:
            said.setdefault(fact.episode, fact.judgment.outcome)
    return said


async def test_every_episode_that_left_evidence_is_judged_and_flips_are_those_whose_outcome_changed() -> None:
    report, history = await judged_again(Saying(OTHER, find_price="success"))
    old = first_verdicts(history)
    ended = {r.fact.episode for r in history if isinstance(r.fact, EpisodeEnded)}
    assert report.episodes == len(ended)
    assert {flip.episode for flip in report.flips} == {
        name
        for name in ended
        if old[name] != ("success" if family_in(history, name) == "store/find_price" else "failure")
    }
    assert all(flip.old is not None and flip.old.outcome == old[flip.episode] for flip in report.flips)
    assert report.contradictions == ()


def family_in(history: Sequence[Recorded], episode: str) -> str:
    task = next(
        r.fact.task for r in history if isinstance(r.fact, EpisodeRequested) and r.fact.episode == episode
    )
    return f"{task.environment}/{task.family}"


async def test_the_table_counts_every_episode_once_and_families_add_up() -> None:
    report, _ = await judged_again(Saying(OTHER, find_price="success", checkout="undecided"))

    def cells(counts: dict[str, dict[str, int]]) -> int:
        return sum(count for row in counts.values() for count in row.values())

    assert cells(report.agreement.counts) == report.episodes
    assert sum(cells(one.counts) for one in report.by_family.values()) == report.episodes
    assert report.agreement.decided == sum(one.decided for one in report.by_family.values())
    assert report.agreement.counts["success"]["undecided"] > 0


async def test_a_judge_that_contradicts_its_own_verdicts_is_told() -> None:
    report, _ = await judged_again(Saying(RULES, find_price="success"))
    assert {one.episode for one in report.contradictions} == {flip.episode for flip in report.flips}
    assert len(report.contradictions) > 0
    newer = JudgeIdentity(name="rules", version=f"{RULES.version}-next")
    assert (await judged_again(Saying(newer, find_price="success")))[0].contradictions == ()


async def test_conditions_choose_the_episodes() -> None:
    report, _ = await judged_again(Saying(OTHER), EpisodeSelection(families=frozenset({"find_price"})))
    assert set(report.by_family) == {"store/find_price"}


def opinion(old: Outcome | None, new: Outcome) -> SecondOpinion:
    def said(outcome: Outcome) -> Judgment:
        return Judgment(outcome=outcome, reward=float(outcome == "success"), reason="")

    return SecondOpinion(
        episode="e", family="f", origin="online", old=said(old) if old else None, new=said(new), before=None
    )


def test_agreement_is_of_what_both_decided() -> None:
    found = agreement_of(
        [
            *[opinion("success", "success")] * 20,
            *[opinion("success", "failure")] * 5,
            *[opinion("failure", "success")] * 10,
            *[opinion("failure", "failure")] * 15,
            opinion("undecided", "success"),
            opinion(None, "failure"),
        ]
    )
    assert (found.decided, found.agreed) == (50, 35)
    assert found.kappa == pytest.approx(0.4)  # the textbook's example
    assert found.counts[NO_VERDICT] == {"failure": 1}


def test_kappa_is_not_defined_where_nothing_could_disagree() -> None:
    assert cohen_kappa({}) is None
    assert cohen_kappa({("a", "a"): 9}) is None
    assert cohen_kappa({("a", "b"): 5, ("b", "a"): 5}) == pytest.approx(-1.0)


async def test_saved_verdicts_stand_beside_the_old_ones_once_and_are_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    handle = await make_home(tmp_path / "home", a_run(groups=2))
    judge = Saying(OTHER, find_price="success")
    away = await rejudge(
        handle,
        EpisodeSelection(),
        judge=Saying(OTHER, find_price="undecided", checkout="undecided", click_button="undecided"),
        save_to=handle,
    )
    assert away.saved == 0, "an outage must not stand in the way of a verdict"
    first = await rejudge(handle, EpisodeSelection(), judge=judge, save_to=handle)
    again = await rejudge(handle, EpisodeSelection(), judge=Saying(OTHER, checkout="success"), save_to=handle)
    assert (first.saved, first.already) == (first.episodes, 0)
    assert (again.saved, again.already) == (0, first.episodes)
    async with handle.connect_log() as log:
        said = {
            r.fact.episode: (r.fact.judgment, r.envelope)
            async for r in read(log)
            if isinstance(r.fact, EpisodeJudged) and r.fact.judge == OTHER
        }
    assert len(said) == first.episodes
    assert all(judgment.reason.endswith(judgment.outcome) for judgment, _ in said.values()), (
        "the first ones stay"
    )
    assert {envelope.correlation for _, envelope in said.values()} == set(said)
    monkeypatch.setenv("HINDCAST_HOME", str(tmp_path / "home"))
    shown = await asyncio.to_thread(CliRunner().invoke, cli, ["episode", "show", sorted(said)[0]])
    assert f"verdict by rules {RULES.version}: " in shown.output
    assert "verdict by other 1: " in shown.output


async def test_comparing_with_a_judge_who_never_spoke_is_refused(tmp_path: Path) -> None:
    handle = await make_home(tmp_path / "home", a_run(groups=1))
    with pytest.raises(SettingsError, match="'rulse' has given no verdict in run tale"):
        await rejudge(handle, EpisodeSelection(), judge=Saying(OTHER), against="rulse")


async def test_the_command_names_a_contradiction_and_ends_with_3(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tale's verdicts were made up: its evidence has no record of the store, so the rules cannot decide."""
    await make_home(tmp_path / "home", a_run(groups=1))
    monkeypatch.setenv("HINDCAST_HOME", str(tmp_path / "home"))
    result = await asyncio.to_thread(CliRunner().invoke, cli, ["rejudge", "tale"])
    assert result.exit_code == 3, result.output
    assert "CONTRADICTION ep_" in result.output
    strict = await asyncio.to_thread(CliRunner().invoke, cli, ["rejudge", "--judge", "strict"])
    assert strict.exit_code == 0, strict.output
    assert "undecided" in strict.output
