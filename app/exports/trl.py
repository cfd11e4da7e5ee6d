"""`hindcast export --format trl`: a run as datasets for trainers, as TRL loads them.

| file | a row is | for |
|---|---|---|
| `steps.jsonl` | one step: `prompt`, `completion`, and what an off-policy trainer needs | `SFTTrainer`; offline reinforcement learning |
| `pairs.jsonl` | one prompt of a group, a winner's answer and a loser's: `prompt`, `chosen`, `rejected` | `DPOTrainer` |
| `chats.jsonl` | one episode: `messages`, with the page as the user's turn | `SFTTrainer`; reading |

Prompts and completions are the recorded token ids as text, special tokens included, so that tokenizing them without adding any
gives the ids that were sampled. A group is a task that several episodes attempted.

Two episodes of a group make a pair where they first answer the same prompt differently: one succeeded, the other failed. An
episode makes each pair once, whichever members it was compared with.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

import msgspec

from hindcast.app.exports.chat import DECIDED, chat_of, provenance_of, reward_of
from hindcast.app.exports.exporter import LEFT_OUT, Exporter, ExportSources, Verdict, Writer
from hindcast.core.domain.arrays import unpack_floats, unpack_ids
from hindcast.core.models.folders import policy_folder
from hindcast.core.models.tokenizer import load_tokenizer
from hindcast.events.catalogue import BatchPlanned, StepTaken
from hindcast.events.envelope import Recorded
from hindcast.events.log.episode_assembler import AssembledEpisode

STEPS, PAIRS, CHATS = "steps.jsonl", "pairs.jsonl", "chats.jsonl"
UNFINISHED = ".steps.unfinished"


class TrlOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`--option` of this format."""

    evaluations: bool = False
    """Whether episodes on held-out tasks are written, too. A trainer must not see them if the same tasks measure it."""


class TrlLine(msgspec.Struct):
    """What pairs need of a step."""

    prompt: str
    answer: str


class TrlWriter(Writer):
    """Writes the three files. Advantages are planned after an episode's end, so steps are completed when the log is read."""

    def __init__(self, folder: Path, sources: ExportSources, options: TrlOptions) -> None:
        self._folder = folder
        self._sources = sources
        self._evaluations = options.evaluations
        self._tokenizer = load_tokenizer(policy_folder(sources.origin.settings.policy.base))
        self._steps = (folder / UNFINISHED).open("w", encoding="utf-8")
        self._pairs = (folder / PAIRS).open("w", encoding="utf-8")
        self._chats = (folder / CHATS).open("w", encoding="utf-8")
        self._advantages: dict[str, float] = {}
        """By episode, of the first batch that trained on it."""
        self._groups: dict[str, list[tuple[str, bool, list[TrlLine]]]] = {}
        """Decided episodes of groups with members still to come: name, success, steps."""
        self._counts = {"steps": 0, "pairs": 0, "chats": 0}

    def fact(self, recorded: Recorded) -> None:
        """Take the advantages of a batch of the policy."""
        fact = recorded.fact
        if isinstance(fact, BatchPlanned) and fact.model == "policy":
            for planned in fact.episodes:
                if not planned.rehearsed and planned.relabel is None:
                    self._advantages.setdefault(planned.episode, planned.advantage)

    def episode(self, played: AssembledEpisode) -> None:
        """Write an episode's steps, its chat, and its pairs with earlier members of its group."""
        if played.request.origin in LEFT_OUT and not self._evaluations:
            return
        verdict = self._sources.chosen[played.name]
        lines = []
        for step in played.steps:
            row = self._step(played, step.fact, verdict)
            _write(self._steps, row)
            lines.append(TrlLine(row["prompt"], row["completion"]))
            self._counts["steps"] += 1
        _write(self._chats, self._chat(played, verdict))
        self._counts["chats"] += 1
        if verdict.outcome in DECIDED:
            self._pair(played, lines, won=verdict.outcome == "success")

    def close(self, log_digest: str) -> Mapping[str, int]:
        """Complete the steps by their advantages; returns the counts."""
        for file in (self._steps, self._pairs, self._chats):
            file.close()
        unfinished = self._folder / UNFINISHED
        with (
            unfinished.open(encoding="utf-8") as lines,
            (self._folder / STEPS).open("w", encoding="utf-8") as steps,
        ):
            for line in lines:
                row = json.loads(line)
                _write(steps, row | {"advantage": self._advantages.get(row["episode"])})
        unfinished.unlink()
        return self._counts

    def _step(self, played: AssembledEpisode, step: StepTaken, verdict: Verdict) -> dict[str, Any]:
        prompt_ids, completion_ids = (
            unpack_ids(step.prompt_ids).tolist(),
            unpack_ids(step.action_ids).tolist(),
        )
        versions = unpack_ids(step.versions).tolist()
        return {
            "prompt": self._text(prompt_ids),
            "completion": self._text(completion_ids),
            "prompt_ids": prompt_ids,
            "completion_ids": completion_ids,
            "logprobs": unpack_floats(step.logprobs).tolist(),
            "version": max(versions, default=-1),
            "reward": reward_of(verdict.outcome, verdict.reward),
            "outcome": verdict.outcome,
            **provenance_of(played),
            "step": step.index,
            "context": step.context,
            "last": step.index == len(played.steps) - 1,
            "temperature": step.sampling.temperature,
        }

    def _chat(self, played: AssembledEpisode, verdict: Verdict) -> dict[str, Any]:
        return {
            "messages": chat_of(played, self._sources),
            "reward": reward_of(verdict.outcome, verdict.reward),
            "outcome": verdict.outcome,
            **provenance_of(played),
        }

    def _pair(self, played: AssembledEpisode, lines: list[TrlLine], *, won: bool) -> None:
        members = self._groups.setdefault(played.request.group, [])
        known: set[tuple[str, str, str]] = set()
        for name, other_won, others in members:
            if other_won == won:
                continue
            winner, loser = (lines, others) if won else (others, lines)
            names = (played.name, name) if won else (name, played.name)
            for pair in first_difference(winner, loser):
                if pair in known:
                    continue
                known.add(pair)
                prompt, chosen, rejected = pair
                _write(
                    self._pairs,
                    {
                        "prompt": prompt,
                        "chosen": chosen,
                        "rejected": rejected,
                        "chosen_episode": names[0],
                        "rejected_episode": names[1],
                        "group": played.request.group,
                        "task": played.task.name,
                        "family": played.family,
                    },
                )
                self._counts["pairs"] += 1
        members.append((played.name, won, lines))
        if len(members) >= played.request.group_size:
            del self._groups[played.request.group]

    def _text(self, token_ids: list[int]) -> str:
        found: str = self._tokenizer.decode(
            token_ids, skip_special_tokens=False, clean_up_tokenization_spaces=False
        )
        return found


def first_difference(winner: list[TrlLine], loser: list[TrlLine]) -> Iterator[tuple[str, str, str]]:
    """The first prompt that both were given and answered differently, with both answers; nothing if there is none."""
    for own, other in zip(winner, loser, strict=False):
        if own.prompt != other.prompt:
            return
        if own.answer != other.answer:
            yield own.prompt, own.answer, other.answer
            return


def _write(file: IO[str], row: dict[str, Any]) -> None:
    file.write(json.dumps(row, ensure_ascii=False, allow_nan=False) + "\n")


EXPORTER = Exporter(
    writes="`steps.jsonl`, `pairs.jsonl` and `chats.jsonl`: datasets for TRL and other trainers",
    writer=TrlWriter,
    options=TrlOptions,
)
