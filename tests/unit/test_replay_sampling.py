"""Recorded answers computed again: from the weights that gave them, from others, and after somebody altered them."""

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from fakes.bare_step import bare_step
from fakes.tiny_policy import tiny_model, write_tiny_policy
from hindcast.actors.engines.in_process import InProcessEngine
from hindcast.actors.replay.recorded import EpisodeSelection
from hindcast.actors.replay.sampling import TOLERANCE, differing_tokens
from hindcast.app.replay.sampling import SamplingReport, replay_sampling
from hindcast.app.replay.steps import NothingToReplay
from hindcast.core.domain.arrays import pack_floats, pack_ids, unpack_floats, unpack_ids
from hindcast.core.domain.sampling import Sampling
from hindcast.core.domain.task import Task
from hindcast.core.grammar.answer_constraints import Form, FreeText
from hindcast.core.models.policy import encode_weights
from hindcast.core.seeds import derive_seed
from hindcast.core.settings.changes import decode_settings
from hindcast.events.catalogue import (
    BlobReleased,
    EpisodeRequested,
    EpisodeStarted,
    StepTaken,
    WeightsPublished,
)
from hindcast.events.envelope import Fact
from hindcast.events.log.memory import MemoryLog
from hindcast.events.log.publisher import Publisher
from hindcast.storage.blobs.store import BlobStore
from stories.held_run import HeldRun
from stories.training_story import QUICK, Story, settings_with

pytestmark = pytest.mark.torch

EPISODES, STEPS = 3, 4
PROMPT = list(range(20, 60))
TASK = Task(environment="store", family="buy", seed=1, instruction="Buy it.", goal={}, max_steps=9)
Alter = Callable[[StepTaken], StepTaken]


class Recorded:
    """A run of a few sampled episodes, the second half of their steps by a second version."""

    def __init__(self, folder: Path) -> None:
        self.blobs = BlobStore(folder / "blobs")
        policy = write_tiny_policy(folder / "policy")
        self.settings = decode_settings(
            settings_with().model_dump() | {"policy": {"base": str(policy), "threads": 1}}
        )
        self.policy = policy
        self.second = self.blobs.put(encode_weights(tiny_model(policy, seed=2)))

    async def log(
        self,
        *,
        alter: Alter = lambda step: step,
        released: bool = False,
        greedy: bool = False,
        forms: tuple[Form, ...] | None = None,
    ) -> MemoryLog:
        log = MemoryLog("r_sampled")
        start = Story(self.policy).start(self.blobs, self.settings).fact
        publish = WeightsPublished(version=1, model="policy", weights=self.second, update=1)
        facts: list[Fact] = [start, publish]
        async with InProcessEngine(self.policy, self.settings.policy) as engine:
            for version in (0, 1):
                if version:
                    await engine.adopt(1, self.blobs.path(self.second))
                for number in range(EPISODES):
                    facts += await self._episode(
                        engine, f"ep_{version}_{number}", alter, greedy=greedy, forms=forms
                    )
        if released:
            facts.append(BlobReleased(blob=self.second, reason="thinned"))
        async with Publisher(log, producer="story", code_rev="test", settings=QUICK) as publisher:
            for fact in facts:
                await publisher.publish(fact, entity=getattr(fact, "episode", "r"))
        return log

    async def _episode(
        self,
        engine: InProcessEngine,
        name: str,
        alter: Alter,
        *,
        greedy: bool,
        forms: tuple[Form, ...] | None,
    ) -> list[Fact]:
        temperature = 0.0 if greedy else 1.0
        request = EpisodeRequested(
            episode=name,
            task=TASK,
            group=name,
            member=0,
            group_size=1,
            attempt=0,
            origin="online",
            temperature=temperature,
            phase=0,
            min_version=0,
            lease_s=60.0,
        )
        facts: list[Fact] = [
            request,
            EpisodeStarted(episode=name, actor="actor.1", instruction="Buy it.", renderer="lines/1"),
        ]
        for index in range(STEPS):
            seed = derive_seed(self.settings.run.seed, "episode", name, "step", index)
            sampling = Sampling(temperature=temperature, max_tokens=12, seed=seed)
            prompt = [*PROMPT, index]
            given = await engine.generate(prompt, sampling, forms)
            step = msgspec.structs.replace(
                bare_step(name, index),
                prompt_ids=pack_ids(prompt),
                action_ids=pack_ids(given.token_ids),
                logprobs=pack_floats(given.logprobs),
                versions=pack_ids(given.versions),
                sampling=sampling,
                allowed=given.allowed,
            )
            facts.append(alter(step))
        return facts

    async def replay(self, log: MemoryLog, wanted: EpisodeSelection | None = None) -> SamplingReport:
        before = (await log.identity()).last
        report = await replay_sampling(
            HeldRun(log, blobs=self.blobs, settings=self.settings), wanted or EpisodeSelection()
        )
        assert (await log.identity()).last == before, "nothing is appended"
        return report


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    return Recorded(tmp_path_factory.mktemp("sampled"))


async def test_every_token_is_what_weights_prompt_and_seed_give(run: Recorded) -> None:
    report = await run.replay(await run.log())
    assert report.answers == 2 * EPISODES * STEPS == report.seeds_derived
    assert report.versions == (0, 1)
    assert report.tokens > report.answers
    assert 0 < report.largest_difference < TOLERANCE
    assert (report.beyond, report.not_drawn, report.differing) == (0, 0, ())
    # an answer may come out otherwise only where rounding decided a draw
    assert report.regenerated_alike + len(report.otherwise) == report.answers
    assert not report.otherwise or report.rounded


