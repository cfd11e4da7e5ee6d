"""`hindcast export --format verifiers`: `traces.jsonl`, an `Episode` of verifiers 0.4 for each episode, as prime-rl records them.

A trace is a graph of messages. A node has the tokens that it adds to the sequence before it, so that the nodes from a root to a
leaf are the exact tokens of a branch: what the policy read, and what it sampled, which `mask` marks. A step whose prompt begins
with all tokens of an earlier step and its answer continues that step's branch; any other step begins a branch at a new root.

Source: `verifiers.v1.episode.Episode`, `verifiers.v1.trace.Trace` and `verifiers.v1.graph.MessageNode` of verifiers 0.4.0.
Nothing of verifiers is imported.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from hindcast.app.exports.chat import chat_of, reward_of
from hindcast.app.exports.exporter import LEFT_OUT, Exporter, ExportSources, Verdict, Writer
from hindcast.core.domain.arrays import unpack_floats, unpack_ids
from hindcast.core.plugins import NoOptions
from hindcast.events.log.episode_assembler import AssembledEpisode, AssembledStep

TRACES = "traces.jsonl"
TRACE_VERSION = 1
VERIFIERS = "0.4.0"
"""Version whose schema is written."""


class VerifiersWriter(Writer):
    """Writes a line for each episode."""

    def __init__(self, folder: Path, sources: ExportSources, _: NoOptions) -> None:
        self._sources = sources
        self._traces = (folder / TRACES).open("wb")
        self._episodes = 0

    def episode(self, played: AssembledEpisode) -> None:
        """Write an episode's line."""
        line = episode_of(played, self._sources.chosen[played.name], self._sources)
        self._traces.write(msgspec.json.encode(line) + b"\n")
        self._episodes += 1

    def close(self, log_digest: str) -> Mapping[str, int]:
        """Close the file; returns the number of episodes."""
        self._traces.close()
        return {"episodes": self._episodes}


def episode_of(played: AssembledEpisode, verdict: Verdict, sources: ExportSources) -> dict[str, Any]:
    """An episode as verifiers' `Episode`, with one trace."""
    task, ended = played.task, played.ended
    recorded = {
        "type": task.environment,
        "data": {"idx": task.seed, "prompt": played.started.instruction, "goal": task.goal},
        "key": task.id,
    }
    reward = reward_of(verdict.outcome, verdict.reward)
    done = {"ok": verdict.outcome is not None and verdict.outcome != "undecided", "errors": []}
    low, high = ended.policy_versions
    work: dict[str, Any] = {"type": "eval" if played.request.origin in LEFT_OUT else "train", "step": low}
    sampled = low >= 0
    run = {"type": "train", "id": sources.origin.run, "work": work | {"policy": {"start": low, "end": high}}}
    trace = {
        "version": TRACE_VERSION,
        "id": played.name,
        "verifiers": {"version": VERIFIERS},
        "task": recorded,
        "agent": {"config": {}, "name": "agent", "trainable": sampled},
        "nodes": nodes_of(played.steps, chat_of(played, sources)),
        "rewards": {}
        if verdict.outcome is None
        else {"verdict": None if reward is None else {"score": reward}},
        "is_completed": True,
        **done,
        "stop_condition": "max_turns" if ended.reason == "max_steps" else "agent_completed",
        "timing": {
            "start": played.started_ns / 1e9,
            "agent": {"start": played.started_ns / 1e9, "end": played.ended_ns / 1e9},
        },
    }
    return {
        "id": played.name,
        "env": {"id": task.full_family},
        "task": recorded,
        "group": {"id": played.request.group},
        "run": run if sampled else None,
        **done,
        "traces": [trace],
    }


def nodes_of(steps: Sequence[AssembledStep], messages: Sequence[dict[str, str]]) -> list[dict[str, Any]]:
    """Two nodes for each step: the page with what its prompt adds, and the answer.

    `messages`: a page and an answer for each step, in order.
    """
    nodes: list[dict[str, Any]] = []
    sequences: list[tuple[int, list[int]]] = []
    """Index of each answer's node, and all tokens from its root on, the answer included."""
    for step, page, answer in zip(steps, messages[::2], messages[1::2], strict=True):
        fact = step.fact
        prompt_ids, action_ids = unpack_ids(fact.prompt_ids).tolist(), unpack_ids(fact.action_ids).tolist()
        continued = [one for one in sequences if prompt_ids[: len(one[1])] == one[1]]
        parent, before = max(continued, key=lambda one: len(one[1]), default=(None, []))
        added = prompt_ids[len(before) :]
        seconds = step.occurred_ns / 1e9
        nodes.append(
            {
                "parent": parent,
                "message": page,
                "timestamp": seconds,
                "token_ids": added,
                "mask": [False] * len(added),
            }
        )
        nodes.append(
            {
                "parent": len(nodes) - 1,
                "message": answer,
                "sampled": True,
                "timestamp": seconds,
                "token_ids": action_ids,
                "mask": [True] * len(action_ids),
                "logprobs": unpack_floats(fact.logprobs).tolist(),
            }
        )
        sequences.append((len(nodes) - 1, prompt_ids + action_ids))
    return nodes


EXPORTER = Exporter(
    writes="`traces.jsonl`: an episode of verifiers 0.4 for each episode, as prime-rl records them",
    writer=VerifiersWriter,
)
