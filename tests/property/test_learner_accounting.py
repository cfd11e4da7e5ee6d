"""Whatever becomes of episodes, and whenever the learner looks: none is trained twice, none is forgotten."""

from collections import Counter
from hashlib import sha256
from typing import Any, NamedTuple

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fakes.bare_step import bare_step
from hindcast.core.domain.evidence import Evidence, Judgment, Outcome
from hindcast.core.domain.task import Task
from hindcast.core.settings.changes import decode_settings
from hindcast.core.settings.schema import Settings
from hindcast.events.catalogue import (
    BatchPlanned,
    EpisodeAbandoned,
    EpisodeCancelled,
    EpisodeEnded,
    EpisodeJudged,
    EpisodeRequested,
    EpisodeStarted,
    RunStarted,
    SamplesSwept,
    WeightsPublished,
)
from hindcast.events.catalogue.verdict import JudgeIdentity
from hindcast.events.envelope import BlobRef, Envelope, Fact, Recorded
from hindcast.learner.batch_plan import plan, sweep
from hindcast.learner.buffer.replay_buffer import ReplayBuffer
from hindcast.learner.numerics import fingerprint

pytestmark = pytest.mark.torch

TASK = Task(environment="store", family="find", seed=1, instruction="", goal={}, max_steps=9)
BLOB = BlobRef("0" * 64, 1)
SIZE = 3


class Fate(NamedTuple):
    """What becomes of one attempt."""

    end: str
    reward: float
    steps: int
    outcome: Outcome


fates = st.builds(
    Fate,
    st.sampled_from(["ended", "ended", "ended", "abandoned", "cancelled"]),
    st.sampled_from([0.0, 0.0, 0.5, 1.0]),
    st.integers(0, 3),
    st.sampled_from(["decided", "decided", "decided", "undecided"]),  # type: ignore[arg-type]
)


class World:
    """A learner's buffer and everything around it, without a log: facts are folded as they are told."""

    def __init__(self, chosen: Settings) -> None:
        self.settings = chosen
        self.buffer = ReplayBuffer()
        self.state = self.buffer.initial()
        self.fate: dict[str, list[str]] = {}
        """Ended online episodes: what the learner's facts say about each."""
        self.tell(
            RunStarted(
                settings=chosen.model_dump(mode="json"),
                recipe="",
                run_seed=1,
                packages={},
                fingerprint=fingerprint(1),
                base_policy=BLOB,
                base_policy_name="",
                behaviour={},
            )
        )
        self.tell(WeightsPublished(version=0, model="policy", weights=BLOB, update=0))

    def tell(self, fact: Fact) -> None:
        """Fold one fact."""
        position = self.state.position + 1
        envelope: dict[str, Any] = dict.fromkeys(Envelope.__struct_fields__, "")
        digest = sha256(str(position).encode()).digest()
        recorded = Recorded(position, Envelope(**(envelope | {"payload": msgspec.Raw(b"")})), fact, digest)
        self.state = self.buffer.apply(self.state, recorded)

    def play(self, episode: str, fate: Fate) -> None:
        """Steps, an end, a verdict."""
        self.tell(EpisodeStarted(episode=episode, actor="", instruction="", renderer=""))
        for index in range(fate.steps):
            self.tell(bare_step(episode, index, version=self.state.version))
        if fate.end == "abandoned":
            self.tell(EpisodeAbandoned(episode=episode, task_id="", reason="error", detail="", steps=0))
        elif fate.end == "cancelled":
            self.tell(EpisodeCancelled(episode=episode, task_id="", reason="stale", detail=""))
        else:
            self.fate[episode] = []
            self.tell(ended(episode, fate.steps))
            outcome: Outcome = "undecided"
            if fate.outcome != "undecided":
                outcome = "success" if fate.reward > 0 else "failure"
            judgment = Judgment(outcome=outcome, reward=fate.reward, reason="")
            judge = JudgeIdentity(name="rules", version="1")
            self.tell(EpisodeJudged(episode=episode, task_id="", judge=judge, judgment=judgment))

    def learn(self) -> None:
        """Sweep, and train a batch if there is one."""
        while swept := sweep(self.state, self.settings):
            self.note(swept[0])
            self.tell(swept[0])
        made = plan(self.state, self.settings)
        if made is not None:
            self.note(made)
            self.tell(made)
            version = self.state.version + 1
            self.tell(WeightsPublished(version=version, model="policy", weights=BLOB, update=version))

    def note(self, fact: SamplesSwept | BatchPlanned) -> None:
        """What a fact of the learner says about episodes."""
        if isinstance(fact, SamplesSwept):
            told = [(name, fact.reason) for name in fact.episodes]
        else:
            self.check_replays(fact)
            told = [(planned.episode, "trained") for planned in fact.episodes if planned.replaces is None]
            told += [(name, "consumed") for name in fact.consumed]
        for name, what in told:
            self.fate[name].append(what)

    def check_replays(self, fact: BatchPlanned) -> None:
        """A replay was used up before, replaces one member that is given up, and is the group's only one."""
        replays = [planned for planned in fact.episodes if planned.replaces is not None]
        assert len({replay.group for replay in replays}) == len(replays)
        for replay in replays:
            assert self.fate[replay.episode], "it was not used up before"
            assert replay.reward > 0.1
            assert replay.replaces in fact.consumed
            assert replay.group == f"g{str(replay.replaces).split('_')[1]}"
            others = [one.reward for one in fact.episodes if one.group == replay.group and one is not replay]
            assert others == [0.0] * len(others)


