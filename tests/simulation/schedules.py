"""From a seed to a finished run: what is configured, what goes wrong and when, and that it gets where it was sent.

First mishaps of every kind, then none: from then on the run must reach its goal within `CALM_S` of virtual time, drain,
and come to rest with every episode ended and every end judged.
"""

import asyncio
import gc
import logging
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import patch

import msgspec
import structlog

from fakes.virtual_time import EverybodyWaits, VirtualLoop, clock_s
from hindcast.core.rl.combined_state import POLICY
from hindcast.core.settings.schema import Settings
from hindcast.events.catalogue import (
    ControlApplied,
    ControlRequested,
    EpisodeAbandoned,
    EpisodeCancelled,
    EpisodeEnded,
    EpisodeJudged,
    EpisodeRequested,
    EpisodeStarted,
    RunStarted,
    UpdateApplied,
)
from hindcast.events.envelope import Recorded
from hindcast.events.log.memory import Faults
from hindcast.events.log.projection import fold
from hindcast.events.log.reader import Checker
from hindcast.learner.numerics import fingerprint_of
from hindcast.learner.verify.verify import VerifyReport, verify
from simulation import processes
from simulation.continuing import Continued, archiver, look_back, whole_log
from simulation.links import Broker, Connection, MemoryBlobs
from simulation.processes import Process, Role, Site, publishing
from simulation.stand_ins import BASE_WEIGHTS, DigestTrainer, Mishaps
from stories.curriculum_story import Story, settings_of

CALM_S = 600.0
"""Virtual time within which a run reaches its goal and comes to rest once nothing goes wrong any more."""
QUICK = {
    "hindcast.actors.episodes.actor.FETCH_S": 9.0,
    "hindcast.actors.episodes.actor.HEARTBEAT_S": 3.0,
    "hindcast.actors.queue_worker.FETCH_S": 9.0,
    "hindcast.actors.queue_worker.WORKERS": 2,
    "hindcast.events.log.memory.ACK_WAIT_S": 8.0,
    "hindcast.events.archive.archive_log.POLL_S": 5.0,
    "hindcast.storage.archive.archiver.LINGER_S": 1.0,
    "hindcast.storage.archive.archiver.SETTLE_S": 5.0,
    "hindcast.storage.archive.archiver.monotonic": clock_s,
    "hindcast.storage.archive.log_mover.MOVE_S": 2.0,
    "hindcast.storage.blobs.page_retention.PAUSE_S": 9.0,
}
"""Constants of the roles, so that idle hours cost no callbacks and an acknowledgement that is missing shows soon."""

LOST = "actor.9"
SNAPSHOT_EVENTS = (16, 10_000, 30)
"""By the seed: often, never, now and then."""
REHEARSING = 10_000
"""Schedules from this seed on rehearse successes, and go through batches more than once."""
ARCHIVED = 20_000
"""Schedules from this seed on move their log to an archive, and are forked afterwards."""
PHASED = 30_000
"""So do schedules from this seed on, which learn in phases with a critic, and replay what earlier ones played."""


class Stuck(AssertionError):
    """No progress: nothing goes wrong any more, and yet the goal is not reached."""


class Tally:
    """A projection: how often each type of fact was recorded of each entity."""

    def initial(self) -> dict[tuple[str, str], int]:
        return {}

    def apply(self, state: dict[tuple[str, str], int], recorded: Recorded) -> dict[tuple[str, str], int]:
        key = recorded.envelope.type, recorded.envelope.entity
        state[key] = state.get(key, 0) + 1
        return state


class View:
    """A consumer's effect: a fold and its position, changed together."""

    def __init__(self) -> None:
        self.state: dict[tuple[str, str], int] = {}
        self.reached = 0

    async def position(self) -> int:
        return self.reached

    async def apply(self, recordeds: Sequence[Recorded], position: int) -> None:
        begun = self.reached
        fresh = fold(Tally(), [each for each in recordeds if each.position > begun], dict(self.state))
        await asyncio.sleep(0)  # a transaction takes a while: a kill falls before it or behind it
        if self.reached != begun:
            raise RuntimeError("another consumer of this name has moved the position meanwhile")
        self.state, self.reached = fresh, max(begun, position)


