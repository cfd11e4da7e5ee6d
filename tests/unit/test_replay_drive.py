"""An episode driven again in a world that does as it is told: which difference is found, and why it is thought to be."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from fakes.bare_step import bare_step
from hindcast.actors.environments.base import ResetResult, StepOutcome, WindowImage
from hindcast.actors.environments.snapshot import observe
from hindcast.actors.replay.pages import GONE
from hindcast.actors.replay.steps import Difference, Surroundings, drive, explain
from hindcast.core.domain.action import Action, ParseFailure
from hindcast.core.domain.evidence import Evidence
from hindcast.core.domain.observation import Node, Observation, Page
from hindcast.core.domain.task import Task
from hindcast.events.catalogue import EpisodeAbandoned, EpisodeEnded, EpisodeRequested, EpisodeStarted
from hindcast.events.log.episode_assembler import AssembledEpisode, AssembledStep
from hindcast.storage.blobs.store import BlobStore

THEN, NOW = "http://127.0.0.1:1111", "http://127.0.0.1:2222"
TASK = Task(environment="store", family="buy", seed=1, instruction="Buy it.", goal={}, max_steps=5)
SAME = Surroundings(code_rev="abc", packages={"miniwob": "1"})
LATER = Surroundings(code_rev="def", packages={"miniwob": "2"})


def page(text: str, base: str = NOW) -> Page:
    return Page(url=f"{base}/{text}", title=text, nodes=(Node(kind="text", tag="p", text=text),))


def seen(text: str) -> Observation:
    return observe(page(text))


class World:
    """Shows pages in their order; remembers what it was asked to do."""

    def __init__(
        self,
        *pages: str,
        done_after: int = 99,
        result: str = "ok",
        instruction: str = "Buy it.",
        raw: float = 1.0,
    ) -> None:
        self.pages = list(pages)
        self.done_after = done_after
        self.result = result
        self.instruction = instruction
        self.raw = raw
        self.acted: list[Action | ParseFailure] = []

    async def reset(self, task: Task) -> ResetResult:
        return ResetResult(instruction=self.instruction, observation=seen(self.pages[0]))

    async def step(self, action: Action | ParseFailure) -> StepOutcome:
        self.acted.append(action)
        return StepOutcome(
            result=self.result,  # type: ignore[arg-type]
            detail="",
            observation=seen(self.pages[len(self.acted)]),
            done=len(self.acted) >= self.done_after,
            act_ms=1.0,
            observe_ms=1.0,
        )

    async def picture(self) -> WindowImage:
        raise AssertionError("a replay needs no pictures")

    async def finish(self, answer: str | None) -> Evidence:
        return Evidence(answer=answer, final_url=f"{NOW}/end", probes={"raw": self.raw})

    async def close(self) -> None:
        return None


@pytest.fixture
def blobs(tmp_path: Path) -> BlobStore:
    return BlobStore(tmp_path / "blobs")


def recorded(
    blobs: BlobStore, *pages: str, actions: tuple[Action | None, ...], **end: Any
) -> AssembledEpisode:
    """An episode that saw these pages while the site was elsewhere; the last one after its last action."""
    steps = []
    for index, action in enumerate(actions):
        then = page(pages[index], THEN)
        step = msgspec.structs.replace(
            bare_step("ep_a", index),
            observation=blobs.put(msgspec.msgpack.encode(then)),
            observation_digest=observe(then).digest,
            url=then.url,
            action=action,
            result="exit" if action is not None and action.name == "exit" else "ok",
        )
        steps.append(AssembledStep(position=10 + index, occurred_ns=0, fact=step))
    request = EpisodeRequested(
        episode="ep_a",
        task=TASK,
        group="g",
        member=0,
        group_size=1,
        attempt=0,
        origin="online",
        temperature=1.0,
        phase=0,
        min_version=0,
        lease_s=60.0,
    )
    started = EpisodeStarted(episode="ep_a", actor="actor.1", instruction="Buy it.", renderer="lines/1")
    ended = EpisodeEnded(
        episode="ep_a",
        task_id=TASK.id,
        actor="actor.1",
        reason=end.get("reason", "exit"),
        steps=len(steps),
        evidence=Evidence(answer=end.get("answer", "done"), final_url=f"{THEN}/end", probes={"raw": 1.0}),
        final_observation=blobs.put(msgspec.msgpack.encode(page(pages[-1], THEN))),
        policy_versions=(0, 0),
        duration_ms=1.0,
    )
    return AssembledEpisode(
        request=request,
        started=started,
        started_ns=0,
        code_rev="abc",
        packages={},
        steps=steps,
        end=ended,
    )


CLICK, EXIT = Action(name="Click", element=1), Action(name="exit", argument="done")


def visit(blobs: BlobStore) -> AssembledEpisode:
    return recorded(blobs, "home", "cart", actions=(CLICK, EXIT))


async def test_an_episode_that_comes_out_as_recorded_has_no_difference_wherever_the_site_is(
    blobs: BlobStore,
) -> None:
    world = World("home", "cart")
    assert await drive(world, visit(blobs), blobs) is None
    assert world.acted == [CLICK]


async def test_an_address_of_the_old_site_is_led_to_the_new_one(blobs: BlobStore) -> None:
    goto = Action(name="Goto", argument=f"{THEN}/cart")
    world = World("home", "cart")
    assert await drive(world, recorded(blobs, "home", "cart", actions=(goto, EXIT)), blobs) is None
    assert world.acted == [Action(name="Goto", argument=f"{NOW}/cart")]


async def test_an_answer_that_did_not_parse_is_no_action_the_second_time_either(blobs: BlobStore) -> None:
    episode = recorded(blobs, "home", "home", actions=(None, EXIT))
    failed = msgspec.structs.replace(episode.steps[0].fact, result="parse_failure", detail="no action")
    episode.steps[0] = msgspec.structs.replace(episode.steps[0], fact=failed)
    world = World("home", "home", result="parse_failure")
    assert await drive(world, episode, blobs) is None
    assert world.acted == [ParseFailure(reason="no action")]


async def test_the_first_page_that_differs_is_named_with_what_tells_it_apart(blobs: BlobStore) -> None:
    found = await drive(World("home", "sold out"), visit(blobs), blobs)
    assert found is not None
    assert (found.step, found.position, found.what, found.altered) == (1, 11, "page", False)
    assert "-text cart  <p> depth 0" in found.lines
    assert "+text sold out  <p> depth 0" in found.lines


async def test_a_page_whose_blob_is_gone_is_compared_by_its_fingerprint(blobs: BlobStore) -> None:
    episode = visit(blobs)
    for step in episode.steps:
        assert step.fact.observation is not None
        blobs.release(step.fact.observation)
    assert await drive(World("home", "cart"), episode, blobs) is None
    found = await drive(World("home", "sold out"), episode, blobs)
    assert found is not None
    assert found.lines == (GONE,)


async def test_a_record_that_was_altered_afterwards_is_told_from_a_page_that_changed(
    blobs: BlobStore,
) -> None:
    episode = visit(blobs)
    altered = msgspec.structs.replace(episode.steps[1].fact, observation_digest="0" * 64)
    episode.steps[1] = msgspec.structs.replace(episode.steps[1], fact=altered)
    found = await drive(World("home", "cart"), episode, blobs)
    assert found is not None
    assert found.altered
    assert explain(TASK, found, found, then=SAME, now=SAME).kind == "altered"


@pytest.mark.parametrize(
    ("world", "step", "what"),
    [
        (World("home", "cart", instruction="Sell it."), 0, "instruction"),
        (World("home", "cart", result="not_actionable"), 0, "result"),
        (World("home", "cart", done_after=1), 0, "end"),
        (World("home", "cart", raw=0.5), 2, "evidence"),
    ],
)
async def test_what_else_may_differ_is_told_by_name(
    blobs: BlobStore, world: World, step: int, what: str
) -> None:
    found = await drive(world, visit(blobs), blobs)
    assert found is not None
    assert (found.step, found.what) == (step, what)


async def test_an_end_by_the_page_is_expected_where_it_was_recorded_and_its_last_page_compared(
    blobs: BlobStore,
) -> None:
    episode = recorded(blobs, "home", "over", actions=(CLICK,), reason="done", answer=None)
    assert await drive(World("home", "over", done_after=1), episode, blobs) is None
    found = await drive(World("home", "over"), episode, blobs)
    assert found is not None
    assert found.what == "end"
    found = await drive(World("home", "elsewhere", done_after=1), episode, blobs)
    assert found is not None
    assert (found.step, found.what) == (1, "page")


async def test_an_abandoned_episode_is_replayed_as_far_as_it_got(blobs: BlobStore) -> None:
    episode = visit(blobs)
    episode.steps.pop()
    episode.end = EpisodeAbandoned(episode="ep_a", task_id=TASK.id, reason="browser_died", detail="", steps=1)
    assert await drive(World("home", "anything", done_after=1), episode, blobs) is None
    assert await drive(World("another", "anything"), episode, blobs) is not None


def difference(**changes: Any) -> Difference:
    return msgspec.structs.replace(
        Difference(step=0, position=1, what="page", recorded="aa", now="bb"), **changes
    )


MINIWOB = msgspec.structs.replace(TASK, environment="miniwob")


@pytest.mark.parametrize(
    ("task", "first", "again", "now", "kind"),
    [
        (TASK, difference(), None, SAME, "chance"),
        (TASK, difference(), difference(now="cc"), SAME, "unsteady"),
        (TASK, difference(), difference(), LATER, "version"),
        (TASK, difference(), difference(), SAME, "steady"),
        (TASK, difference(what="result", now="timeout Click took longer"), None, SAME, "deadline"),
        (msgspec.structs.replace(MINIWOB, family="click-pie"), difference(), None, SAME, "clock"),
        (msgspec.structs.replace(MINIWOB, family="click-link"), difference(), None, SAME, "chance"),
    ],
)
def test_the_likely_cause_follows_from_a_second_replay_and_from_what_changed(
    task: Task, first: Difference, again: Difference | None, now: Surroundings, kind: str
) -> None:
    assert explain(task, first, again, then=SAME, now=now).kind == kind


def test_what_changed_since_is_said() -> None:
    words = explain(TASK, difference(), difference(), then=SAME, now=LATER).words
    assert "miniwob 1 -> 2" in words
    assert "the code abc -> def" in words
