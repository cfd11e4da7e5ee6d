"""The measurements of `bench.replay`: one made-up run, written to a real broker and folded on the way there."""

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import aclosing, suppress
from itertools import islice
from pathlib import Path
from statistics import median

from sqlalchemy import Connection, func, select

from bench.replay import CHUNK, Costs, Figure
from bench.replay_log import LongLog
from bench.replay_start import ROLES
from hindcast.actors.curriculum.pool import configured_pool
from hindcast.app.runs.runs import RunHandle, create_run
from hindcast.app.settings.configuration import resolve
from hindcast.app.system.broker import ensure_broker
from hindcast.app.system.sites import task_sources
from hindcast.core.errors import HindcastError
from hindcast.events.envelope import BlobRef, Record, Stored
from hindcast.events.jetstream.stream_log import JetStreamLog
from hindcast.events.log.memory import MemoryLog
from hindcast.events.log.port import EventLog
from hindcast.events.log.reader import Checker
from hindcast.learner.buffer.replay_buffer import ReplayBuffer
from hindcast.storage.checkpoints import Counters, save_checkpoint
from hindcast.storage.readmodel.database import ReadModel
from hindcast.storage.readmodel.lineage.lineage import lineage
from hindcast.storage.readmodel.projector import BATCH_EVENTS, fill
from hindcast.storage.readmodel.run_queries import run_summary
from hindcast.storage.readmodel.tables import batch_episodes, updates

RUN = "long"
REBUILT = 200_000
"""Events that are folded into fresh tables: `hindcast rebuild` does all of them, at the same pace."""
BEHIND = 1_000
"""Events that the tables lack when the projector is started."""
QUESTIONS = 5
STARTS = 3
START_S = 300.0
FOLD_PER_S = 50_000.0
FILL_PER_S = 20_000.0
START_GOAL_S = 5.0
START_GOAL_MIB = 150.0
QUESTION_GOAL_S = 1.0
SETTINGS = ("log.batch_events=1000", "log.max_bytes=68719476736", "storage.database_wait_s=60")

Said = Callable[[str], None]
TESTS = Path(__file__).parents[1]
"""Where the package `bench` is imported from."""


class StartFailed(HindcastError):
    """A process that was to be measured ended otherwise."""


async def measure(home: Path, *, events: int, sizes: Sequence[int], said: Said) -> list[Figure]:
    """All figures. `sizes`: where the cost per event is told; the last is `events`."""
    run = create_run(resolve(environment={}, folder=home, overrides=SETTINGS), name=RUN, home=home)
    async with ensure_broker(home), run.connect_log("admin"):
        said(f"a run of {events:,} events is made up, folded and appended")
        log = await asyncio.to_thread(made_up, run)
        async with run.connect_log("importer") as importer:
            assert isinstance(importer, JetStreamLog)
            folded = await _fold_and_append(log.tell(events), importer, said=said)
        said("it is folded into SQLite")
        filled = await _fill(run, run.read_model(), until=events - BEHIND)
        rebuilt = run.read_model().scratch("rebuild")
        rebuilding = await _fill(run, rebuilt, until=min(events, REBUILT))
        rebuilt.drop()
        said("roles are started where it ends")
        starts = [figure for role in ROLES for figure in await _starts(run, role)]
        said("questions are asked")
        questions = await asyncio.to_thread(_questions, run)
    return [
        folded.rate("check, decode and fold into the learner's state", goal=FOLD_PER_S, detail=""),
        *folded.growth("learner's fold", sizes),
        rebuilding.rate(
            "read and rebuild SQLite's tables",
            goal=FILL_PER_S,
            detail=f"the first {min(events, REBUILT):,} events; reader, mapping and database together",
        ),
        filled.rate(
            "read and keep them with their indexes", goal=None, detail="what the projector does to catch up"
        ),
        *filled.growth("fold into SQLite", [*sizes[:-1], events - BEHIND]),
        *starts,
        *questions,
    ]


def made_up(run: RunHandle) -> LongLog:
    """The run's log, with weights and a checkpoint that a learner can load. Trains one small batch for that."""
    from bench.engine_calls import recorded_episodes
    from bench.learner import Ours, made_up_batch, prepare
    from hindcast.core.models.folders import policy_folder
    from hindcast.core.models.policy import WEIGHTS

    settings = run.settings
    folder = policy_folder(settings.policy.base)
    prepare(settings.learner.threads)
    ours = Ours(
        folder, made_up_batch(folder, recorded_episodes(2), settings.learner), blobs=run.folder / "blobs"
    )
    ours.train()
    tensors, trained = ours.training.snapshot(batch=0, version=0)

    def save(counters: Counters) -> BlobRef:
        return save_checkpoint(run.blobs, tensors, counters)

    return LongLog(
        run.name,
        settings,
        configured_pool(task_sources(settings), settings.curriculum),
        run.blobs,
        base=run.blobs.put((folder / WEIGHTS).read_bytes()),
        state=trained.state,
        save_checkpoint=save,
    )


