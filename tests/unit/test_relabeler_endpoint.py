"""The relabeler that asks a model behind an endpoint: which goals it takes from an answer, and what stands in the log."""

import asyncio
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hindcast.actors.endpoint.client import Endpoint
from hindcast.actors.environments.store.tasks import StoreTasks
from hindcast.actors.judges.endpoint import identity_of
from hindcast.actors.relabelers.base import why_not_goal
from hindcast.actors.relabelers.endpoint import PROMPT, EndpointRelabeler, goals_of
from hindcast.actors.relabelers.role import run_relabeler
from hindcast.app.settings.configuration import resolve
from hindcast.core.domain.arrays import unpack_ids
from hindcast.core.errors import SettingsError
from hindcast.core.settings.schema import Settings, SiteSettings
from hindcast.events.catalogue import EpisodeRelabeled, StepTaken
from hindcast.events.log.memory import MemoryLog
from hindcast.events.log.reader import read
from hindcast.storage.blobs.store import BlobStore
from servers.chat_server import ChatServer, Reaction, chatting, fails, in_turn, says
from stories.curriculum_story import settings_of
from stories.judge_story import publisher
from stories.store_visitor import running_store
from stories.store_walk import TOKENIZER, Visit

pytestmark = pytest.mark.torch

SITE = SiteSettings(products=60)
TASKS = StoreTasks(SITE)
WAIT_S = 120


def named(*goals: tuple[str, int, list[int]]) -> str:
    return json.dumps(
        {"goals": [dict(zip(("instruction", "step", "relevant"), goal, strict=True)) for goal in goals]}
    )


@pytest.fixture(scope="module")
def visit() -> Iterator[Visit]:
    with running_store(SITE) as base_url:
        visit = Visit(base_url, TASKS.task("add_to_cart", 1))
        visit.demonstrate()
        yield visit


def settings_for(server: ChatServer) -> Settings:
    endpoint = {"base_url": server.base_url, "model": "teller", "backoff_s": 0.001, "retries": 0}
    return settings_of(endpoint=endpoint, relabeler={"kind": "endpoint", "goals": 2, "timeout_s": WAIT_S})


async def relabeled(visit: Visit, folder: Path, *reactions: Reaction) -> tuple[EpisodeRelabeled, list[Any]]:
    """What the relabeler's process says of a visit, and what the server was asked."""
    blobs, log, stop = BlobStore(folder), MemoryLog("r"), asyncio.Event()
    facts = visit.facts("ep_a", blobs)
    with chatting(in_turn(*reactions)) as server:
        settings = settings_for(server)
        async with Endpoint(settings.endpoint) as endpoint, publisher(log, "story") as story:
            for fact in facts:
                await story.publish(fact, entity="ep_a")
            await story.commit()
            relabeler = EndpointRelabeler(endpoint, blobs=blobs, max_goals=2)
            async with publisher(log, "relabeler.1") as mine, asyncio.TaskGroup() as tasks:
                queue = await log.open_queue("relabels", family="episode_end")
                tasks.create_task(
                    run_relabeler(
                        log=log,
                        publisher=mine,
                        queue=queue,
                        blobs=blobs,
                        settings=settings,
                        relabeler=relabeler,
                        tokenizer=TOKENIZER,
                        stop=stop,
                    )
                )
                await log.wait_for_growth(len(facts), timeout_s=WAIT_S)
                stop.set()
    (fact,) = [recorded.fact async for recorded in read(log, after=len(facts))]
    assert isinstance(fact, EpisodeRelabeled)
    return fact, server.asked


async def test_goals_in_words_stand_in_the_log_with_what_each_step_would_have_read(
    visit: Visit, tmp_path: Path
) -> None:
    assert len(visit.pages) >= 2
    answer = says(named(("Look at the shop.", 1, [1]), ("Go on.", 2, [2]), ("Third.", 2, [1, 2])))
    fact, asked = await relabeled(visit, tmp_path, fails(503), answer)
    assert [(one.instruction, one.until_step, one.relevance) for one in fact.relabels] == [
        ("Look at the shop.", 1, (1.0,)),
        ("Go on.", 2, (0.0, 1.0)),
    ], "no more than relabeler.goals"
    assert all((one.family, one.goal) == ("", None) for one in fact.relabels)
    assert fact.relabeler == identity_of("endpoint", "1", "teller", PROMPT.digest)
    assert fact.consulted is not None
    assert (fact.consulted.prompt_tokens, fact.consulted.tries, fact.failure) == (100, 1, "")
    first = visit.facts("ep_a", BlobStore(tmp_path))[2]
    assert isinstance(first, StepTaken)
    read_by = TOKENIZER.decode(unpack_ids(fact.relabels[0].prompts[0].of(first.prompt_ids)).tolist())
    assert "Task Instruction: Look at the shop." in read_by
    question = asked[0]["messages"][1]["content"]
    assert visit.task.instruction in question
    assert f"Step {len(visit.pages)}. The page:" in question
    assert "At most 2 goals" in asked[0]["messages"][0]["content"]


@pytest.mark.parametrize(
    ("reaction", "failure"),
    [
        (says(None, refusal="no"), "refusal: "),
        (says(named(("Go.", 99, [99]))), "malformed: "),
        (fails(400), "rejected: "),
    ],
)
async def test_what_cannot_be_told_has_no_relabels_and_says_why(
    visit: Visit, tmp_path: Path, reaction: Reaction, failure: str
) -> None:
    fact, _ = await relabeled(visit, tmp_path, reaction)
    assert fact.relabels == ()
    assert fact.failure.startswith(failure)
    assert fact.consulted is not None


async def test_an_episode_that_achieved_nothing_is_no_failure(visit: Visit, tmp_path: Path) -> None:
    fact, _ = await relabeled(visit, tmp_path, says(named()))
    assert (fact.relabels, fact.failure) == ((), "")


GOALS = st.lists(
    st.tuples(st.text(max_size=5), st.integers(-1, 8), st.lists(st.integers(-1, 8), max_size=6)), max_size=4
)


@given(goals=GOALS, steps=st.integers(1, 6))
def test_every_goal_that_is_taken_is_one_and_every_other_answer_is_told_what_is_wrong(
    goals: Sequence[tuple[str, int, list[int]]], steps: int
) -> None:
    try:
        found = goals_of(named(*goals), steps=steps)
    except ValueError:
        sound = [
            text.strip() and 1 <= step <= steps and step in own and min(own) >= 1 and max(own) <= step
            for text, step, own in goals
        ]
        assert not all(sound)
        return
    assert [why_not_goal(goal, steps=steps) for goal in found] == [None] * len(found)
    assert len({goal.instruction.casefold() for goal in found}) == len(found)
    assert len(found) == len({text.strip().casefold() for text, _, _ in goals})


def test_a_step_far_beyond_the_episode_is_no_goal_and_takes_no_memory() -> None:
    with pytest.raises(ValueError, match="there are 1 to 3"):
        goals_of(named(("Go.", 10**15, [10**15])), steps=3)


def test_a_relabeler_that_could_never_speak_is_refused_before_anything_starts() -> None:
    with pytest.raises(SettingsError, match=r"relabeler\.kind asks the endpoint"):
        resolve(environment={}, overrides=["relabeler.kind=endpoint"])
