"""The relabeler's process: what it says of episodes that ended, once each, and what it leaves alone."""

import asyncio
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pytest

from fakes.spans import Spans, parent_of, place_of
from fakes.spans import spans as spans  # a fixture
from fakes.virtual_time import clock_s, run_virtually
from hindcast.actors.environments.early_stopping_demonstrator import LEAVE
from hindcast.actors.environments.store.families import DEMONSTRATORS
from hindcast.actors.episodes.prompt_reader import prompt_of
from hindcast.actors.queue_worker import OUTAGE_PAUSES_S
from hindcast.actors.relabelers.base import AchievedGoal, RelabelResult, why_not_goal
from hindcast.actors.relabelers.episode_memory import ENDED_KEPT, EpisodeMemory
from hindcast.actors.relabelers.rewritten_prompts import difference
from hindcast.core import telemetry_names as names
from hindcast.core.domain.arrays import pack_ids, unpack_ids
from hindcast.core.domain.observation import Observation, Page
from hindcast.core.errors import RelabelerFailed, RelabelerUnavailable
from hindcast.core.grammar.answer_parser import format_answer
from hindcast.core.prompts.prompt import encode_answer
from hindcast.core.prompts.rationale import reason_for
from hindcast.core.settings.schema import ActorSettings
from hindcast.events.catalogue import EpisodeEnded, EpisodeRelabeled, StepTaken
from hindcast.events.catalogue.verdict import JudgeIdentity
from hindcast.events.envelope import Fact
from hindcast.events.log.episode_assembler import AssembledEpisode
from hindcast.events.log.memory import MemoryLog
from hindcast.events.log.reader import read
from hindcast.events.log.work_queue import MAX_TRIES
from hindcast.events.tracing import span
from hindcast.storage.blobs.store import BlobStore
from stories.judge_story import publisher
from stories.relabel_story import relabel_all
from stories.relabel_story import visit as visit  # a fixture
from stories.store_walk import TOKENIZER, Visit

pytestmark = pytest.mark.torch


class Scripted:
    """A relabeler that says one thing after the other, or raises it; the last for ever."""

    identity = JudgeIdentity(name="scripted", version="1")

    def __init__(self, *says: list[AchievedGoal] | Exception) -> None:
        self._says = list(says)

    async def goals(self, episode: AssembledEpisode, pages: Sequence[Page]) -> RelabelResult:
        said = self._says.pop(0) if len(self._says) > 1 else self._says[0]
        if isinstance(said, Exception):
            raise said
        return RelabelResult(tuple(said))


def only(facts: list[Fact]) -> EpisodeRelabeled:
    (fact,) = facts
    assert isinstance(fact, EpisodeRelabeled)
    return fact


@pytest.mark.parametrize("before", [0, 4, 1000])
def test_every_goal_comes_with_what_each_step_would_have_read(
    visit: Visit, tmp_path: Path, before: int
) -> None:
    """Whether the relabeler followed the episode, came upon it in the midst, or started long after it."""
    blobs = BlobStore(tmp_path)
    facts = visit.facts("ep_a", blobs)
    fact = only(relabel_all(facts, blobs, before=before))
    assert [(one.family, one.until_step) for one in fact.relabels] == [
        ("store/add_several", 7),
        ("store/add_to_cart", 3),
    ]
    steps = [step for step in facts if isinstance(step, StepTaken)]
    for relabel in fact.relabels:
        for index, prompt in enumerate(relabel.prompts):
            anew = prompt_of(
                TOKENIZER,
                ActorSettings(),
                instruction=relabel.instruction,
                answers=[step.answer for step in steps[:index]],
                page=visit.pages[index],
                earlier=(),
            )
            assert prompt.fits(steps[index].prompt_ids)
            assert unpack_ids(prompt.of(steps[index].prompt_ids)).tolist() == anew.ids
    own, other = fact.relabels
    assert all(prompt.ids == b"" for prompt in own.prompts), "it is what was asked"
    assert any(prompt.ids for prompt in other.prompts)