def _chunks(events: Iterator[Stored]) -> Iterator[list[Stored]]:
    while chunk := list(islice(events, CHUNK)):
        yield chunk


async def _fold_and_append(events: Iterator[Stored], log: JetStreamLog, *, said: Said) -> Costs:
    """Fold every chunk as a reader of the log would, and append it."""
    checker = Checker(MemoryLog(log.run), after=0, strict=True, check=True)
    buffer, costs = ReplayBuffer(), Costs()
    state = buffer.initial()
    for number, chunk in enumerate(_chunks(events), 1):
        began = time.process_time()
        for stored in chunk:
            recorded = checker.take(stored)
            assert recorded is not None
            state = buffer.apply(state, recorded)
        costs.add(state.position, len(chunk), time.process_time() - began)
        await log.append([Record(stored.subject, stored.data, stored.id) for stored in chunk])
        if number % 400 == 0:
            said(f"{state.position:,} events")
    return costs


class Metered:
    """A log that notes the processor time of this process as it is read, about a transaction of the tables at a time."""

    def __init__(self, log: EventLog, costs: Costs) -> None:
        self.run = log.run
        self.lineage = log.lineage
        self.append, self.read = log.append, log.read
        self.last_under, self.identity = log.last_under, log.identity
        self._log = log
        self._costs = costs

    async def tail(self, *, after: int, headers: bool = True) -> AsyncGenerator[list[Stored], None]:
        """See `EventLog.tail`."""
        began, reached = time.process_time(), after
        async with aclosing(self._log.tail(after=after, headers=headers)) as batches:
            async for batch in batches:
                yield batch
                if (position := batch[-1].position) - reached >= BATCH_EVENTS:
                    now = time.process_time()
                    self._costs.add(position, position - reached, now - began)
                    began, reached = now, position


async def _fill(run: RunHandle, model: ReadModel, *, until: int) -> Costs:
    """Fold the log into tables."""
    costs = Costs()
    try:
        await asyncio.to_thread(model.prepare)
        async with run.connect_log("projector") as log:
            await fill(Metered(log, costs), model, until=until)
    finally:
        model.close()
    return costs


async def _starts(run: RunHandle, role: str) -> list[Figure]:
    """A role in fresh processes, one after the other."""
    times = 1 if role == "projector" else STARTS  # a second one would have nothing left to fold
    took = [await asyncio.to_thread(_start, run, role) for _ in range(times)]
    wall = [one["wall_s"] for one in took]
    above = [one["peak_mib"] - one["imported_mib"] for one in took]
    cpu = median(one["cpu_s"] for one in took)
    detail = f"{took[-1]['detail']}; {cpu:.2f} s of processor time"
    goals = (None, None) if role == "curriculum" else (START_GOAL_S, START_GOAL_MIB)
    return [
        Figure(
            name=f"{role} starts",
            value=median(wall),
            low=min(wall),
            high=max(wall),
            unit="s",
            goal=goals[0],
            detail=detail,
        ),
        Figure(
            name=f"{role}: peak above its imports",
            value=median(above),
            low=min(above),
            high=max(above),
            unit="MiB",
            goal=goals[1],
            detail=f"imports {median(one['imported_mib'] for one in took):.0f} MiB",
        ),
    ]


def _start(run: RunHandle, role: str) -> dict[str, float]:
    command = [sys.executable, "-m", "bench.replay_start", role, str(run.home), run.name]
    done = subprocess.run(command, cwd=TESTS, capture_output=True, text=True, timeout=START_S, check=False)
    with suppress(json.JSONDecodeError, IndexError):
        found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
        return found
    raise StartFailed(f"the {role} did not start: {done.stderr[-2000:]}")


def _questions(run: RunHandle) -> list[Figure]:
    """What `hindcast run show` and `hindcast lineage` ask of the tables."""
    model = run.read_model()
    try:
        with model.reading() as connection:
            middle = connection.scalar(select(func.max(updates.c.update_number))) // 2
            trained = connection.scalar(
                select(batch_episodes.c.episode).where(batch_episodes.c.trained).limit(1)
            )
        asked: dict[str, Callable[[Connection], object]] = {
            "status of the run": run_summary,
            "lineage of an update, both ways": lambda c: lineage(c, "update", str(middle)),
            "lineage of an early episode, both ways": lambda c: lineage(c, "episode", str(trained)),
        }
        return [_question(model, name, ask) for name, ask in asked.items()]
    finally:
        model.close()


def _question(model: ReadModel, name: str, ask: Callable[[Connection], object]) -> Figure:
    wall, cpu = [], []
    for _ in range(QUESTIONS):
        began, cpu_began = time.perf_counter(), time.process_time()
        with model.reading() as connection:
            ask(connection)
        wall.append(time.perf_counter() - began)
        cpu.append(time.process_time() - cpu_began)
    return Figure(
        name=name,
        value=median(wall),
        low=min(wall),
        high=max(wall),
        unit="s",
        goal=QUESTION_GOAL_S,
        detail=f"{median(cpu):.2f} s of processor time",
    )
