"""Recorded episodes driven again in a real Chromium and a store of its own: alike, or the first step that differs."""

import asyncio
import json
from contextlib import aclosing
from pathlib import Path
from typing import NamedTuple

import msgspec
import pytest
from click.testing import Result
from typer.testing import CliRunner

from fakes.tiny_policy import write_tiny_policy
from hindcast.actors.engines.in_process import InProcessEngine
from hindcast.actors.environments.browser import BrowserHost
from hindcast.actors.environments.miniwob.site import MiniwobSite
from hindcast.actors.environments.miniwob.tasks import MiniwobTasks
from hindcast.actors.environments.store.site import StoreSite
from hindcast.actors.environments.store.tasks import StoreTasks
from hindcast.actors.episodes.actor import run_actor
from hindcast.actors.replay.recorded import EpisodeSelection
from hindcast.app.cli import app as cli
from hindcast.app.replay.steps import StepsReport, replay_steps
from hindcast.core.domain.task import Task
from hindcast.core.errors import SettingsError
from hindcast.core.ids import digest_hex
from hindcast.core.settings.schema import Settings
from hindcast.events.catalogue import EpisodeAbandoned, EpisodeEnded, EpisodeRequested, StepTaken
from hindcast.events.envelope import Fact, Recorded
from hindcast.events.log.memory import MemoryLog
from hindcast.events.log.publisher import Publisher
from hindcast.events.log.reader import read, tail
from hindcast.storage.blobs.store import BlobStore
from stories.held_run import HeldRun
from stories.recorded_home import make_home
from stories.store_visitor import TOKEN, running_store
from stories.synthetic_run import a_run
from stories.training_story import QUICK, Story

pytestmark = [pytest.mark.broker, pytest.mark.browser, pytest.mark.torch]

SETTINGS = Settings.model_validate(
    {
        "sites": {"products": 60},
        "actors": {"contexts": 3, "page_timeout_s": 60.0, "action_timeout_s": 30.0, "page_latency_ms": 5.0},
    }
)
SHOP, PAGES = StoreTasks(SETTINGS.sites), MiniwobTasks()
DEMONSTRATED = {
    "ep_buy": SHOP.task("buy", 1),
    "ep_price": SHOP.task("find_price", 2),
    "ep_button": PAGES.task("click-button", 3),
    "ep_login": PAGES.task("login-user", 4),
}
SAMPLED = {"ep_random": PAGES.task("click-checkboxes", 5)}
"""By a policy that knows nothing: answers that do not parse are part of an episode."""


class Kept(NamedTuple):
    """What an actor left behind."""

    history: list[Recorded]
    blobs: BlobStore


def requested(episode: str, task: Task, origin: str) -> EpisodeRequested:
    return EpisodeRequested(
        episode=episode,
        task=task,
        group=episode,
        member=0,
        group_size=1,
        attempt=0,
        origin=origin,
        temperature=1.0,
        phase=0,
        min_version=0,
        lease_s=900.0,
    )


async def play(folder: Path) -> Kept:
    """Let an actor play every request on a log in memory, at a store that is gone afterwards."""
    log, blobs = MemoryLog("r_played"), BlobStore(folder / "blobs")
    policy = write_tiny_policy(folder / "policy")
    stop = asyncio.Event()
    with running_store(SETTINGS.sites) as address:
        async with (
            InProcessEngine(policy, SETTINGS.policy) as engine,
            BrowserHost(SETTINGS.actors) as host,
            Publisher(log, producer="story", code_rev="test", settings=QUICK) as story,
            Publisher(log, producer="actor.1", code_rev="test", settings=QUICK) as publisher,
        ):
            await story.publish(Story(policy).start(blobs, SETTINGS).fact, entity="r_played")
            for episode, task in DEMONSTRATED.items():
                await story.publish(requested(episode, task, "demonstration"), entity=episode)
            for episode, task in SAMPLED.items():
                await story.publish(requested(episode, task, "online"), entity=episode)

            async def stop_when_over() -> None:
                left = len(DEMONSTRATED) + len(SAMPLED)
                async with aclosing(tail(log, after=0)) as events:
                    async for recorded in events:
                        left -= isinstance(recorded.fact, EpisodeEnded | EpisodeAbandoned)
                        if left == 0:
                            stop.set()
                            return

            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(stop_when_over())
                await run_actor(
                    name="actor.1",
                    log=log,
                    publisher=publisher,
                    queue=await log.open_queue("episodes", family="request"),
                    engine=engine,
                    host=host,
                    sites={"store": StoreSite(address, TOKEN), "miniwob": MiniwobSite()},
                    blobs=blobs,
                    settings=SETTINGS,
                    stop=stop,
                )
    return Kept([recorded async for recorded in read(log)], blobs)


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Kept:
    return asyncio.run(play(tmp_path_factory.mktemp("played")))


async def replay(
    kept: Kept,
    *,
    facts: list[Fact] | None = None,
    settings: Settings = SETTINGS,
    wanted: EpisodeSelection | None = None,
) -> StepsReport:
    """Replay what was kept, or these facts in its place."""
    log = MemoryLog("r_played")
    async with Publisher(log, producer="story", code_rev="test", settings=QUICK) as publisher:
        for fact in facts or [recorded.fact for recorded in kept.history]:
            await publisher.publish(fact, entity=getattr(fact, "episode", "r_played"))
    before, blobs = (await log.identity()).last, _files(kept.blobs)
    report = await replay_steps(
        HeldRun(log, blobs=kept.blobs, settings=settings), wanted or EpisodeSelection()
    )
    assert (await log.identity()).last == before, "nothing is appended"
    assert _files(kept.blobs) == blobs, "nothing is stored"
    return report


