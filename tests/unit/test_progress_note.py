"""What `hindcast start` notes down of a run: the next start goes on there, and comes to the same."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from hindcast.app.cli.start import summary_text
from hindcast.app.system.progress import EVERY_EVENTS, FILE, VERSIONS_KEPT, Narrator, Progress, ProgressNote
from hindcast.app.system.start import Summary
from hindcast.events.catalogue import (
    EpisodeEnded,
    EpisodeJudged,
    EpisodeRequested,
    EvaluationFinished,
    EvaluationStarted,
    RunResumed,
    UpdateApplied,
    WeightsPublished,
)
from hindcast.events.envelope import Recorded
from stories.synthetic_run import FINGERPRINT, recorded_run


def folded(history: list[Recorded], progress: Progress | None = None) -> Progress:
    progress = progress or Progress()
    for recorded in history:
        progress.apply(recorded)
    return progress


@pytest.mark.parametrize("share", [0.0, 0.2, 0.5, 0.9, 1.0])
async def test_progress_goes_on_from_a_note_as_if_everything_had_been_read(
    tmp_path: Path, share: float
) -> None:
    log, history = await recorded_run(3, groups=20)
    cut = int(share * len(history))
    ProgressNote(tmp_path).keep(folded(history[:cut]), at_least=0)
    recalled = await ProgressNote(tmp_path).recall(log)
    assert recalled.position == cut
    assert folded(history[cut:], recalled) == folded(history)


async def test_a_note_that_is_missing_damaged_or_of_another_log_is_left_alone(tmp_path: Path) -> None:
    log, history = await recorded_run(3)
    other, _ = await recorded_run(4)
    note = ProgressNote(tmp_path)
    assert await note.recall(log) == Progress()
    note.keep(folded(history), at_least=1)
    assert (await note.recall(log)).position == len(history)
    assert await ProgressNote(tmp_path).recall(other) == Progress()
    content = json.loads((tmp_path / FILE).read_text())
    for damaged in (content | {"schema": "0" * 64}, content | {"progress": 3}, {"progress": {}}, []):
        (tmp_path / FILE).write_text(json.dumps(damaged))
        assert await ProgressNote(tmp_path).recall(log) == Progress()
    (tmp_path / FILE).write_text("{")
    assert await ProgressNote(tmp_path).recall(log) == Progress()


async def test_a_note_is_written_now_and_then_and_not_at_every_event(tmp_path: Path) -> None:
    _, history = await recorded_run(3)
    note = ProgressNote(tmp_path)
    note.keep(folded(history))
    assert not (tmp_path / FILE).exists()
    far = folded(history)
    far.position = EVERY_EVENTS
    note.keep(far)
    assert (tmp_path / FILE).exists()


async def test_success_is_remembered_of_the_newest_policies_alone(tmp_path: Path) -> None:
    _, history = await recorded_run(3, groups=60)
    assert len(folded(history).by_version) <= VERSIONS_KEPT


async def test_a_line_says_of_which_model_an_update_was() -> None:
    _, history = await recorded_run(3)
    progress = Progress()
    applied = next(r for r in history if isinstance(r.fact, UpdateApplied))
    weights = next(r for r in history if isinstance(r.fact, WeightsPublished) and r.fact.version > 0)

    def said(recorded: Recorded, **fields: Any) -> str:
        fact = msgspec.structs.replace(recorded.fact, **fields)
        return progress.apply(msgspec.structs.replace(recorded, fact=fact)) or ""

    assert said(applied, model="critic", update=7).startswith("critic update 7 · loss ")
    assert progress.updates == 0, "a goal counts those of the policy"
    assert said(applied, update=2).startswith("update 2 · loss ")
    assert progress.updates == 2
    assert said(weights, model="orm", version=3) == "orm 3 published"


async def test_evaluations_have_lines_of_their_own_and_their_episodes_none() -> None:
    _, history = await recorded_run(3, groups=8)
    origins = {r.fact.episode: r.fact.origin for r in history if isinstance(r.fact, EpisodeRequested)}
    progress, lines, judged = Progress(), [], 0
    for recorded in history:
        line = progress.apply(recorded) or ""
        if isinstance(recorded.fact, EpisodeJudged) and origins[recorded.fact.episode] == "evaluation":
            judged += 1
            assert line == ""
        if isinstance(recorded.fact, EvaluationStarted | EvaluationFinished):
            lines.append(line)
    assert judged
    assert lines[0] == "evaluation of policy 0 begins: 20 held-out tasks, greedy and temperature 1"
    assert lines[1] == (
        "evaluation of policy 0 · greedy 33% [16%, 56%] n=18, 2 lost · temperature 1 22% [9%, 45%] n=18, 2 lost"
        " · sampled by policies 0 to 1 · 12 s, 12% of all episodes so far"
    )
    assert lines[3] == (
        "evaluation of policy 1 · greedy 50% [29%, 71%] n=18, 2 lost, +17 since policy 0 · temperature 1 39% [20%, 61%]"
        " n=18, 2 lost, +17 since policy 0 · sampled by policies 1 to 2 · 12 s, 12% of all episodes so far"
        " · ended early: a judge was away"
    )
    tallied = sum(one.judged for one in progress.by_version.values())
    assert tallied == sum(
        isinstance(r.fact, EpisodeJudged)
        and r.fact.judgment.outcome != "undecided"
        and origins[r.fact.episode] != "evaluation"
        and r.fact.judge.name == "rules"
        for r in history
    )


@pytest.mark.parametrize(("outcome", "reason"), [("undecided", " · KeyError: 'x'␛[2J"), ("failure", "")])
async def test_an_undecided_episode_is_shown_with_its_reason(outcome: str, reason: str) -> None:
    _, history = await recorded_run(3)
    online = {
        r.fact.episode for r in history if isinstance(r.fact, EpisodeRequested) and r.fact.origin == "online"
    }
    place = next(
        i
        for i, one in enumerate(history)
        if isinstance(one.fact, EpisodeJudged) and one.fact.episode in online
    )
    fact = history[place].fact
    assert isinstance(fact, EpisodeJudged)
    judgment = msgspec.structs.replace(fact.judgment, outcome=outcome, reason="KeyError:\n'x'\x1b[2J")
    verdict = msgspec.structs.replace(fact, judgment=judgment)
    line = folded(history[:place]).apply(msgspec.structs.replace(history[place], fact=verdict)) or ""
    assert line.startswith(f"episode {fact.episode} {outcome} · ")
    assert line.partition(" · policy ")[2].lstrip("0123456789") == reason


async def test_a_start_says_once_where_it_continues_though_the_run_was_started_often() -> None:
    _, history = await recorded_run(3)

    def resumed(position: int, after: int) -> Recorded:
        fact = RunResumed(after_position=after, fingerprint=FINGERPRINT, until={})
        return msgspec.structs.replace(history[-1], fact=fact, position=position)

    narrator = Narrator(Progress(), quiet_until=40)
    events = [resumed(10, 9), resumed(25, 24), resumed(40, 39), resumed(50, 49)]
    lines = [narrator.apply(one) for one in events]
    assert lines == [
        [],
        [],
        ["run tale continues after position 39"],
        ["run tale continues after position 49"],
    ]


async def test_what_happens_while_the_system_still_starts_is_shown_once_it_is_up() -> None:
    """The learner of a fork may apply updates before its actors are ready."""
    _, history = await recorded_run(3)
    update = next(r for r in history if isinstance(r.fact, UpdateApplied) and r.fact.model == "policy")

    def resumed(position: int) -> Recorded:
        fact = RunResumed(after_position=position - 1, fingerprint=FINGERPRINT, until={})
        return msgspec.structs.replace(update, fact=fact, position=position)

    def updated(position: int) -> Recorded:
        return msgspec.structs.replace(update, position=position)

    narrator = Narrator(Progress(), quiet_until=43)
    events = [resumed(10), updated(11), resumed(40), updated(41), updated(42)]
    assert [narrator.apply(one) for one in events] == [[]] * 5
    begun, *lines, last = narrator.apply(updated(44))
    assert begun == "run tale continues after position 39"
    assert len(lines) == 2
    assert all(line.startswith("update ") for line in (*lines, last))
    assert len(narrator.apply(updated(45))) == 1


async def test_a_start_that_clones_counts_its_demonstrations() -> None:
    """It plays no episode of its own, and 0 alone reads as if nothing had happened."""
    _, history = await recorded_run(3)
    asked = next(r for r in history if isinstance(r.fact, EpisodeRequested))
    ended = next(r for r in history if isinstance(r.fact, EpisodeEnded))
    assert isinstance(asked.fact, EpisodeRequested)
    assert isinstance(ended.fact, EpisodeEnded)
    shown = msgspec.structs.replace(asked.fact, origin="demonstration", episode=ended.fact.episode)
    progress = folded([msgspec.structs.replace(asked, fact=shown), ended])
    assert (progress.episodes, progress.demonstrations) == (0, 1)
    summary = Summary(run="s", updates=39, episodes=0, demonstrations=256, events=4066, wall_s=194.0)
    assert "39 updates, 256 demonstrations, 4066 events" in summary_text(summary)
