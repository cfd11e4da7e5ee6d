"""Roles start where a state was kept: they read what follows it, and know what a reader of everything knows."""

import asyncio
from typing import Any

import pytest

from fakes.virtual_time import clock_s, run_virtually
from fakes.watched_reads import watch_reads
from hindcast.actors.curriculum.projection import CurriculumProjection
from hindcast.actors.curriculum.snapshots import SnapshotKeeper
from hindcast.actors.judges.role import run_judge
from hindcast.actors.log_follower import LOOK_BACK_EVENTS
from hindcast.core.settings.schema import Settings
from hindcast.events.catalogue import (
    ControlRequested,
    EpisodeAbandoned,
    EpisodeJudged,
    EpisodeRequested,
    EpisodeStarted,
    SnapshotSaved,
    WeightsAdopted,
    WeightsPublished,
)
from hindcast.events.log.memory import MemoryLog
from hindcast.events.log.projection import fold
from hindcast.events.log.reader import read
from stories.actor_bench import Bench as ActorBench
from stories.actor_bench import requested as asked
from stories.curriculum_bench import Bench as CurriculumBench
from stories.curriculum_bench import ended as end_of
from stories.curriculum_story import settings_of
from stories.judge_story import NO_BLOBS, RULES, publisher
from stories.judge_story import ended as ended_one
from stories.judge_story import requested as requested_one

pytestmark = pytest.mark.torch


def every(settings: Settings, events: int) -> Settings:
    return settings.model_copy(
        update={"storage": settings.storage.model_copy(update={"snapshot_events": events})}
    )


async def play_rounds(bench: CurriculumBench, rounds: int) -> None:
    """Each a start of the curriculum; every episode it asked for comes to its end."""
    done: set[str] = set()
    for _ in range(rounds):
        await bench.decide(for_s=3)
        for request in await bench.facts(EpisodeRequested):
            if request.episode not in done:
                done.add(request.episode)
                await bench.tell(end_of(request))


def test_a_curriculum_that_starts_from_its_snapshots_asks_for_what_one_without_them_asks_for() -> None:
    async def main() -> None:
        keeping, forgetful = CurriculumBench(), CurriculumBench()
        keeping.settings = every(keeping.settings, 16)
        await play_rounds(keeping, 5)
        await play_rounds(forgetful, 5)
        saved = await keeping.facts(SnapshotSaved)
        assert len(saved) > 2
        assert not await forgetful.facts(SnapshotSaved)
        assert await keeping.facts(EpisodeRequested) == await forgetful.facts(EpisodeRequested)
        reads = watch_reads(keeping.log)
        await keeping.decide(for_s=1)
        assert min(reads) >= saved[-1].position

    run_virtually(main())


def test_a_curriculum_keeps_the_fold_of_the_log_up_to_the_position_it_names() -> None:
    async def main() -> None:
        bench = CurriculumBench()
        bench.settings = every(bench.settings, 16)
        await play_rounds(bench, 3)
        history = [recorded async for recorded in read(bench.log)]
        async with bench.publisher("curriculum.1") as mine:
            kept = await SnapshotKeeper(bench.log, mine, bench.blobs, bench.settings).restore()
        assert kept is not None
        whole = fold(CurriculumProjection.under(bench.settings), history[: kept.position])
        assert kept == whole
        saved = (await bench.facts(SnapshotSaved))[-1]
        assert saved.position == kept.position
        assert saved.position_digest == history[kept.position - 1].digest

    run_virtually(main())


def test_a_curriculum_saves_nothing_while_the_run_is_paused_for_want_of_room() -> None:
    async def main() -> None:
        bench = CurriculumBench()
        bench.settings = every(bench.settings, 16)
        await bench.tell(ControlRequested(command="pause", arguments={}, author="me", reason="lunch"))
        await bench.decide(for_s=3)
        assert not await bench.facts(SnapshotSaved)
        await bench.tell(ControlRequested(command="resume", arguments={}, author="me", reason="back"))
        await bench.decide(for_s=3)
        assert await bench.facts(SnapshotSaved)

    run_virtually(main())


async def keep_curriculum_state(bench: ActorBench) -> int:
    """As the curriculum would at this moment; returns the position it stands at."""
    projection = CurriculumProjection.under(bench.settings)
    state = fold(projection, await bench.history())
    async with bench.publisher("curriculum.1") as mine:
        keeper = SnapshotKeeper(bench.log, mine, bench.blobs, every(bench.settings, 1))  # type: ignore[arg-type]
        await keeper.save_if_due(state)
    return state.position