async def test_servers_that_computed_each_answer_alike_are_reported(
    run: Recorded, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, served = await run.log(), {"policy": {"engine": "vllm"}, "vllm": {"batch_invariant": True}}
    assert not (await run.replay(log)).batch_invariant
    recorded = run.settings.model_dump()
    changed = {name: recorded[name] | values for name, values in served.items()}
    monkeypatch.setattr(run, "settings", decode_settings(recorded | changed))
    assert (await run.replay(log)).batch_invariant


async def test_greedy_answers_take_the_likeliest_token(run: Recorded) -> None:
    report = await run.replay(await run.log(greedy=True))
    assert (report.beyond, report.not_drawn) == (0, 0)
    assert report.regenerated_alike == report.answers


FORMS: tuple[Form, ...] = (("go(", FreeText.QUOTED, '")'), ("stop()",), ("wait()",))


@pytest.mark.parametrize("greedy", [False, True])
async def test_constrained_answers_are_held_against_what_was_left_of_the_vocabulary(
    run: Recorded, greedy: bool
) -> None:
    report = await run.replay(await run.log(forms=FORMS, greedy=greedy))
    assert report.answers == 2 * EPISODES * STEPS
    assert report.tokens > report.answers
    assert (report.beyond, report.not_drawn, report.differing) == (0, 0, ())
    assert report.regenerated_alike + len(report.otherwise) == report.answers
    assert not report.otherwise or report.rounded


async def test_answers_whose_sets_were_forgotten_do_not_come_out(run: Recorded) -> None:
    def forgotten(step: StepTaken) -> StepTaken:
        return msgspec.structs.replace(step, allowed=b"") if at(step) else step

    report = await run.replay(await run.log(forms=FORMS, alter=forgotten))
    assert [(one.episode, one.step) for one in report.differing] == [("ep_1_1", 2)]
    assert report.differing[0].beyond > 0


def at(step: StepTaken, index: int = 2) -> bool:
    return step.episode == "ep_1_1" and step.index == index


def with_logprob(step: StepTaken) -> StepTaken:
    values = unpack_floats(step.logprobs).copy()
    values[0] += 5 * TOLERANCE
    return msgspec.structs.replace(step, logprobs=pack_floats(values)) if at(step) else step


def with_seed(step: StepTaken) -> StepTaken:
    other = msgspec.structs.replace(step.sampling, seed=step.sampling.seed ^ 1)
    return msgspec.structs.replace(step, sampling=other) if at(step) else step


def with_token(step: StepTaken) -> StepTaken:
    ids = unpack_ids(step.action_ids).copy()
    ids[0] += 1 if ids[0] < 500 else -1
    return msgspec.structs.replace(step, action_ids=pack_ids(ids)) if at(step) else step


def with_version(step: StepTaken) -> StepTaken:
    versions = pack_ids([0] * (len(step.versions) // 4))
    return msgspec.structs.replace(step, versions=versions) if at(step) else step


@pytest.mark.parametrize(
    ("alter", "beyond", "not_drawn"),
    [
        (with_logprob, True, False),
        (with_seed, False, True),
        (with_token, True, True),
        (with_version, True, True),
    ],
)
async def test_what_was_altered_is_found_and_only_that(
    run: Recorded, alter: Alter, beyond: bool, not_drawn: bool
) -> None:
    report = await run.replay(await run.log(alter=alter))
    assert [(one.episode, one.step) for one in report.differing] == [("ep_1_1", 2)]
    assert (report.differing[0].beyond > 0, report.differing[0].not_drawn > 0) == (beyond, not_drawn)
    assert (report.seeds_derived == report.answers) == (alter is not with_seed)


async def test_released_weights_are_counted_and_missing_ones_apart(run: Recorded) -> None:
    log, kept = await run.log(released=True), await run.log()
    content = run.blobs.get(run.second)
    run.blobs.release(run.second)
    try:
        released = await run.replay(log)
        missing = await run.replay(kept)
    finally:
        run.blobs.put(content)
    assert (released.released, released.missing) == ({1: EPISODES * STEPS}, {})
    assert (missing.released, missing.missing) == ({}, {1: EPISODES * STEPS})
    assert released.answers == missing.answers == EPISODES * STEPS


async def test_demonstrations_and_answers_of_several_versions_are_left_out(run: Recorded) -> None:
    def changed(step: StepTaken) -> StepTaken:
        count = len(step.versions) // 4
        if step.episode == "ep_0_0":
            return msgspec.structs.replace(step, versions=pack_ids([-1] * count))
        if at(step):
            return msgspec.structs.replace(step, action_ids=pack_ids([1, 2]), versions=pack_ids([0, 1]))
        return step

    report = await run.replay(await run.log(alter=changed))
    assert (report.demonstrated, report.mixed) == (STEPS, 1)
    assert report.answers == 2 * EPISODES * STEPS - STEPS - 1


async def test_a_run_without_such_episodes_says_so(run: Recorded) -> None:
    with pytest.raises(NothingToReplay, match="has begun none of the selected episodes"):
        await run.replay(await run.log(), EpisodeSelection(families=frozenset({"nothing"})))


def test_differing_tokens_are_counted_by_place() -> None:
    assert differing_tokens([1, 2, 3], [1, 2, 3]) == 0
    assert differing_tokens([1, 2, 3], [1, 9]) == 2
    assert differing_tokens([], [1]) == 1