def ended(episode: str, steps: int) -> EpisodeEnded:
    return EpisodeEnded(
        episode=episode,
        task_id="",
        actor="",
        reason="exit",
        steps=steps,
        evidence=Evidence(answer=None, final_url="", probes={}),
        final_observation=None,
        policy_versions=(0, 0),
        duration_ms=0,
    )


def request(world: World, group: int, member: int, attempt: int) -> str:
    episode = f"ep_{group}_{member}_{attempt}"
    world.tell(
        EpisodeRequested(
            episode=episode,
            task=TASK,
            group=f"g{group}",
            member=member,
            group_size=SIZE,
            attempt=attempt,
            origin="online",
            temperature=1.0,
            phase=0,
            min_version=0,
            lease_s=1.0,
        )
    )
    return episode


@settings(max_examples=120, deadline=None)
@given(
    groups=st.lists(
        st.lists(st.lists(fates, min_size=2, max_size=2), min_size=SIZE, max_size=SIZE),
        min_size=1,
        max_size=9,
    ),
    order=st.randoms(use_true_random=False),
    algorithm=st.sampled_from(["grpo", "cloning"]),
    replay=st.sampled_from(["off", "random", "first"]),
    staleness=st.integers(0, 2),
)
def test_every_episode_that_ended_is_trained_on_or_given_up_exactly_once(
    groups: list[list[list[Fate]]], order: Any, algorithm: str, replay: str, staleness: int
) -> None:
    world = World(
        decode_settings(
            {
                "curriculum": {"group_size": SIZE, "max_attempts": 2},
                "learner": {
                    "algorithm": algorithm,
                    "group_batch": 2,
                    "max_staleness": staleness,
                    "minibatches": 1,
                    "success_replay": replay,
                    "replay_memory": 2,
                    "cloning_batch": 2,
                    "cloning_epochs": 1,
                },
            }
        )
    )
    waiting = [(g, m, 0) for g, members in enumerate(groups) for m in range(len(members))]
    while waiting:
        group, member, attempt = waiting.pop(order.randrange(len(waiting)))
        fate = groups[group][member][attempt]
        world.play(request(world, group, member, attempt), fate)
        if fate.end == "abandoned" and attempt == 0:
            waiting.append((group, member, 1))
        if order.random() < 0.5:
            world.learn()
    for _ in range(len(groups) + 1):
        world.learn()
    told_twice = {name: what for name, what in world.fate.items() if len(what) > 1}
    assert not told_twice
    silent = {name for name, what in world.fate.items() if not what}
    kept = {e.id for e in world.state.episodes.values() if e.ended and not e.swept}
    assert silent == kept  # what is not spoken of is still there to be trained on
    if algorithm == "grpo":
        informative = [g for g in world.state.complete if g in world.state.groups]
        assert len(informative) < 2  # else there would have been a plan
    held = sum(len(episode.samples) for episode in world.state.episodes.values())
    assert held == sum(world.state.episodes[name].steps for name in kept)
    assert Counter(len(what) for what in world.fate.values()).keys() <= {0, 1}