class Watch:
    """The log as it grows, checked and decoded once."""

    def __init__(self, broker: Broker) -> None:
        self.history: list[Recorded] = []
        self._broker = broker
        self._checker = Checker(broker, after=0, strict=True, check=True)

    def look(self) -> list[Recorded]:
        for stored in self._broker.events[len(self.history) :]:
            recorded = self._checker.take(stored)
            assert recorded is not None
            self.history.append(recorded)
        return self.history


def updates_of(history: Iterable[Recorded], model: str = POLICY) -> int:
    """Applied to a model."""
    return sum(isinstance(each.fact, UpdateApplied) and each.fact.model == model for each in history)


class Outcome:
    """What a schedule left behind, for `invariants` to look at."""

    def __init__(self, seed: int, settings: Settings, site: Site, watch: Watch, view: View) -> None:
        self.seed = seed
        self.settings = settings
        self.site = site
        self.history = watch.history
        self.view = view
        self.updates = 0
        self.verified: VerifyReport | None = None
        self.continued: Continued | None = None
        """Of an archived schedule."""
        self.events_before_replay = 0
        self.events_after_replay = 0
        self.blobs_before_replay: set[str] = set()
        self.blobs_after_replay: set[str] = set()
        self.virtual_s = 0.0
        self.turns = 0
        self.complaints: list[dict[str, Any]] = []

    def story(self) -> list[tuple[str, str, str, int]]:
        """Who said what of whom, and when; without what only a real clock measures."""
        envelopes = [recorded.envelope for recorded in self.history]
        return [(each.incarnation, each.type, each.entity, each.occurred_ns) for each in envelopes]


def settings_for(
    random: Random, *, rehearses: bool = False, phased: bool = False, snapshot_events: int = 10_000
) -> Settings:
    """Small runs of every shape. `snapshot_events`: above a run's length, nobody keeps a snapshot."""
    rehearsal: dict[str, int] = {}
    if rehearses:
        rehearsal = {
            "rehearsal_episodes": random.choice((1, 3)),
            "rehearsal_memory": random.choice((1, 4)),
            "epochs": random.choice((1, 2)),
        }
    cloning = random.random() < 0.15
    return settings_of(
        run={"seed": random.randrange(2**16)},
        log={
            "linger_ms": random.choice((0, 20)),
            "append_timeout_s": 20,
            "batch_events": random.choice((2, 8, 256)),
        },
        # Some leases end before episodes do: late ends and late starts are the rule there.
        curriculum={
            "environments": ("forms",),
            "task_pool": 2,
            "group_size": random.choice((2, 2, 3)),
            "max_running": random.choice((2, 4, 6)),
            "lease_s": random.choice((3, 12, 12)),
            "max_attempts": random.choice((1, 3)),
            "demonstrations": random.choice((0, 2, 6) if phased else (0, 0, 2)),
        },
        actors={
            "contexts": random.choice((1, 2)),
            "generate_timeout_s": 2,
            "episode_timeout_s": 6,
            "screenshots": "off",
        },
        learner={
            "algorithm": "cloning" if cloning else "grpo",
            "group_batch": random.choice((1, 1, 2)),
            "minibatches": random.choice((1, 2)),
            "max_staleness": random.choice((0, 1, 2)),
            "cloning_batch": 3,
            "cloning_epochs": 2,
            "batch_wait_s": 30,
            "checkpoint_every": random.choice((1, 2)),
            "keep_checkpoints": 1,
            "keep_weights": random.choice((1, 3)),
            **rehearsal,
            **(_in_phases(random) if phased else {}),
        },
        judge={"timeout_s": 2},
        storage={"snapshot_events": snapshot_events, "keep_page_episodes": 2},
    )


