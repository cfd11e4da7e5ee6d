"""Training of an adapter whose policy is sampled on a real vLLM server: role, engine and learner, without a browser.

The episodes are made up, but for what the policy says in them: that is asked of the server, which has each version by a name
of its own.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random

import httpx2
import msgspec
import pytest

from bench.untied import write_untied
from hindcast.actors.engines.base import Generation, PolicyEngine
from hindcast.actors.engines.rescorer import GivenAnswer, Rescorer
from hindcast.actors.engines.vllm.weights import label_of
from hindcast.actors.episodes.weight_adoption import Adoption, newest_policy, version_of
from hindcast.actors.policy_servers.command import SERVED
from hindcast.app.runs.runs import RunHandle
from hindcast.app.settings.configuration import resolve
from hindcast.app.system.listen_addresses import POLICY_FILE, base_url_in
from hindcast.app.system.policy_servers import keep_servers, opened_engine
from hindcast.core.domain.arrays import pack_floats, pack_ids, unpack_ids
from hindcast.core.domain.sampling import Sampling
from hindcast.core.models.policy import WEIGHTS
from hindcast.core.settings.schema import LogSettings
from hindcast.events.catalogue import PolicyServerTroubled, StepTaken, UpdateApplied, WeightsPublished
from hindcast.events.log.memory import MemoryLog
from hindcast.events.log.publisher import Publisher
from hindcast.events.log.run_identity import log_name
from hindcast.learner.numerics import configure
from hindcast.learner.verify.verify import verify
from stories.training_story import RUN, Bench, Story, Told, events_of, informative, learn, tell

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(3600)]

VERSIONS = 3
"""That are trained and sampled from, beside the first."""
SETTINGS = {
    "policy.engine": "vllm",
    "policy.max_batch": "8",
    "run.seed": "3",
    "curriculum.group_size": "4",
    "curriculum.max_attempts": "1",
    "learner.lora_rank": "4",
    # of this size an update moves log-probabilities far beyond rounding, so that another adapter's would be noticed
    "learner.lora_alpha": "16",
    "learner.learning_rate": "0.02",
    "learner.warmup_updates": "0",
    "learner.options.group_batch": "1",
    "learner.minibatches": "1",
    "learner.epochs": "1",
    "learner.options.rehearsal_episodes": "0",
    "vllm.start_timeout_s": "2400",
    "actors.generate_timeout_s": "1200",
}
AGREES = 1e-3
"""Largest difference of a log-probability in float32; 3e-5 was seen."""
UNDER_WAY = 64
"""Tokens of answers under way after which another adapter comes: more than one step of the server comes to."""

Answers = list[tuple[GivenAnswer, Generation]]


class Training:
    """A run whose episodes are answered by a server that its own role keeps."""

    def __init__(self, handle: RunHandle, made: Bench, engine: PolicyEngine, adoption: Adoption) -> None:
        self.made = made
        self.engine = engine
        self._handle = handle
        self._adoption = adoption
        self._random = Random(1)
        self._rescorer = Rescorer(made.policy, threads=1, tokens_per_forward=4096)

    async def ask(self, prompts: Sequence[list[int]], *, tokens: int) -> Answers:
        """One answer to each, of so many tokens at most."""
        samplings = [
            Sampling(temperature=1.0, max_tokens=tokens, seed=self._random.getrandbits(32)) for _ in prompts
        ]
        asked = list(zip(prompts, samplings, strict=True))
        found = await asyncio.gather(*(self.engine.generate(*one) for one in asked))
        return [
            (
                GivenAnswer(
                    prompt_ids=prompt,
                    action_ids=answer.token_ids,
                    logprobs=answer.logprobs,
                    sampling=sampling,
                    allowed=answer.allowed,
                ),
                answer,
            )
            for (prompt, sampling), answer in zip(asked, found, strict=True)
        ]

    async def play(self) -> Answers:
        """A group of episodes that the learner can learn from, its steps answered by the policy."""
        told = self.made.story.group(*informative(version=self.engine.version))
        steps = [fact for _, _, fact in told if isinstance(fact, StepTaken)]
        answers = await self.ask([unpack_ids(step.prompt_ids).tolist() for step in steps], tokens=16)
        answered = {
            id(step): msgspec.structs.replace(
                step,
                action_ids=pack_ids(answer.token_ids),
                logprobs=pack_floats(answer.logprobs),
                versions=pack_ids(answer.versions),
                sampling=given.sampling,
            )
            for step, (given, answer) in zip(steps, answers, strict=True)
        }
        await tell(
            self.made.log,
            [Told(role, entity, answered.get(id(fact), fact)) for role, entity, fact in told],
        )
        return answers

    async def update(self) -> None:
        """Learn from what was played, and adopt what was published."""
        await learn(self.made, until=self.engine.version + 1)
        published = newest_policy(await events_of(self.made.log))
        assert published is not None
        assert version_of(published) == self.engine.version + 1
        await self._adoption.take(published)

    async def largest_difference(self, answers: Answers, version: int) -> float:
        """Of their log-probabilities from those that a version gives."""
        weights = self.made.policy / WEIGHTS
        for recorded in await events_of(self.made.log):
            fact = recorded.fact
            if version and isinstance(fact, WeightsPublished) and fact.version == version:
                weights = self.made.blobs.path(fact.weights)
        self._rescorer.load(weights)
        scored = self._rescorer.rescore([given for given, _ in answers])
        return max(difference for one in scored for difference in one.differences)

    async def look(self, path: str) -> httpx2.Response:
        """What the server says of itself."""
        address = base_url_in(self._handle.home / POLICY_FILE)
        async with httpx2.AsyncClient(trust_env=False, timeout=60) as client:
            return (await client.get(f"{address}{path}")).raise_for_status()

    async def names(self) -> list[str]:
        """What the server can be asked for."""
        return [model["id"] for model in (await self.look("/v1/models")).json()["data"]]

    async def sampled(self) -> float:
        """Tokens that it has sampled so far, as it counts them."""
        lines = (await self.look("/metrics")).text.splitlines()
        (line,) = [line for line in lines if line.startswith("vllm:generation_tokens_total")]
        return float(line.rpartition(" ")[2])


@asynccontextmanager
async def training(folder: Path) -> AsyncIterator[Training]:
    configure(1)
    policy = write_untied(folder / "policy", seed=0, width=64, inner=128, layers=2, heads=2, spread=0.1)
    overrides = [f"{name}={value}" for name, value in SETTINGS.items()]
    resolved = resolve(environment={}, overrides=[f"policy.base={policy}", *overrides])
    handle = RunHandle(folder / "home", RUN, resolved)
    made = Bench(MemoryLog(RUN), handle.blobs, policy, Story(policy))
    await tell(made.log, [made.story.start(made.blobs, resolved.settings)])

    def publisher(producer: str) -> Publisher:
        return Publisher(made.log, producer=producer, code_rev="test", settings=LogSettings())

    async with (
        publisher("policy_server.1") as keeping,
        publisher("actor.2") as acting,
        asyncio.TaskGroup() as tasks,
    ):
        role = tasks.create_task(keep_servers(handle, made.log, keeping, ready=lambda _: None))
        async with opened_engine(handle, made.log, acting) as engine:
            adoption = Adoption(actor="actor.2", engine=engine, publisher=acting, blobs=made.blobs)
            yield Training(handle, made, engine, adoption)
        role.cancel()


def versions_of(answers: Answers) -> set[int]:
    return {version for _, answer in answers for version in answer.versions}


async def test_an_adapter_is_trained_on_answers_of_each_of_its_versions_and_the_run_verifies(
    tmp_path: Path,
) -> None:
    async with training(tmp_path) as run:
        for version in range(VERSIONS):
            answers = await run.play()
            assert versions_of(answers) == {version}
            assert await run.largest_difference(answers, version) < AGREES
            if version == VERSIONS - 1:
                already = await run.sampled()
                prompts = [given.prompt_ids for given, _ in answers[:4]]
                asking = asyncio.create_task(run.ask(prompts, tokens=400))
                while await run.sampled() < already + UNDER_WAY and not asking.done():  # noqa: ASYNC110 - servers tell nobody
                    await asyncio.sleep(0.05)
            await run.update()
        answers = await run.play()
        assert versions_of(answers) == {VERSIONS}
        assert await run.largest_difference(answers, VERSIONS) < AGREES
        for version in range(VERSIONS):
            assert await run.largest_difference(answers, version) > 10 * AGREES, "it would be noticed"
        under_way = await asking
        assert versions_of(under_way) == {VERSIONS - 1}, "they end with the adapter they began with"
        assert await run.largest_difference(under_way, VERSIONS - 1) < AGREES
        log = await log_name(run.made.log)
        assert await run.names() == [SERVED, label_of(log, VERSIONS - 1), label_of(log, VERSIONS)]

    facts = [recorded.fact for recorded in await events_of(run.made.log)]
    updates = [fact for fact in facts if isinstance(fact, UpdateApplied)]
    assert len(updates) == VERSIONS
    print(f"mismatch_kl of the updates: {[fact.metrics['mismatch_kl'] for fact in updates]}")
    assert max(fact.metrics["mismatch_kl"] for fact in updates) < AGREES**2
    assert not [fact for fact in facts if isinstance(fact, PolicyServerTroubled)]
    verified = await verify(run.made.log, run.made.blobs, policy=run.made.policy)
    assert verified.identical, verified
    assert verified.updates == VERSIONS
