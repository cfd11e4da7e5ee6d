"""What a log mostly holds, for measuring it: steps of about a kilobyte, and the facts round their episodes.

Pure and seeded. Per episode a request, a start, `STEPS` steps, an end and a verdict; per group a sweep, so that a fold
lets go of it as it would in a run.
"""

from collections.abc import Iterator
from random import Random
from typing import NamedTuple

from hindcast.core.domain.action import Action
from hindcast.core.domain.arrays import pack_floats, pack_ids
from hindcast.core.domain.evidence import Evidence, Judgment
from hindcast.core.domain.sampling import Sampling
from hindcast.core.domain.task import Task
from hindcast.core.ids import digest_hex
from hindcast.core.seeds import derive_id
from hindcast.events.catalogue import (
    EpisodeEnded,
    EpisodeJudged,
    EpisodeRequested,
    EpisodeStarted,
    SamplesSwept,
    StepTaken,
)
from hindcast.events.catalogue.verdict import JudgeIdentity
from hindcast.events.envelope import BlobRef, Fact

STEPS = 8
"""Steps of an episode."""
TOKENS = 64
"""Tokens of an answer, with a log-probability and a version each."""
PROMPT_TOKENS = 32
"""Enough to bring the whole event to about a kilobyte and a half; real prompts are longer."""
GROUP = 8
"""Episodes of a group."""


class Said(NamedTuple):
    """A fact, and the role and entity that it is recorded by and about."""

    role: str
    entity: str
    fact: Fact


def group_facts(number: int, *, seed: int = 0) -> Iterator[Said]:
    """The facts of one group of episodes, in an order that they can stand in."""
    random = Random(f"{seed} {number}")
    task = Task(
        environment="store",
        family="find_price",
        seed=number,
        instruction=f"What does article {number} cost?",
        goal={"price": number},
        max_steps=STEPS,
    )
    group = derive_id("g", seed, number)
    episodes = [derive_id("ep", seed, number, member) for member in range(GROUP)]
    for member, episode in enumerate(episodes):
        yield Said("curriculum", episode, requested(task, group, member, episode))
    for episode in episodes:
        started = EpisodeStarted(
            episode=episode, actor="actor.1", instruction=task.instruction, renderer="lines/1"
        )
        yield Said("actor", episode, started)
        for index in range(STEPS):
            yield Said("actor", episode, _step(random, episode, index))
        yield Said("actor", episode, _ended(task, episode, number))
    for episode in episodes:
        judgment = Judgment(outcome="success", reward=1.0, reason="the answer names the price")
        judge = JudgeIdentity(name="rules", version="1")
        judged = EpisodeJudged(episode=episode, task_id=task.id, judge=judge, judgment=judgment)
        yield Said("judge", f"{episode}.rules", judged)
    yield Said("learner", str(number), SamplesSwept(episodes=tuple(episodes), reason="stale", version=number))


def requested(task: Task, group: str, member: int, episode: str) -> EpisodeRequested:
    """The request of an episode for training: member `member` of a group of `GROUP`."""
    return EpisodeRequested(
        episode=episode,
        task=task,
        group=group,
        member=member,
        group_size=GROUP,
        attempt=0,
        origin="online",
        temperature=1.0,
        phase=0,
        min_version=0,
        lease_s=180.0,
    )


def _step(random: Random, episode: str, index: int) -> Fact:
    return StepTaken(
        episode=episode,
        index=index,
        observation_digest=digest_hex(random.randbytes(8)),
        observation=BlobRef(digest_hex(random.randbytes(8)), 4096),
        url=f"http://127.0.0.1/article/{random.randrange(400)}",
        world_ordinal=index,
        prompt_ids=pack_ids([random.randrange(8000) for _ in range(PROMPT_TOKENS)]),
        action_ids=pack_ids([random.randrange(8000) for _ in range(TOKENS)]),
        logprobs=pack_floats([-random.random() for _ in range(TOKENS)]),
        versions=pack_ids([index] * TOKENS),
        sampling=Sampling(temperature=1.0, max_tokens=TOKENS, seed=random.getrandbits(62)),
        prompt_truncated=False,
        answer='do(action="Click", element="17")',
        action=Action(name="Click", element=17),
        result="ok",
        detail="",
        observe_ms=11.25,
        generate_ms=40.5,
        act_ms=8.75,
    )


def _ended(task: Task, episode: str, number: int) -> Fact:
    return EpisodeEnded(
        episode=episode,
        task_id=task.id,
        actor="actor.1",
        reason="exit",
        steps=STEPS,
        evidence=Evidence(answer=str(number), final_url="http://127.0.0.1/orders", probes={"cart": []}),
        final_observation=None,
        policy_versions=(0, STEPS),
        duration_ms=1234.5,
    )