def test_a_goal_before_the_end_comes_with_the_step_that_stops_there(visit: Visit, tmp_path: Path) -> None:
    """It reads the page that shows the goal achieved, and answers as the demonstrator of that goal would."""
    blobs = BlobStore(tmp_path)
    facts = visit.facts("ep_a", blobs)
    own, other = only(relabel_all(facts, blobs)).relabels
    steps = [step for step in facts if isinstance(step, StepTaken)]
    assert (own.until_step, len(steps)) == (7, 8)
    assert (other.family, other.until_step) == ("store/add_to_cart", 3)
    for relabel in (own, other):
        at = relabel.until_step
        task = msgspec.structs.replace(
            visit.task, family=relabel.family.removeprefix("store/"), goal=relabel.goal or {}
        )
        answers = [step.answer for step in steps[:at]]
        given = [step.action for step in steps[:at] if step.action is not None]
        page = Observation(page=visit.pages[at], digest="")
        action = DEMONSTRATORS[task.family](task, relabel.instruction, page, given)
        anew = prompt_of(
            TOKENIZER,
            ActorSettings(),
            instruction=relabel.instruction,
            answers=answers,
            page=visit.pages[at],
            earlier=(),
        )
        assert relabel.stop is not None
        assert unpack_ids(relabel.stop.prompt.of(steps[at].prompt_ids)).tolist() == anew.ids
        written = encode_answer(TOKENIZER, format_answer(action, visit.pages[at]))
        assert unpack_ids(relabel.stop.action_ids).tolist() == written
        assert action.name == "exit"
        assert relabel.stop.answer_from == 0
    assert own.stop is not None
    assert own.stop.action_ids == steps[7].action_ids, "it is what was played"


def test_a_stop_has_a_thought_where_demonstrations_have_one(visit: Visit, tmp_path: Path) -> None:
    blobs = BlobStore(tmp_path)
    actors = ActorSettings(answer_format="thinking", demonstration_reasoning=True)
    facts = visit.facts("ep_a", blobs, settings=actors)
    _, other = only(relabel_all(facts, blobs, settings={"actors": actors.model_dump()})).relabels
    assert other.stop is not None
    ids = unpack_ids(other.stop.action_ids).tolist()
    thought = reason_for(LEAVE, page=visit.pages[3], instruction=other.instruction, steps=3)
    assert thought
    assert thought in TOKENIZER.decode(ids[: other.stop.answer_from])
    assert 'exit("done")' in TOKENIZER.decode(ids[other.stop.answer_from :]).replace("message=", "")


def test_a_goal_that_ends_the_episode_comes_with_no_further_stop(visit: Visit, tmp_path: Path) -> None:
    blobs = BlobStore(tmp_path)
    relabeler = Scripted([AchievedGoal("Do it.", 8, (1.0,) * 8), AchievedGoal("Do that.", 7, (1.0,) * 7)])
    last, before = only(relabel_all(visit.facts("ep_a", blobs), blobs, relabeler=relabeler)).relabels
    assert last.stop is None
    assert before.stop is not None


def test_only_goals_of_the_runs_families_are_kept_on_demand(visit: Visit, tmp_path: Path) -> None:
    blobs = BlobStore(tmp_path)
    facts = visit.facts("ep_a", blobs)
    goals = [
        AchievedGoal("Do it.", 1, (1.0,), family=name) for name in ("store/buy", "", "store/add_to_cart")
    ]

    def kept(**given: Any) -> list[str]:
        fact = only(relabel_all(facts, blobs, relabeler=Scripted(goals), settings=given))
        return [relabel.family for relabel in fact.relabels]

    families = {"families": ["store/add_to_cart", "miniwob/click-test"]}
    every = ["store/buy", "", "store/add_to_cart"]
    run = {"families": "run"}
    assert kept(curriculum=families) == every
    assert kept(relabeler=run) == every, "the run names no family"
    assert kept(curriculum=families, relabeler=run) == ["store/add_to_cart"]
    assert kept(curriculum=families, relabeler=run | {"goals": 1}) == ["store/add_to_cart"]
    assert kept(curriculum=families | {"tasks": ["store/buy:3"]}, relabeler=run) == ["store/buy"]


def test_an_end_delivered_again_changes_nothing(visit: Visit, tmp_path: Path) -> None:
    blobs = BlobStore(tmp_path)
    assert only(relabel_all(visit.facts("ep_a", blobs), blobs, starts=3)).relabels


