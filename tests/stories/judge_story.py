"""Episodes to judge, and a judge process in virtual time that judges them."""

import asyncio
from collections.abc import Mapping
from pathlib import Path

import msgspec

from fakes.virtual_time import clock_ns, clock_s, run_virtually
from hindcast.actors.judges.base import Judge, Verdict
from hindcast.actors.judges.judged_episode import EpisodeTranscript, JudgedEpisode
from hindcast.actors.judges.role import run_judge
from hindcast.actors.judges.rules import RuleJudge
from hindcast.actors.queue_worker import author_key
from hindcast.core.domain.arrays import pack_floats, pack_ids
from hindcast.core.domain.evidence import Evidence, Judgment
from hindcast.core.domain.observation import Node, Page
from hindcast.core.domain.sampling import Sampling
from hindcast.core.domain.task import Task
from hindcast.events.catalogue import EpisodeEnded, EpisodeJudged, EpisodeRequested, EpisodeStarted, StepTaken
from hindcast.events.envelope import BlobRef, Fact
from hindcast.events.log.memory import MemoryLog
from hindcast.events.log.publisher import Publisher
from hindcast.events.log.reader import read
from hindcast.storage.blobs.store import BlobStore
from stories.curriculum_story import SOURCES, settings_of

TASK = SOURCES["shop"].task("buy", 3)
EVIDENCE = Evidence(answer="yes", final_url="http://shop/", probes={"bought": 3})
INSTRUCTION = "Buy the brass lamp."
NO_BLOBS = BlobStore(Path("nowhere"))


def evaluate(task: Task, evidence: Evidence) -> Judgment:
    good = evidence.probes["bought"] == task.seed
    return Judgment(outcome="success" if good else "failure", reward=float(good), reason="bought")


RULES = RuleJudge({"shop": evaluate})


def requested(episode: str, task: Task = TASK) -> EpisodeRequested:
    return EpisodeRequested(
        episode=episode,
        task=task,
        group="g",
        member=0,
        group_size=1,
        attempt=0,
        origin="online",
        temperature=1.0,
        phase=0,
        min_version=0,
        lease_s=60,
    )


def ended(episode: str, evidence: Evidence = EVIDENCE, task: Task = TASK) -> EpisodeEnded:
    return EpisodeEnded(
        episode=episode,
        task_id=task.id,
        actor="actor.1",
        reason="exit",
        steps=1,
        evidence=evidence,
        final_observation=None,
        policy_versions=(0, 0),
        duration_ms=1.0,
    )


def judge_all(
    *facts: Fact, judges: Mapping[str, Judge] | None = None, times: int = 1, blobs: BlobStore = NO_BLOBS
) -> list[Fact]:
    """Append the facts, let a judge run until nothing happens any more, and give back what it appended."""

    async def main() -> list[Fact]:
        log = MemoryLog("r", clock=clock_s)
        known = judges or {"rules": RULES}
        settings = settings_of(judge={"timeout_s": 5, "judges": tuple(known)})
        async with publisher(log, "story") as story:
            for fact in facts:
                entity = getattr(fact, "episode", "e")
                if isinstance(fact, EpisodeJudged):
                    entity = author_key(entity, fact.judge)
                await story.publish(fact, entity=entity)
        for number in range(times):
            stop = asyncio.Event()
            async with publisher(log, f"judge.{number}") as mine, asyncio.TaskGroup() as tasks:
                queue = await log.open_queue(f"judges {number}", family="episode_end")
                tasks.create_task(
                    run_judge(
                        log=log,
                        publisher=mine,
                        queue=queue,
                        settings=settings,
                        blobs=blobs,
                        stop=stop,
                        judges=known,
                    )
                )
                await asyncio.sleep(300)
                stop.set()
        return [recorded.fact async for recorded in read(log, after=len(facts))]

    return run_virtually(main())


def publisher(log: MemoryLog, name: str) -> Publisher:
    return Publisher(log, producer=name, code_rev="", settings=settings_of().log, clock_ns=clock_ns)


def judged_episode(
    task: Task | None = TASK, evidence: Evidence = EVIDENCE, *, transcript: EpisodeTranscript | None = None
) -> JudgedEpisode:
    """An episode that no log holds."""

    async def read_it() -> EpisodeTranscript | None:
        return transcript

    return JudgedEpisode(task, evidence, read_it)


async def verdict_of(judge: Judge, transcript: EpisodeTranscript) -> Verdict:
    """A judge's verdict on an episode of which only the transcript is known."""
    return await judge.judge(judged_episode(None, transcript=transcript))


def page(words: int = 3) -> Page:
    nodes = tuple(Node(kind="text", tag="p", text=f"word {number}") for number in range(words))
    return Page(url="http://shop/cart", title="Cart", nodes=nodes)


def story_of(name: str, blobs: BlobStore, *, answers: int = 2, gone: bool = False) -> list[Fact]:
    """An episode from its request to its end."""
    final = blobs.put(msgspec.msgpack.encode(page(5)))
    if gone:
        final = BlobRef("0" * 64, 10)
    return [
        EpisodeRequested(
            episode=name,
            task=TASK,
            group="g",
            member=0,
            group_size=1,
            attempt=0,
            origin="online",
            temperature=1.0,
            phase=0,
            min_version=0,
            lease_s=60,
        ),
        EpisodeStarted(episode=name, actor="actor.1", instruction=INSTRUCTION, renderer="lines/1"),
        *(step(name, index) for index in range(answers)),
        EpisodeEnded(
            episode=name,
            task_id=TASK.id,
            actor="actor.1",
            reason="exit",
            steps=answers,
            evidence=Evidence(answer="", final_url="http://shop/cart", probes={}),
            final_observation=final,
            policy_versions=(0, 0),
            duration_ms=1.0,
        ),
    ]


def step(name: str, index: int) -> StepTaken:
    return StepTaken(
        episode=name,
        index=index,
        observation_digest="",
        observation=None,
        url="",
        world_ordinal=0,
        prompt_ids=pack_ids([1]),
        action_ids=pack_ids([2]),
        logprobs=pack_floats([-0.5]),
        versions=pack_ids([0]),
        sampling=Sampling(temperature=1.0, max_tokens=8, seed=1),
        prompt_truncated=False,
        answer=f"answer {index} of {name}",
        action=None,
        result="parse_failure",
        detail="",
        observe_ms=0.0,
        generate_ms=0.0,
        act_ms=0.0,
    )


async def append(log: MemoryLog, *facts: Fact) -> None:
    async with publisher(log, "story") as story:
        for fact in facts:
            await story.publish(fact, entity=getattr(fact, "episode", "e"))