def _in_phases(random: Random) -> dict[str, Any]:
    """Of the learner. Demonstrations are replayed where there are any, and replay is on."""
    replays = random.choice(("off", "successes", "successes", "all"))
    return {
        "algorithm": random.choice(("webrl", "reinforce", "awr", "digirl")),
        "phase_episodes": random.choice((2, 4)),
        "phase_replay": replays,
        "phase_demonstrations": replays != "off",
        "phase_memory": random.choice((2, 512)),
        "phase_replay_ratio": random.choice((0.5, 2.0)),
        "critic_replay": random.random() < 0.5,
        "critic_epochs": random.choice((1, 2)),
        "epochs": random.choice((1, 2)),
    }


class Schedule:
    """One seed's run."""

    def __init__(
        self,
        seed: int,
        random: Random,
        folder: Path,
        *,
        mishaps: int | None = None,
        loses_an_actor: bool = False,
    ) -> None:
        """`loses_an_actor`: one more, called `LOST`, which is killed in the midst of an episode and never comes back."""
        self.seed = seed
        self._loses_an_actor = loses_an_actor
        self.random = random
        self.settings = settings_for(
            random,
            rehearses=REHEARSING <= seed < PHASED,
            phased=seed >= PHASED,
            snapshot_events=SNAPSHOT_EVENTS[seed % len(SNAPSHOT_EVENTS)],
        )
        severity = random.choice((0.0, 0.1, 0.3))
        faults = Faults(seed=seed, lost_request=severity / 3, lost_reply=severity / 3, duplicate=severity)
        self.broker = Broker("sim", faults=faults, clock=clock_s)
        self.site = Site(
            self.broker, MemoryBlobs(folder), random, Mishaps(random, random.choice((0.0, 0.3, 1.0)))
        )
        self.site.slowness = random.choice((0.0, 0.1, 0.4))
        self.updates = random.choice((1, 2, 3))
        self.view = View()
        self.watch = Watch(self.broker)
        self.calm = False
        self._archive = folder / f"archive-{seed}" / "sim" if seed >= ARCHIVED else None
        self._copies = MemoryBlobs(folder)
        if self._archive is not None:
            shutil.rmtree(self._archive, ignore_errors=True)
            self.site.whole = whole_log(self._archive)
        self._count = random.randint(2, 7) if mishaps is None else mishaps
        self._current: dict[str, Process] = {}

    def roles(self) -> dict[str, Role]:
        site, settings = self.site, self.settings
        roles = {
            "curriculum.1": processes.curriculum(site, settings),
            "actor.1": processes.actor(site, settings, "actor.1"),
            "judge.1": processes.judge(site, settings),
            "learner.1": processes.learner(site, self.updates),
        }
        if self._archive is not None:
            roles["archiver.1"] = archiver(site, settings, self._archive, self._copies)
        if self.random.random() < 0.5:
            roles["actor.2"] = processes.actor(site, settings, "actor.2")
        if self.random.random() < 0.5:
            roles["view.1"] = processes.consumer(self.view)
        return roles

    async def run(self) -> Outcome:
        await self._begin()
        roles = self.roles()
        async with asyncio.TaskGroup() as group:
            supervised = [group.create_task(self._supervise(name, role)) for name, role in roles.items()]
            if self._loses_an_actor:
                await self._lose_an_actor()
            await self._go_wrong(roles)
            self._calm_down()
            began = clock_s()
            try:
                async with asyncio.timeout(CALM_S):
                    await self._reach_the_goal()
                    await self._come_to_rest(with_view="view.1" in roles)
            except TimeoutError:
                raise Stuck(
                    f"after {clock_s() - began:g} s without a mishap: {self._where_it_stands()}"
                ) from None
            finally:
                for task in supervised:
                    task.cancel()
                for process in self.site.processes:
                    process.kill()
        return await self._replay()

    async def _begin(self) -> None:
        (story,) = Story(self.settings, task_admitted=False).history
        started = story.fact
        assert isinstance(started, RunStarted)
        base = self.site.blobs.put(BASE_WEIGHTS)
        machine = fingerprint_of(self.settings.learner)
        await self._say(msgspec.structs.replace(started, base_policy=base, fingerprint=machine))

    async def _say(self, fact: RunStarted | ControlRequested) -> None:
        connection = Connection(self.broker, self.random, slowness=0.0)
        async with publishing("app", connection, self.site, self.settings) as publisher:
            await publisher.publish(fact, entity="sim")

    async def _supervise(self, name: str, role: Role) -> None:
        """Start it, and start it again, until it comes to its own end."""
        while True:
            process = self._current[name] = Process(self.site, name, role, self.settings)
            await asyncio.wait([process.over])
            if process.finished:
                return
            await asyncio.sleep(self.random.uniform(0.05, 2))

    # ---- mishaps ----------------------------------------------------------------------------------------------------

    async def _go_wrong(self, roles: dict[str, Role]) -> None:
        async with asyncio.TaskGroup() as under_way:
            for _ in range(self._count):
                await asyncio.sleep(self.random.choice((0.0, 0.2, 1.0, 4.0)) * self.random.random())
                name = self.random.choice(list(roles))
                process = self._current[name]
                match self.random.randrange(9):
                    case 0 | 1 | 2:
                        process.kill_after(self.random.choice((1, 30, 300, 1000)) * self.random.randint(1, 4))
                    case 3:
                        under_way.create_task(process.pause(self.random.choice((2.0, 10.0, 30.0))))
                    case 4:
                        twin = Process(self.site, name, roles[name], self.settings)
                        under_way.create_task(self._end_twin(twin, self.random.uniform(1, 20)))
                        if self.random.random() < 0.5:  # given up for dead, and then it goes on
                            under_way.create_task(process.pause(self.random.uniform(0.5, 15)))
                    case 5:
                        self.broker.forget_acknowledgements(self.random)
                    case 6:
                        self.broker.reachable = False
                        under_way.create_task(self._mend(self.random.choice((0.5, 5.0, 30.0))))
                    case 7:
                        self.broker.max_bytes = sum(len(stored.data) for stored in self.broker.events) + 500
                        under_way.create_task(self._mend(self.random.choice((0.5, 5.0, 30.0))))
                    case _:
                        if name.startswith(("learner", "view")):
                            process.kill()
                        else:
                            process.stop()

    async def _lose_an_actor(self) -> None:
        lost = Process(self.site, LOST, processes.actor(self.site, self.settings, LOST), self.settings)
        async with asyncio.timeout(CALM_S):
            while not any(
                isinstance(recorded.fact, EpisodeStarted) and recorded.fact.actor == LOST
                for recorded in self.watch.look()
            ):
                await self._growth()
        lost.kill()

    async def _end_twin(self, twin: Process, after_s: float) -> None:
        await asyncio.wait([twin.over], timeout=after_s)
        twin.kill()

    async def _mend(self, after_s: float) -> None:
        await asyncio.sleep(after_s)
        self.broker.reachable, self.broker.max_bytes = True, None

    def _calm_down(self) -> None:
        self.broker.heal()
        self.site.slowness = self.site.mishaps.probability = 0.0
        for process in self.site.processes:
            process.lane.fuse = 0

    # ---- the goal ---------------------------------------------------------------------------------------------------

    async def _reach_the_goal(self) -> None:
        while self._updates() < self.updates:
            await self._growth()
        await self._say(ControlRequested(command="drain", arguments={}, author="app", reason="goal"))

    def _updates(self) -> int:
        return updates_of(self.watch.look())

    async def _come_to_rest(self, *, with_view: bool) -> None:
        while not self._at_rest() or (with_view and self.view.reached < len(self.broker.events)):
            await self._growth()

    async def _growth(self) -> None:
        self._check_refusals()
        await self.broker.wait_for_growth(len(self.broker.events), timeout_s=5)

    def _check_refusals(self) -> None:
        if self.site.refusals:
            raise self.site.refusals[0]

    def _at_rest(self) -> bool:
        open_episodes, unjudged, drained = self._open()
        return drained and not open_episodes and not unjudged

    def _open(self) -> tuple[set[str], set[str], bool]:
        requested, terminal, ended, judged, drained = set(), set(), set(), set(), False
        for recorded in self.watch.look():
            match recorded.fact:
                case EpisodeRequested() as fact:
                    requested.add(fact.episode)
                case EpisodeEnded() as fact:
                    terminal.add(fact.episode)
                    ended.add(fact.episode)
                case EpisodeAbandoned() | EpisodeCancelled() as fact:
                    terminal.add(fact.episode)
                case EpisodeJudged() as fact:
                    judged.add(fact.episode)
                case ControlApplied():
                    drained = True
        return requested - terminal, ended - judged, drained

    def _where_it_stands(self) -> str:
        open_episodes, unjudged, drained = self._open()
        return (
            f"{self._updates()} of {self.updates} updates, {len(open_episodes)} episodes without an end, "
            f"{len(unjudged)} ends without a verdict, drained: {drained}, view at {self.view.reached} of "
            f"{len(self.broker.events)}; refused: {self.site.refusals}"
        )

    async def _replay(self) -> Outcome:
        outcome = Outcome(self.seed, self.settings, self.site, self.watch, self.view)
        await asyncio.sleep(CALM_S)  # what was under way when its sender was killed arrives
        self.watch.look()
        outcome.updates = self.updates
        outcome.events_before_replay = len(self.broker.events)
        outcome.blobs_before_replay = set(self.site.blobs.contents)
        outcome.verified = await verify(
            self.site.whole(Connection(self.broker, self.random, slowness=0.0)),
            self.site.blobs,  # type: ignore[arg-type]
            policy=Path(),
            make_trainer=DigestTrainer,
        )
        outcome.events_after_replay = len(self.broker.events)
        outcome.blobs_after_replay = set(self.site.blobs.contents)
        for process in self.site.processes:
            if process.killed:
                await process.bury()
        self._check_refusals()
        if self._archive is not None:
            outcome.continued = await look_back(
                self.site, self.settings, self._archive, self._copies, self.watch.look, self.random
            )
        return outcome


