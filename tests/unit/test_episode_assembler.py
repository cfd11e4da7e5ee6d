"""Episodes reassembled from the events of a log."""

from itertools import pairwise

from hindcast.events.catalogue import (
    EpisodeAbandoned,
    EpisodeCancelled,
    EpisodeEnded,
    EpisodeRequested,
    EpisodeStarted,
    RunStarted,
    StepTaken,
)
from hindcast.events.envelope import Recorded
from hindcast.events.log.episode_assembler import AssembledEpisode, EpisodeAssembler
from stories.synthetic_run import recorded_run

ENDS = EpisodeEnded | EpisodeAbandoned | EpisodeCancelled


def assembled(history: list[Recorded], assembler: EpisodeAssembler) -> list[AssembledEpisode]:
    return [done for recorded in history if (done := assembler.take(recorded)) is not None]


def started_in(history: list[Recorded]) -> set[str]:
    return {r.fact.episode for r in history if isinstance(r.fact, EpisodeStarted)}


async def test_an_episode_is_handed_out_once_with_all_its_events_in_order() -> None:
    _, history = await recorded_run(groups=8)
    assembler = EpisodeAssembler()
    episodes = assembled(history, assembler)
    ends = {r.fact.episode: r for r in history if isinstance(r.fact, ENDS)}
    assert sorted(episode.name for episode in episodes) == sorted(started_in(history) & ends.keys())
    run = next(r.fact for r in history if isinstance(r.fact, RunStarted))
    for episode in episodes:
        end = ends[episode.name]
        assert (episode.end, episode.position, episode.end_id) == (end.fact, end.position, end.envelope.id)
        assert episode.started_ns <= episode.ended_ns
        assert episode.packages == run.packages
        taken = [r for r in history if isinstance(r.fact, StepTaken) and r.fact.episode == episode.name]
        assert [(step.position, step.fact) for step in episode.steps] == [(r.position, r.fact) for r in taken]
        assert episode.is_complete == isinstance(episode.end, EpisodeEnded)
        assert all(one.position < other.position for one, other in pairwise(episode.steps))


async def test_only_open_episodes_are_kept() -> None:
    _, history = await recorded_run(groups=8)
    assembler = EpisodeAssembler()
    requested: set[str] = set()
    for recorded in history:
        assembler.take(recorded)
        if isinstance(recorded.fact, EpisodeRequested):
            requested.add(recorded.fact.episode)
        if isinstance(recorded.fact, ENDS):
            requested.discard(recorded.fact.episode)
        assert assembler.open_episodes == requested
        assert assembler.running.keys() <= requested


async def test_episodes_that_are_not_wanted_are_left_out_and_steps_where_nobody_needs_them() -> None:
    _, history = await recorded_run(groups=4)
    assembler = EpisodeAssembler(wants=lambda request: request.origin == "demonstration", steps=False)
    episodes = assembled(history, assembler)
    assert episodes
    assert {episode.request.origin for episode in episodes} == {"demonstration"}
    assert not any(episode.steps for episode in episodes)


async def test_events_of_an_episode_that_ended_or_was_forgotten_are_ignored() -> None:
    _, history = await recorded_run(groups=2)
    assembler = EpisodeAssembler()
    first = next(done for recorded in history if (done := assembler.take(recorded)) is not None)
    late = [
        r
        for r in history
        if getattr(r.fact, "episode", "") == first.name and not isinstance(r.fact, EpisodeRequested)
    ]
    count = len(first.steps)
    assert late
    assert not any(assembler.take(recorded) for recorded in late)
    assert len(first.steps) == count
    assert first.name not in assembler.running

    other = EpisodeAssembler()
    for recorded in history:
        if isinstance(recorded.fact, EpisodeStarted):
            other.take(recorded)
            other.forget(recorded.fact.episode)
        else:
            assert other.take(recorded) is None


async def test_an_episode_whose_request_or_start_was_not_read_is_left_out() -> None:
    _, history = await recorded_run(groups=2)
    for missing in (EpisodeRequested, EpisodeStarted):
        kept = [recorded for recorded in history if not isinstance(recorded.fact, missing)]
        assert assembled(kept, EpisodeAssembler()) == []


async def test_an_episode_with_a_missing_step_is_not_complete() -> None:
    _, history = await recorded_run(groups=2)
    gone = next(r.fact for r in history if isinstance(r.fact, StepTaken))
    kept = [recorded for recorded in history if recorded.fact is not gone]
    (episode,) = [e for e in assembled(kept, EpisodeAssembler()) if e.name == gone.episode]
    assert not episode.is_complete