def test_an_outage_of_a_minute_costs_no_relabel(visit: Visit, tmp_path: Path) -> None:
    """Tries are 15, 30 and 60 seconds apart: whoever is back after a minute and a half is asked."""

    class BackAfter(Scripted):
        async def goals(self, episode: AssembledEpisode, pages: Sequence[Page]) -> RelabelResult:
            began.append(clock_s())
            return await super().goals(episode, pages)

    began: list[float] = []
    down = RelabelerUnavailable("it is down")
    blobs = BlobStore(tmp_path)
    relabeler = BackAfter(down, down, down, [AchievedGoal("Search for a lamp.", 1, (1.0,))])
    assert only(relabel_all(visit.facts("ep_a", blobs), blobs, relabeler=relabeler)).relabels
    waits = [after - before for before, after in pairwise(began)]
    assert len(waits) == 3
    assert all(pause <= wait < pause + 5 for pause, wait in zip(OUTAGE_PAUSES_S, waits, strict=True))


def test_what_killed_the_relabeler_each_time_is_given_up_unseen(visit: Visit, tmp_path: Path) -> None:
    blobs = BlobStore(tmp_path)
    relabeler = Scripted(AssertionError("it is not to be asked"))
    fact = only(relabel_all(visit.facts("ep_a", blobs), blobs, relabeler=relabeler, killed=MAX_TRIES - 1))
    assert (fact.relabels, fact.failure) == (
        (),
        f"{MAX_TRIES - 1} tries to relabel this episode came to nothing",
    )


def test_a_relabel_is_a_span_of_the_trace_that_the_end_was_recorded_in(
    visit: Visit, tmp_path: Path, spans: Spans
) -> None:
    blobs = BlobStore(tmp_path)
    with span("playing"):
        fact = only(relabel_all(visit.facts("ep_a", blobs), blobs))
    told = spans.only(names.RELABEL)
    assert parent_of(told) == place_of(spans.only("playing"))[3:-3]
    assert dict(told.attributes or {}) == {
        names.CONVERSATION: "ep_a",
        names.GOALS: len(fact.relabels),
    }


@pytest.mark.parametrize("origin", ["demonstration", "evaluation"])
def test_only_what_the_policy_did_in_training_is_relabelled(
    visit: Visit, tmp_path: Path, origin: str
) -> None:
    blobs = BlobStore(tmp_path)
    assert relabel_all(visit.facts("ep_a", blobs, origin=origin), blobs) == []


def test_an_outage_is_tried_again_and_leaves_no_trace(visit: Visit, tmp_path: Path) -> None:
    blobs = BlobStore(tmp_path)
    goal = AchievedGoal("Search for a lamp.", 1, (1.0,))
    relabeler = Scripted(RelabelerUnavailable("it is down"), RelabelerUnavailable("it is down"), [goal])
    fact = only(relabel_all(visit.facts("ep_a", blobs), blobs, relabeler=relabeler))
    assert (fact.failure, [one.instruction for one in fact.relabels]) == ("", ["Search for a lamp."])


def test_an_outage_that_lasts_stands_in_the_log_without_a_relabel(visit: Visit, tmp_path: Path) -> None:
    blobs = BlobStore(tmp_path)
    relabeler = Scripted(RelabelerUnavailable("it is down"))
    fact = only(relabel_all(visit.facts("ep_a", blobs), blobs, relabeler=relabeler))
    assert (fact.relabels, fact.failure) == ((), f"asked {MAX_TRIES - 1} times in vain: it is down")


@pytest.mark.parametrize(
    ("says", "words"),
    [
        (RelabelerFailed("it refuses"), "it refuses"),
        (KeyError("lamp"), "scripted could not tell what the episode achieved (KeyError: 'lamp')"),
        ([AchievedGoal(" ", 1, (1.0,))], "without an instruction"),
        ([AchievedGoal("Do it.", 99, (1.0,) * 99)], "cuts the 8 steps of the episode at 99"),
        ([AchievedGoal("Do it.", 0, ())], "at 0"),
        ([AchievedGoal("Do it.", 2, (1.0,))], "labels 1 of 2 steps"),
        ([AchievedGoal("Do it.", 1, (float("nan"),))], "outside [0, 1]"),
        ([AchievedGoal("Do it.", 2, (0.0, 0.0))], "no step relevant"),
        ([AchievedGoal("Do it. " * 2000, 1, (1.0,))], "leaves none of 1024 for the page"),
    ],
)
def test_what_cannot_be_a_goal_is_never_recorded_as_one(
    visit: Visit, tmp_path: Path, says: list[AchievedGoal] | Exception, words: str
) -> None:
    blobs = BlobStore(tmp_path)
    fact = only(relabel_all(visit.facts("ep_a", blobs), blobs, relabeler=Scripted(says)))
    assert fact.relabels == ()
    assert words in fact.failure