def _files(blobs: BlobStore) -> set[str]:
    return {path.name for folder in blobs.folders for path in folder.rglob("*") if path.is_file()}


async def test_episodes_come_out_alike_at_another_store_in_another_browser(kept: Kept) -> None:
    report = await replay(kept)
    assert report.differing == ()
    assert report.left_out == ()
    assert report.same == report.episodes == len(DEMONSTRATED) + len(SAMPLED)
    assert report.steps == sum(isinstance(recorded.fact, StepTaken) for recorded in kept.history)
    assert any(
        recorded.fact.result == "parse_failure"
        for recorded in kept.history
        if isinstance(recorded.fact, StepTaken)
    )


def altered(kept: Kept, episode: str, **evidence: object) -> list[Fact]:
    """The facts, with these values of an episode's evidence changed."""
    facts: list[Fact] = []
    for recorded in kept.history:
        fact = recorded.fact
        if isinstance(fact, EpisodeEnded) and fact.episode == episode:
            fact = msgspec.structs.replace(
                fact,
                evidence=msgspec.structs.replace(fact.evidence, probes={**fact.evidence.probes, **evidence}),
            )
        facts.append(fact)
    return facts


async def test_altered_evidence_and_an_altered_fingerprint_are_found_where_they_stand(kept: Kept) -> None:
    facts = altered(kept, "ep_price", seed=77)
    at = next(
        index
        for index, fact in enumerate(facts)
        if isinstance(fact, StepTaken) and fact.episode == "ep_buy" and fact.index == 2
    )
    wrong = facts[at]
    assert isinstance(wrong, StepTaken)
    facts[at] = msgspec.structs.replace(wrong, observation_digest=digest_hex(b"another page"))
    report = await replay(kept, facts=facts)
    found = {one.episode: one for one in report.differing}
    assert set(found) == {"ep_price", "ep_buy"}
    price, buy = found["ep_price"].difference, found["ep_buy"].difference
    assert price is not None
    assert buy is not None
    assert price.what == "evidence"
    assert price.lines == ("probes.seed: recorded 77, now 2",)
    assert (buy.what, buy.step, buy.altered) == ("page", 2, True)
    assert found["ep_buy"].cause is not None
    assert found["ep_buy"].cause.kind == "altered"
    assert report.same == report.episodes - 2


async def test_a_catalogue_that_is_not_the_tasks_own_leaves_nothing_to_compare(kept: Kept) -> None:
    settings = SETTINGS.model_copy(update={"sites": SETTINGS.sites.model_copy(update={"catalogue_seed": 8})})
    wanted = EpisodeSelection(episodes=frozenset({"ep_buy", "ep_button"}))
    report = await replay(kept, settings=settings, wanted=wanted)
    assert [(one.episode, one.outcome) for one in report.left_out] == [("ep_buy", "failed")]
    assert "was made for catalogue" in report.left_out[0].reason
    assert report.same == 1


async def test_an_abandoned_episode_is_replayed_as_far_as_it_got_and_one_without_steps_is_skipped(
    kept: Kept,
) -> None:
    facts: list[Fact] = []
    for recorded in kept.history:
        fact = recorded.fact
        episode = getattr(fact, "episode", "")
        if isinstance(fact, EpisodeEnded) and episode in ("ep_buy", "ep_price"):
            fact = EpisodeAbandoned(
                episode=episode, task_id=fact.task_id, reason="browser_died", detail="", steps=2
            )
        if isinstance(fact, StepTaken) and (
            (episode == "ep_buy" and fact.index > 1) or episode == "ep_price"
        ):
            continue
        facts.append(fact)
    report = await replay(
        kept, facts=facts, wanted=EpisodeSelection(families=frozenset({"store/buy", "find_price"}))
    )
    assert (report.same, report.steps) == (1, 2)
    assert [(one.episode, one.outcome, one.reason) for one in report.left_out] == [
        ("ep_price", "skipped", "no step of it was recorded")
    ]


async def test_the_commands_name_what_differs_and_end_with_their_codes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A made-up tale: its pages were never shown, and its weights lie nowhere."""
    await make_home(tmp_path / "home", a_run(groups=2))
    monkeypatch.setenv("HINDCAST_HOME", str(tmp_path / "home"))

    async def run(*arguments: str) -> Result:
        return await asyncio.to_thread(CliRunner().invoke, cli, ["replay", *arguments])

    steps = await run("steps", "tale", "--episodes", "2", "--family", "store/find_price")
    assert steps.exit_code == 3, steps.output
    assert "store/find_price DIFFERS at step 0" in steps.output
    assert "likely    steady, and since the recording changed" in steps.output
    assert "0 of 2 episodes replayed alike" in steps.output
    sampling = await run("sampling", "--all", "--json")
    assert sampling.exit_code == 1, sampling.output
    report = json.loads(sampling.output)
    assert (report["answers"], sum(report["missing"].values()) > 0) == (0, True)
    both = await run("steps", "--all", "--episodes", "3")
    assert both.exit_code != 0
    assert isinstance(both.exception, SettingsError)
