"""Mappers of tasks, episodes, steps and verdicts."""

from collections.abc import Callable, Iterable
from itertools import groupby
from struct import unpack

from hindcast.core.domain.sampling import Scaffolded
from hindcast.core.domain.task import Task
from hindcast.events.catalogue import (
    EpisodeAbandoned,
    EpisodeCancelled,
    EpisodeEnded,
    EpisodeJudged,
    EpisodeRequested,
    EpisodeStarted,
    StateValued,
    StepTaken,
    TaskAdmitted,
    TaskChecked,
    TaskProposed,
    TaskRejected,
)
from hindcast.events.catalogue.episode import Screenshot
from hindcast.events.envelope import Recorded
from hindcast.storage.readmodel.mapping.run import consultation
from hindcast.storage.readmodel.row_operations import (
    CopiedValue,
    Ensure,
    Insert,
    Operation,
    Put,
    Values,
    clean_text,
    finite,
    small_integer,
    to_json,
)

TERMINAL = ("ended", "abandoned", "cancelled")
"""Final states of an episode: an actor may start a request that is cancelled at the same moment."""
JUDGED_ABOUT = (
    "origin",
    "environment",
    "family",
    "task",
    "phase",
    "revisits",
    "version_low",
    "version_high",
    "terminal_ns",
)
"""Columns of the episode that are copied next to the first verdict on it."""
ID_BYTES = 4
"""Token ids and versions are packed as int32."""


def _task_values(task: Task) -> Values:
    return {
        "environment": task.environment,
        "family": task.family,
        "seed": small_integer(task.seed),
        "instruction": clean_text(task.instruction),
        "goal": to_json(task.goal),
        "max_steps": task.max_steps,
    }


def _task_proposed(recorded: Recorded, fact: TaskProposed) -> Iterable[Operation]:
    values = _task_values(fact.task)
    values.update(source=fact.source, parents=to_json(fact.parents), state="proposed")
    if fact.phase is not None:
        values.update(phase=fact.phase, generator=clean_text(fact.generator), change=clean_text(fact.change))
    yield Put("tasks", (fact.task.id,), values)
    for index, parent in enumerate(fact.parents):
        yield Insert("task_parents", {"place": index, "task": fact.task.id, "parent": parent})
    yield from consultation(recorded, "task", fact.task.id, fact.consulted)


def _task_admitted(_recorded: Recorded, fact: TaskAdmitted) -> Iterable[Operation]:
    values = {"state": "admitted", "phase": fact.phase, "value": finite(fact.value)}
    return (Put("tasks", (fact.task_id,), values),)


def _task_rejected(_recorded: Recorded, fact: TaskRejected) -> Iterable[Operation]:
    values = {"state": "rejected", "reason": clean_text(fact.reason), "value": finite(fact.value)}
    return (Put("tasks", (fact.task_id,), values),)


def _task_checked(recorded: Recorded, fact: TaskChecked) -> Iterable[Operation]:
    feasibility = {True: "feasible", False: "infeasible", None: "unchecked"}[fact.feasible]
    yield Put("tasks", (fact.task_id,), {"checked": clean_text(f"{feasibility}: {fact.reason}")})
    yield from consultation(recorded, "feasibility", fact.task_id, fact.consulted)


def _state_valued(_recorded: Recorded, fact: StateValued) -> Iterable[Operation]:
    return (Put("tasks", (fact.task_id,), {"value": finite(fact.value)}),)


def _episode_requested(recorded: Recorded, fact: EpisodeRequested) -> Iterable[Operation]:
    task = fact.task
    task_id = task.id
    task_values = _task_values(task)
    task_values["state"] = "unlisted"
    return (
        Ensure("tasks", (task_id,), task_values),
        Put(
            "episodes",
            (fact.episode,),
            {
                "task": task_id,
                "environment": task.environment,
                "family": task.family,
                "group_id": fact.group,
                "member": fact.member,
                "group_size": fact.group_size,
                "attempt": fact.attempt,
                "branch_episode": fact.branch.episode if fact.branch else None,
                "branch_step": fact.branch.step if fact.branch else None,
                "origin": fact.origin,
                "temperature": finite(fact.temperature),
                "phase": fact.phase,
                "revisits": fact.revisits,
                "min_version": fact.min_version,
                "lease_s": finite(fact.lease_s),
                "state": "requested",
                "requested_position": recorded.position,
                "requested_ns": recorded.envelope.occurred_ns,
            },
        ),
    )


def _episode_started(recorded: Recorded, fact: EpisodeStarted) -> Iterable[Operation]:
    values = {
        "state": "started",
        "actor": fact.actor,
        "instruction": clean_text(fact.instruction),
        "renderer": fact.renderer,
        "started_ns": recorded.envelope.occurred_ns,
    }
    return (Put("episodes", (fact.episode,), values, final={"state": TERMINAL}),)


def _scaffold_values(scaffold: Scaffolded | None) -> Values:
    return {
        "scaffold_state": clean_text(scaffold.state) if scaffold else None,
        "scaffold_choices": small_integer(scaffold.choices) if scaffold else None,
        "scaffold_remembered": small_integer(scaffold.remembered) if scaffold else None,
        "scaffold_chosen": clean_text(scaffold.chosen) if scaffold else None,
    }