def test_an_actor_finds_its_open_episodes_and_the_newest_weights_without_reading_the_history() -> None:
    async def main() -> None:
        bench = ActorBench()
        weights = bench.blobs.put(b"weights")
        await bench.tell(WeightsPublished(version=1, model="policy", weights=weights, update=1))
        for name in ("ep_mine", "ep_other", "ep_waits"):
            await bench.tell(asked(name))
        for name, actor in (("ep_mine", "actor.1"), ("ep_other", "actor.2")):
            await bench.tell(EpisodeStarted(episode=name, actor=actor, instruction="", renderer=""))
        position = await keep_curriculum_state(bench)
        reads = watch_reads(bench.log)
        await bench.act(for_s=5, queue="nobody's")
        assert min(reads) >= position
        gone = {
            fact.episode for fact in await bench.facts(EpisodeAbandoned) if fact.reason == "actor_restarted"
        }
        assert gone == {"ep_mine"}
        assert [fact.version for fact in await bench.facts(WeightsAdopted)] == [0, 1]

    run_virtually(main())


def test_an_actor_takes_what_happened_after_the_snapshot_into_account() -> None:
    async def main() -> None:
        bench = ActorBench()
        first, second = bench.blobs.put(b"first"), bench.blobs.put(b"second")
        await bench.tell(WeightsPublished(version=1, model="policy", weights=first, update=1))
        await bench.tell(asked("ep_mine"), asked("ep_late"))
        await bench.tell(EpisodeStarted(episode="ep_mine", actor="actor.1", instruction="", renderer=""))
        await keep_curriculum_state(bench)
        await bench.tell(
            EpisodeAbandoned(episode="ep_mine", task_id="t", reason="lease_expired", detail="", steps=0),
            EpisodeStarted(episode="ep_late", actor="actor.1", instruction="", renderer=""),
            WeightsPublished(version=2, model="policy", weights=second, update=2),
        )
        await bench.act(for_s=5, queue="nobody's")
        gone = {
            fact.episode for fact in await bench.facts(EpisodeAbandoned) if fact.reason == "actor_restarted"
        }
        assert gone == {"ep_late"}
        assert [fact.version for fact in await bench.facts(WeightsAdopted)] == [0, 2]

    run_virtually(main())


def test_a_judge_looks_back_no_further_than_to_the_request_it_needs() -> None:
    async def main() -> None:
        log = MemoryLog("r", clock=clock_s)
        await fill(log, 3 * LOOK_BACK_EVENTS)
        async with publisher(log, "story") as story:
            await story.publish(requested_one("ep_a"), entity="ep_a")
        await fill(log, LOOK_BACK_EVENTS // 2)
        async with publisher(log, "story") as story:
            await story.publish(ended_one("ep_a"), entity="ep_a")
        reads = watch_reads(log)
        await judge(log)
        assert min(reads) >= 2 * LOOK_BACK_EVENTS
        assert [verdict.judgment.outcome for verdict in await verdicts(log)] == ["success"]

    run_virtually(main())


def test_a_judge_finds_a_task_however_long_ago_it_was_asked_for() -> None:
    async def main() -> None:
        log = MemoryLog("r", clock=clock_s)
        async with publisher(log, "story") as story:
            await story.publish(requested_one("ep_a"), entity="ep_a")
        await fill(log, 3 * LOOK_BACK_EVENTS)
        async with publisher(log, "story") as story:
            await story.publish(ended_one("ep_a"), entity="ep_a")
        await judge(log)
        assert [verdict.judgment.outcome for verdict in await verdicts(log)] == ["success"]

    run_virtually(main())


async def fill(log: MemoryLog, events: int) -> None:
    async with publisher(log, "filler") as filler:
        for _ in range(events):
            await filler.publish(WeightsAdopted(actor="a", version=0, load_ms=0.0), entity="a")


async def judge(log: MemoryLog) -> None:
    stop = asyncio.Event()
    async with publisher(log, "judge.1") as mine, asyncio.TaskGroup() as tasks:
        queue = await log.open_queue("judges", family="episode_end")
        tasks.create_task(
            run_judge(
                log=log,
                publisher=mine,
                queue=queue,
                settings=settings_of(),
                blobs=NO_BLOBS,
                stop=stop,
                judges={"rules": RULES},
            )
        )
        await asyncio.sleep(60)
        stop.set()


async def verdicts(log: MemoryLog) -> list[Any]:
    return [recorded.fact async for recorded in read(log) if isinstance(recorded.fact, EpisodeJudged)]
