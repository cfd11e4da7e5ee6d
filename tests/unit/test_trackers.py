"""What the bridges to experiment trackers share, with a tracker that only remembers."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from sqlalchemy import Connection, create_engine, insert

from hindcast.app.attach.store import consumers, metadata
from hindcast.app.attach.trackers import SHOWN, TrackerBridge, TrackerEntry
from hindcast.core.rl.statistics import wilson
from hindcast.events.catalogue import EpisodeEnded, EpisodeJudged, EpisodeRequested, EvaluationFinished
from hindcast.events.envelope import Recorded
from stories.synthetic_run import recorded_run


class ListTracker:
    """Remembers entries, also over restarts of the bridge."""

    def __init__(self, entries: list[TrackerEntry], settings: dict[str, Any], *, knows_place: bool) -> None:
        self.entries = entries
        self.settings = settings
        self.last_position = entries[-1].position if entries and knows_place else 0

    def add(self, entry: TrackerEntry) -> None:
        self.entries.append(entry)

    def close(self) -> None:
        pass


class Trackers:
    """All runs of one tracker, by id."""

    def __init__(self, *, knows_place: bool = True) -> None:
        self.runs: dict[str, list[TrackerEntry]] = {}
        self._knows_place = knows_place

    def open(self, name: str, run_id: str, settings: dict[str, Any]) -> ListTracker:
        assert run_id.startswith(f"{name}-")
        return ListTracker(self.runs.setdefault(run_id, []), settings, knows_place=self._knows_place)


@pytest.fixture
def new_store() -> Iterator[Callable[[], Connection]]:
    opened = []

    def store() -> Connection:
        engine = create_engine("sqlite://")
        db = engine.connect()
        metadata.create_all(db)
        opened.append((engine, db))
        return db

    yield store
    for engine, db in opened:
        db.close()
        engine.dispose()


def bridge_of(trackers: Trackers, db: Connection) -> TrackerBridge:
    """A bridge in a new process."""
    bridge = TrackerBridge("list", trackers.open)
    bridge.prepare(db)
    return bridge


def send(bridge: TrackerBridge, events: list[Recorded], db: Connection) -> None:
    for event in events:
        bridge(event, db)


async def test_runs_of_one_name_with_other_logs_are_other_runs_of_the_tracker(
    new_store: Callable[[], Connection],
) -> None:
    trackers = Trackers()
    firsts = []
    for seed in (1, 2):
        _, events = await recorded_run(seed)
        firsts.append(events[0])
        db = new_store()
        send(bridge_of(trackers, db), events, db)
    assert len({event.envelope.run for event in firsts}) == 1
    assert list(trackers.runs) == [f"{one.envelope.run}-{one.digest.hex()[:12]}" for one in firsts]
    assert all(trackers.runs.values())


async def test_a_bridge_that_begins_later_has_the_same_id_and_no_alerts(
    new_store: Callable[[], Connection],
) -> None:
    trackers, db = Trackers(), new_store()
    _, events = await recorded_run(groups=6)
    values: dict[str, Any] = dict.fromkeys(("target", "host"), "")
    values |= {"name": "list", "position": 10, "last_position": 10, "last_digest": events[9].digest}
    first = {"run": events[0].envelope.run, "first_digest": events[0].digest}
    db.execute(insert(consumers).values(**values, **first))
    send(bridge_of(trackers, db), events[10:], db)
    ((run_id, entries),) = trackers.runs.items()
    assert run_id.endswith(events[0].digest.hex()[:12])
    assert not any(entry.incidents for entry in entries)


async def test_every_judged_episode_is_a_row_once_and_incidents_are_those_of_the_run(
    new_store: Callable[[], Connection],
) -> None:
    trackers, db = Trackers(), new_store()
    _, events = await recorded_run(groups=6)
    send(bridge_of(trackers, db), events, db)
    (entries,) = trackers.runs.values()
    rows = [row for entry in entries for row in entry.episodes]
    last = max(entry.position for entry in entries if entry.episodes)
    verdicts: dict[str, EpisodeJudged] = {}
    for event in events[:last]:
        if isinstance(event.fact, EpisodeJudged) and event.fact.judge.name == "rules":
            verdicts.setdefault(event.fact.episode, event.fact)
    assert [row["episode"] for row in rows] == list(verdicts)
    requests = {one.fact.episode: one.fact for one in events if isinstance(one.fact, EpisodeRequested)}
    ends = {one.fact.episode: one.fact for one in events if isinstance(one.fact, EpisodeEnded)}
    for row in rows:
        request, end, verdict = (found[row["episode"]] for found in (requests, ends, verdicts))
        assert tuple(row) == SHOWN
        assert (row["family"], row["origin"]) == (request.task.full_family, request.origin)
        assert (row["steps"], row["ended"]) == (end.steps, end.reason)
        assert (row["outcome"], row["reason"]) == (verdict.judgment.outcome, verdict.judgment.reason)
    assert [one.kind for entry in entries for one in entry.incidents] == ["queue"]


async def test_held_out_success_has_its_interval_by_family(new_store: Callable[[], Connection]) -> None:
    trackers, db = Trackers(), new_store()
    _, events = await recorded_run(groups=6)
    send(bridge_of(trackers, db), events, db)
    (entries,) = trackers.runs.values()
    rows = {entry.position: entry.row() for entry in entries}
    evaluations = [one for one in events if isinstance(one.fact, EvaluationFinished)]
    assert evaluations
    for event in evaluations:
        for result in event.fact.results:
            tried = result.successes + result.failures
            if not tried:
                continue
            name = f"held_out/temperature_{result.temperature:g}/{result.family}"
            found = wilson(result.successes, tried)
            row = rows[event.position]
            assert (row[f"{name}/success"], row[f"{name}/low"], row[f"{name}/high"]) == (
                result.successes / tried,
                found.low,
                found.high,
            )


@pytest.mark.parametrize("knows_place", [True, False])
async def test_a_crash_that_undoes_what_it_had_taken_in_sends_nothing_twice_that_the_tracker_has(
    new_store: Callable[[], Connection], knows_place: bool
) -> None:
    _, events = await recorded_run(groups=6)
    whole, db = Trackers(), new_store()
    send(bridge_of(whole, db), events, db)
    (expected,) = whole.runs.values()

    trackers, db = Trackers(knows_place=knows_place), new_store()
    half = len(events) // 2
    send(bridge_of(trackers, db), events[: half - 40], db)
    db.commit()
    send(bridge_of(trackers, db), events[half - 40 : half], db)
    db.rollback()
    send(bridge_of(trackers, db), events[half - 40 :], db)
    (found,) = trackers.runs.values()
    if knows_place:
        assert found == expected
    else:
        assert len(found) > len(expected)
        assert {entry.position: entry for entry in found} == {entry.position: entry for entry in expected}