def _screenshot(episode: str, step: int | None, screenshot: Screenshot | None) -> Iterable[Operation]:
    if screenshot is None:
        return
    image = screenshot.image
    yield Insert(
        "screenshots",
        {
            "episode": episode,
            "step": step,
            "shows": screenshot.when,
            "sha256": image.sha256 if image else None,
            "size_bytes": image.size if image else None,
            "missing": clean_text(screenshot.missing) or None,
            "width": screenshot.width,
            "height": screenshot.height,
            "scale": finite(screenshot.scale),
            "marks": to_json(screenshot.marks),
        },
    )


def _step_taken(recorded: Recorded, fact: StepTaken) -> Iterable[Operation]:
    action = fact.action
    versions = unpack(f"<{len(fact.versions) // ID_BYTES}i", fact.versions)
    low, high = min(versions, default=None), max(versions, default=None)
    yield Insert(
        "steps",
        {
            "episode": fact.episode,
            "step": fact.index,
            "observation_digest": fact.observation_digest,
            "observation_blob": fact.observation.sha256 if fact.observation else None,
            "url": clean_text(fact.url),
            "answer": clean_text(fact.answer),
            "action": action.name if action else None,
            "argument": clean_text(action.argument) if action else None,
            "result": fact.result,
            "detail": clean_text(fact.detail),
            "element": small_integer(action.element) if action else None,
            "world_ordinal": small_integer(fact.world_ordinal),
            "prompt_tokens": len(fact.prompt_ids) // ID_BYTES,
            "answer_tokens": len(fact.action_ids) // ID_BYTES,
            "version_low": low,
            "version_high": high,
            "context": small_integer(fact.context),
            "sampling_seed": small_integer(fact.sampling.seed),
            "occurred_ns": recorded.envelope.occurred_ns,
            "temperature": finite(fact.sampling.temperature),
            "observe_ms": finite(fact.observe_ms),
            "generate_ms": finite(fact.generate_ms),
            "act_ms": finite(fact.act_ms),
            "prompt_truncated": fact.prompt_truncated,
            **_scaffold_values(fact.scaffold),
            "touched": to_json(fact.touched) if fact.touched else None,
            "code_rev": recorded.envelope.code_rev,
        },
    )
    yield from _screenshot(fact.episode, fact.index, fact.screenshot)
    if low != high:
        for index, (version, tokens) in enumerate(groupby(versions)):
            yield Insert(
                "token_versions",
                {"place": index, "episode": fact.episode, "version": version, "tokens": len(tuple(tokens))},
            )


def _episode_ended(recorded: Recorded, fact: EpisodeEnded) -> Iterable[Operation]:
    values = {
        "state": "ended",
        "actor": fact.actor,
        "reason": fact.reason,
        "steps": fact.steps,
        "answer": clean_text(fact.evidence.answer),
        "final_url": clean_text(fact.evidence.final_url),
        "version_low": fact.policy_versions[0],
        "version_high": fact.policy_versions[1],
        "duration_ms": finite(fact.duration_ms),
        "terminal_ns": recorded.envelope.occurred_ns,
    }
    yield Put("episodes", (fact.episode,), values)
    yield from _screenshot(fact.episode, None, fact.screenshot)


def _episode_abandoned(recorded: Recorded, fact: EpisodeAbandoned) -> Iterable[Operation]:
    values = {
        "state": "abandoned",
        "reason": fact.reason,
        "detail": clean_text(fact.detail),
        "steps": fact.steps,
        "terminal_ns": recorded.envelope.occurred_ns,
    }
    return (Put("episodes", (fact.episode,), values),)


def _episode_cancelled(recorded: Recorded, fact: EpisodeCancelled) -> Iterable[Operation]:
    values = {
        "state": "cancelled",
        "reason": fact.reason,
        "detail": clean_text(fact.detail),
        "terminal_ns": recorded.envelope.occurred_ns,
    }
    return (Put("episodes", (fact.episode,), values),)


def _episode_judged(recorded: Recorded, fact: EpisodeJudged) -> Iterable[Operation]:
    reading = fact.reading
    yield Insert(
        "verdicts",
        {
            "episode": fact.episode,
            "judge": fact.judge.name,
            "judge_version": fact.judge.version,
            "task": fact.task_id,
            "prompt_digest": fact.judge.prompt_digest,
            "outcome": fact.judgment.outcome,
            "reason": clean_text(fact.judgment.reason),
            "occurred_ns": recorded.envelope.occurred_ns,
            "reward": finite(fact.judgment.reward),
            "model_version": None if reading is None else reading.model_version,
            "probability": None if reading is None else finite(reading.probability),
            "code_rev": recorded.envelope.code_rev,
        },
    )
    yield Ensure(
        "judged",
        (fact.episode, fact.judge.name),
        {
            "outcome": fact.judgment.outcome,
            "reward": finite(fact.judgment.reward),
            "decided_ns": recorded.envelope.occurred_ns,
        },
        taken=CopiedValue("episodes", (fact.episode,), JUDGED_ABOUT),
    )
    yield from consultation(recorded, "verdict", fact.episode, fact.consulted)


ACTING: dict[type, Callable[..., Iterable[Operation]]] = {
    TaskProposed: _task_proposed,
    TaskChecked: _task_checked,
    TaskAdmitted: _task_admitted,
    TaskRejected: _task_rejected,
    StateValued: _state_valued,
    EpisodeRequested: _episode_requested,
    EpisodeStarted: _episode_started,
    StepTaken: _step_taken,
    EpisodeEnded: _episode_ended,
    EpisodeAbandoned: _episode_abandoned,
    EpisodeCancelled: _episode_cancelled,
    EpisodeJudged: _episode_judged,
}
"""Mappers of this file."""