def test_an_episode_whose_page_was_let_go_of_is_left_alone(visit: Visit, tmp_path: Path) -> None:
    blobs = BlobStore(tmp_path)
    facts = visit.facts("ep_a", blobs)
    step = next(fact for fact in facts if isinstance(fact, StepTaken))
    assert step.observation is not None
    blobs.release(step.observation)
    assert "is not in" in only(relabel_all(facts, blobs)).failure


def test_where_prompts_were_built_otherwise_nothing_is_made_up(visit: Visit, tmp_path: Path) -> None:
    """A setting was changed since: what would have been read cannot be told."""
    blobs = BlobStore(tmp_path)
    facts = visit.facts("ep_a", blobs)
    fact = only(relabel_all(facts, blobs, settings={"actors": {"history_answers": 1}}))
    assert fact.relabels == ()
    assert "cannot be built again from its page" in fact.failure


def test_an_episode_that_the_log_holds_in_part_is_left_alone(visit: Visit, tmp_path: Path) -> None:
    blobs = BlobStore(tmp_path)
    facts = visit.facts("ep_a", blobs)
    assert "do not stand in the log" in only(relabel_all([*facts[:3], *facts[4:]], blobs)).failure


def test_another_site_has_no_rules(visit: Visit, tmp_path: Path) -> None:
    blobs = BlobStore(tmp_path)
    request, *rest = visit.facts("ep_a", blobs)
    task = msgspec.structs.replace(visit.task, environment="miniwob")
    fact = only(relabel_all([msgspec.structs.replace(request, task=task), *rest], blobs))
    assert "no rules tell what an episode of 'miniwob' achieved" in fact.failure


def test_an_end_without_a_usable_record_is_left_alone(visit: Visit, tmp_path: Path) -> None:
    blobs = BlobStore(tmp_path)
    *facts, ended = visit.facts("ep_a", blobs)
    assert isinstance(ended, EpisodeEnded)
    empty = msgspec.structs.replace(ended.evidence, probes={})
    fact = only(relabel_all([*facts, msgspec.structs.replace(ended, evidence=empty)], blobs))
    assert "record is missing or damaged" in fact.failure


def test_what_another_relabeler_takes_is_let_go_of_and_found_all_the_same(
    visit: Visit, tmp_path: Path
) -> None:
    blobs = BlobStore(tmp_path)
    names = [f"ep_{number}" for number in range(ENDED_KEPT + 3)]

    async def main() -> None:
        log = MemoryLog("r", clock=clock_s)
        memory = EpisodeMemory(log)
        async with publisher(log, "story") as story, asyncio.TaskGroup() as tasks:
            following = tasks.create_task(memory.follow())
            await asyncio.sleep(1)
            for name in names:
                for fact in visit.facts(name, blobs):
                    await story.publish(fact, entity=name)
            last = await story.commit()
            await asyncio.sleep(60)
            assert memory.position == last
            assert len(memory.ended) == ENDED_KEPT
            ends = {r.fact.episode: r async for r in read(log, after=0) if isinstance(r.fact, EpisodeEnded)}
            for name in (names[0], names[-1]):
                ended = ends[name].fact
                assert isinstance(ended, EpisodeEnded)
                found = await memory.find(name, position=ends[name].position, stalled_s=5)
                assert found is not None
                assert len(found.steps) == ended.steps
                memory.forget(name)
            assert len(memory.ended) == ENDED_KEPT - 1
            following.cancel()

    run_virtually(main())


def test_prompts_are_told_by_what_differs() -> None:
    for old, new in [([1, 2, 3], [1, 9, 3]), ([1, 1], [1]), ([1], [1, 1, 1]), ([], [4]), ([5, 5, 5], [5, 5])]:
        told = difference(pack_ids(old), new)
        assert told.fits(pack_ids(old))
        assert unpack_ids(told.of(pack_ids(old))).tolist() == new
    assert difference(pack_ids([1, 2, 3]), [1, 9, 3]).ids == pack_ids([9])


def test_a_goal_that_an_episode_allows_is_none_to_complain_of() -> None:
    assert why_not_goal(AchievedGoal("Do it.", 2, (0.0, 0.5)), steps=2) is None
