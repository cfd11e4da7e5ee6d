"""Whether the episodes of a task began alike: told once, counted always, and of nobody who did not promise it."""

from typing import Any

from hindcast.actors.environments.web.starts import Starts
from hindcast.core.domain.evidence import Evidence
from hindcast.core.domain.sampling import Sampling
from hindcast.core.domain.task import Task
from hindcast.events.catalogue import EpisodeAbandoned, EpisodeEnded, EpisodeRequested, StepTaken


def asked(episode: str, **goal: Any) -> EpisodeRequested:
    task = Task(
        environment="web",
        family="reading",
        seed=0,
        instruction="Read.",
        goal={"name": "read", "resets": "per_episode", **goal},
        max_steps=3,
    )
    return EpisodeRequested(
        episode=episode,
        task=task,
        group=episode,
        member=0,
        group_size=1,
        attempt=0,
        origin="online",
        temperature=1.0,
        phase=0,
        min_version=0,
        lease_s=10.0,
    )


def seen(episode: str, digest: str, *, index: int = 0) -> StepTaken:
    return StepTaken(
        episode=episode,
        index=index,
        observation_digest=digest,
        observation=None,
        url="http://a.test/",
        world_ordinal=0,
        prompt_ids=b"",
        action_ids=b"",
        logprobs=b"",
        versions=b"",
        sampling=Sampling(temperature=1.0, max_tokens=1, seed=1),
        prompt_truncated=False,
        answer="",
        action=None,
        result="ok",
        detail="",
        observe_ms=0.0,
        generate_ms=0.0,
        act_ms=0.0,
    )


def ended(episode: str, start: str) -> EpisodeEnded:
    return EpisodeEnded(
        episode=episode,
        task_id="task_1",
        actor="actor.1",
        reason="exit",
        steps=1,
        evidence=Evidence(answer="", final_url="", probes={"start": start}),
        final_observation=None,
        policy_versions=(0, 0),
        duration_ms=1.0,
    )


def told(*facts: object) -> tuple[list[str], Starts]:
    starts = Starts()
    return [line for fact in facts if (line := starts.apply(fact)) is not None], starts


def test_a_start_that_differs_is_told_once_and_counted() -> None:
    episodes = [
        (asked(name), seen(name, digest), seen(name, "later", index=1), ended(name, ""))
        for name, digest in (("ep_1", "a"), ("ep_2", "a"), ("ep_3", "b"), ("ep_4", "c"))
    ]
    lines, starts = told(*(fact for episode in episodes for fact in episode))
    assert len(lines) == 1
    assert lines[0].startswith("read: ep_3 did not begin like ep_1 (its first page differs)")
    assert starts.unlike == {"read": 2}
    assert not starts.visits


def test_a_fingerprint_tells_instead_of_the_page() -> None:
    first, second, third = (asked(name, fingerprint="#items") for name in ("ep_1", "ep_2", "ep_3"))
    lines, starts = told(
        first,
        second,
        third,
        seen("ep_1", "a"),
        seen("ep_2", "b"),
        ended("ep_1", "same"),
        ended("ep_2", "same"),
        ended("ep_3", "other"),
    )
    assert len(lines) == 1
    assert "ep_3 did not begin like ep_1 (what its fingerprint selects differs)" in lines[0]
    assert starts.unlike == {"read": 1}


def test_where_nothing_is_reset_nothing_is_expected_and_what_was_given_up_says_nothing() -> None:
    lines, starts = told(
        asked("ep_1", resets="none"), seen("ep_1", "a"), asked("ep_2", resets="none"), seen("ep_2", "b")
    )
    assert (lines, starts.unlike) == ([], {})
    given_up = EpisodeAbandoned(episode="ep_1", task_id="task_1", reason="error", detail="", steps=0)
    lines, starts = told(asked("ep_1"), given_up, seen("ep_1", "a"), asked("ep_2"), seen("ep_2", "b"))
    assert (lines, starts.visits.keys()) == ([], {"ep_2"})
