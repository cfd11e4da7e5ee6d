"""Known faults of training, found in a log: each in a log that has it, and not in one without it."""

from collections.abc import Iterable
from typing import Any

import pytest

from hindcast.core.domain.arrays import pack_floats, pack_ids
from hindcast.storage.audit.decoder import Event
from hindcast.storage.audit.suspicions import Suspicion, Suspicions

Told = tuple[str, dict[str, Any]]


def found(told: Iterable[Told]) -> dict[str, Suspicion]:
    fold = Suspicions()
    for position, (kind, payload) in enumerate(told, 1):
        known = dict.fromkeys(Event._fields, "") | {"position": position, "type": kind, "payload": payload}
        fold.take(Event(**known))  # type: ignore[arg-type]
    return {one.name: one for one in fold.report()}


def requested(name: str, origin: str = "imported") -> Told:
    return "episode.requested", {"episode": name, "origin": origin}


def stepped(name: str, prompt: list[int], answer: list[int], *, parsed: bool = True, most: int = 8) -> Told:
    return "step.taken", {
        "episode": name,
        "prompt_ids": pack_ids(prompt),
        "action_ids": pack_ids(answer),
        "logprobs": pack_floats([-1.0] * len(answer)),
        "action": {} if parsed else None,
        "sampling": {"max_tokens": most},
    }


def ended(name: str, *, version: int = -1, reason: str = "done", reward: float = 0.0, **probes: Any) -> Told:
    scores = {"reward": {"value": reward}}
    return "episode.ended", {
        "episode": name,
        "reason": reason,
        "policy_versions": (version, version),
        "evidence": {"probes": {"scores": scores} | probes},
    }


def judged(name: str, outcome: str) -> Told:
    return "episode.judged", {"episode": name, "judgment": {"outcome": outcome}}


def planned(*names: str) -> Told:
    return "batch.planned", {"model": "policy", "episodes": [{"episode": name} for name in names]}


def published(version: int) -> Told:
    return "weights.published", {"model": "policy", "version": version}


@pytest.mark.parametrize("origin", ["online", "imported"])
def test_a_sampler_that_keeps_its_first_version_is_named(origin: str) -> None:
    def run(of: Any) -> list[Told]:
        told = [published(0)]
        for number in range(40):
            if origin == "online":
                told.append(published(number // 4 + 1))
            name = f"ep_{number}"
            told += [
                requested(name, origin),
                ended(name, version=of(number), trainer_version=number // 4 + 1),
            ]
        return told

    pinned = found(run(lambda _: 0))["pinned_sampler"]
    assert "version 0 sampled it" in pinned.what
    assert not found(run(lambda number: number // 4))


def test_an_error_that_counts_as_a_failure_is_named() -> None:
    lost = [requested("ep_1"), ended("ep_1", error="the sandbox died")]
    assert found(lost)["errors_as_failures"].episodes == 1
    assert not found([requested("ep_1"), ended("ep_1", error="the sandbox died", trained=False)])
    assert not found([requested("ep_1"), ended("ep_1", error="the sandbox died", reward=1.0)])
    assert not found([requested("ep_1"), ended("ep_1")])
    given_up = [requested("ep_1", "online"), ("episode.abandoned", {"episode": "ep_1"})]
    assert found([*given_up, judged("ep_1", "failure")])["errors_as_failures"].position == 3
    assert not found([*given_up, judged("ep_1", "undecided")])


def test_prompts_that_a_resume_lost_are_named() -> None:
    def run(*first: Told) -> list[Told]:
        later = [f"ep_{number}" for number in range(50)]
        rest = [one for name in later for one in (requested(name, "online"), ended(name, version=0))]
        return [published(0), requested("ep_lost", "online"), ("run.resumed", {}), *first, *rest]

    lost = found(run())["lost_prompts"]
    assert (lost.position, lost.episodes) == (2, 1)
    assert not found(run(("episode.abandoned", {"episode": "ep_lost"})))
    assert not found(run()[:40]), "it may still end"


def test_failures_that_a_limit_decided_are_named() -> None:
    def imported(cut: int, whole: int, **probes: Any) -> list[Told]:
        reasons = ["max_steps"] * cut + ["done"] * whole
        names = enumerate(reasons)
        return [
            one
            for number, reason in names
            for one in (requested(f"ep_{number}"), ended(f"ep_{number}", reason=reason, **probes))
        ]

    assert found(imported(5, 20))["truncated_failures"].episodes == 5
    assert not found(imported(4, 20)), "few"
    assert not found(imported(5, 60)), "a small share"
    assert not found(imported(5, 20, trained=False))
    assert not found(imported(5, 20, reward=1.0))


def test_in_a_run_of_ours_only_answers_that_the_token_limit_cut_count() -> None:
    def run(length: int, *, trained: bool = True, reason: str = "done") -> list[Told]:
        told: list[Told] = [published(0)]
        names = [f"ep_{number}" for number in range(6)]
        for name in names:
            told += [
                requested(name, "online"),
                stepped(name, [1], [2] * length, parsed=False),
                ended(name, version=0, reason=reason),
                judged(name, "failure"),
            ]
        return [*told, *([planned(*names)] if trained else [])]

    assert found(run(8))["truncated_failures"].episodes == 6
    assert not found(run(7, reason="max_steps")), "the step limit belongs to the task"
    assert not found(run(8, trained=False))


def test_a_prompt_with_other_tokens_than_were_sampled_is_named() -> None:
    def run(second: list[int]) -> list[Told]:
        return [
            requested("ep_1"),
            stepped("ep_1", [1, 2], [3, 4]),
            stepped("ep_1", second, [6]),
            ended("ep_1"),
        ]

    assert found(run([1, 2, 34, 5, 5]))["token_mismatch"].position == 3
    assert not found(run([1, 2, 3, 4, 5]))
    assert not found(run([1, 9, 3, 4, 5])), "another prompt repeats nothing"
