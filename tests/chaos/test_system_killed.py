"""kill -9 of every role in a running system: the run goes on, nothing is lost, nothing happens twice, verify holds."""

import asyncio
import os
import signal
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from system import Home, settings

from app.runs import open_run
from events.catalogue import (
    EpisodeAbandoned,
    EpisodeCancelled,
    EpisodeEnded,
    EpisodeJudged,
    EpisodeRequested,
    StepTaken,
    UpdateApplied,
)
from events.envelope import Fact
from events.reader import read

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

VICTIMS = ("learner.1", "judge.1", "actor.1", "projector.1", "bus.1", "curriculum.1", "site.1")


def test_every_role_killed_once_in_a_running_system(tmp_path: Path) -> None:
    home = Home(tmp_path)
    process = home.start("--run", "killed", *settings())
    try:
        home.wait_for("a first update", lambda: counted(home, UpdateApplied) >= 1)
        for victim in VICTIMS:
            before = home.restarts(victim)
            ended = counted(home, EpisodeEnded)
            os.kill(home.pid(victim), signal.SIGKILL)
            home.wait_for(f"a restart of {victim}", restarted(home, victim, before))
            home.wait_for(
                f"an episode to end after {victim} was killed",
                lambda n=ended: counted(home, EpisodeEnded) > n,
            )
        applied = counted(home, UpdateApplied)
        home.wait_for("an update after all that", lambda: counted(home, UpdateApplied) > applied)
    finally:
        assert home.stop(process) == 0
    goal = counted(home, UpdateApplied) + 1
    assert (
        home.json("start", "--run", "killed", "--until", f"updates={goal}", timeout_s=400)["updates"] == goal
    )

    facts = asyncio.run(facts_of(home))
    requested = [fact.episode for fact in facts if isinstance(fact, EpisodeRequested)]
    ends = Counter(
        fact.episode for fact in facts if isinstance(fact, EpisodeEnded | EpisodeAbandoned | EpisodeCancelled)
    )
    assert len(set(requested)) == len(requested)
    assert set(ends) == set(requested)
    assert set(ends.values()) == {1}
    judged = Counter(fact.episode for fact in facts if isinstance(fact, EpisodeJudged))
    ended = {fact.episode for fact in facts if isinstance(fact, EpisodeEnded)}
    assert set(judged) <= ended
    assert len(ended - set(judged)) <= 8, "only what ended while the system stopped may wait for its verdict"
    assert set(judged.values()) == {1}
    steps = Counter((fact.episode, fact.index) for fact in facts if isinstance(fact, StepTaken))
    assert set(steps.values()) == {1}
    updates = [fact.update for fact in facts if isinstance(fact, UpdateApplied)]
    assert updates == list(range(1, goal + 1))

    report = home.json("verify", "killed", timeout_s=300)
    assert (report["identical"], report["updates"]) == (True, goal)
    assert home.json("rebuild", "killed")["identical"]


async def facts_of(home: Home) -> list[Fact]:
    async with open_run("killed", home=home.folder).connect_log() as log:
        return [recorded.fact async for recorded in read(log)]


def counted(home: Home, kind: type[Fact]) -> int:
    """How many facts of a kind stand in the log now."""
    return sum(isinstance(fact, kind) for fact in asyncio.run(facts_of(home)))


def restarted(home: Home, name: str, before: int) -> Callable[[], bool]:
    return lambda: home.restarts(name) > before