@contextmanager
def stage() -> Iterator[Path]:
    """Constants made quick, logging off, garbage collected between schedules and not within: once for many schedules."""
    before = structlog.get_config()
    with ExitStack() as stack:
        for name, value in QUICK.items():
            stack.enter_context(patch(name, value))
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
        gc.collect()
        gc.freeze()
        gc.disable()
        try:
            yield Path(folder)
        finally:
            structlog.configure(**before)
            gc.enable()
            gc.unfreeze()


def play(seed: int, folder: Path) -> Outcome:
    """One schedule from begin to end, within `stage`.

    Raises:
        Stuck, EverybodyWaits: it hangs.
        HindcastError, Exception: a process died of something no supervisor can help with.

    """
    random = Random(seed)
    loop = VirtualLoop(random)
    schedule = Schedule(seed, random, folder)
    try:
        outcome = loop.run_until_complete(schedule.run())
        outcome.virtual_s, outcome.turns, outcome.complaints = loop.now_s, loop.turns, loop.complaints
    except BaseExceptionGroup as group:
        raise processes.leaves(group)[0] from group
    finally:
        clear_away(loop, schedule)
        loop.close()
    return outcome


def clear_away(loop: VirtualLoop, schedule: Schedule) -> None:
    """Unwind whatever a failure left, so that it does not complain when it is collected."""
    for process in schedule.site.processes:
        process.let_go()
    while tasks := asyncio.all_tasks(loop):
        for task in tasks:
            task.cancel()
        try:
            loop.run_until_complete(asyncio.wait(tasks, timeout=60))
        except EverybodyWaits:
            return
