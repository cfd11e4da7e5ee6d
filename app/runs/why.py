"""Why a policy changed: which recorded steps moved it in an update, a version, or where a task family got better or worse."""

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import msgspec
import numpy as np

from hindcast.actors.curriculum.evaluations import EVALUATION
from hindcast.app.runs.explanations import (
    Explanation,
    MovingEpisode,
    MovingStep,
    TokenChange,
    VersionSuccess,
)
from hindcast.app.runs.sources import Source
from hindcast.core.domain.arrays import unpack_ids
from hindcast.core.errors import NoSuchPlace, ReplayDiverged, SettingsError
from hindcast.core.models.folders import policy_folder
from hindcast.core.models.tokenizer import load_tokenizer
from hindcast.core.rl.combined_state import POLICY
from hindcast.events.catalogue import (
    BatchPlanned,
    EpisodeJudged,
    EpisodeRequested,
    StepTaken,
    UpdateApplied,
    WeightsPublished,
)
from hindcast.events.catalogue.curriculum import BRANCH
from hindcast.events.envelope import Recorded
from hindcast.events.log.places import Place
from hindcast.events.log.port import EventLog
from hindcast.events.log.reader import read
from hindcast.learner.buffer.records import Sample, sample_of
from hindcast.learner.explanation import ExplainedTraining, Inquiry, ProbeStep, StepShare
from hindcast.learner.verify.verify import OtherDevice, Progress, VerifyReport, verify

PROBE_EPISODES = 32
"""Episodes of a probe at most; the gradient of all is computed anew for each batch."""
FEW = 4
"""Fewer held-out episodes of either outcome than this are no probe; the family's training episodes are one then."""
TOKENS_LISTED = 40
CONTEXT = 12
"""Tokens before a changed one that are shown with it."""


class FamilyQuestion(msgspec.Struct, frozen=True, kw_only=True):
    """What made a task family better or worse between two policy versions."""

    family: str
    """As in `store/buy`, or `buy`."""
    since: int | None = None
    """None: the base policy, version 0."""
    until: int | None = None
    """None: the last version."""


@dataclass(slots=True)
class _Log:
    """What a run's log says about its updates and its episodes."""

    updates: dict[int, int] = field(default_factory=dict)
    """Position of each update of the policy, by number."""
    versions: dict[int, int] = field(default_factory=dict)
    """Number of updates that a published version holds."""
    batches: dict[int, int] = field(default_factory=dict)
    """Version that a batch of the policy published."""
    planned: int | None = None
    requests: dict[str, EpisodeRequested] = field(default_factory=dict)
    rewards: dict[str, float] = field(default_factory=dict)
    """By the training judge, of decided episodes."""

    def take(self, recorded: Recorded, judge: str) -> None:
        match recorded.fact:
            case UpdateApplied(model=model, update=update) if model == POLICY:
                self.updates[update] = recorded.position
            case BatchPlanned(model=model, batch=batch) if model == POLICY:
                self.planned = batch
            case WeightsPublished(model=model, version=version) if model == POLICY:
                self.versions[version] = max(self.updates, default=0)
                if self.planned is not None:
                    self.batches[self.planned] = version
            case EpisodeRequested() as fact:
                self.requests[fact.episode] = fact
            case EpisodeJudged() as fact if fact.judge.name == judge:
                if fact.judgment.outcome != "undecided":
                    self.rewards.setdefault(fact.episode, fact.judgment.reward)
            case _:
                pass

    def between(self, since: int, until: int) -> range:
        """Updates after one version's publication, up to another's."""
        return range(self._updates_of(since) + 1, self._updates_of(until) + 1)

    def _updates_of(self, version: int) -> int:
        if version == 0 and 0 not in self.versions:
            return 0
        if version not in self.versions:
            raise NoSuchPlace(
                f"policy version {version} was not published; the last one is {max(self.versions, default=0)}"
            )
        return self.versions[version]

    def begins_with(self, updates: range) -> int:
        """The version before these updates."""
        return max((one for one, held in self.versions.items() if held < updates[0]), default=0)


async def explain(
    source: Source,
    question: Place | FamilyQuestion,
    *,
    tolerance: float | None = None,
    progress: Progress = lambda _done, _all: None,
    said: Callable[[str], None] = lambda _line: None,
) -> Explanation:
    """Recompute the updates in question, and take them apart.

    `question`: an update, a batch, or the policy version that updates led to; or a task family. `tolerance`: see `verify`.

    Raises:
        NoSuchPlace: there are no such updates.
        SettingsError: the family has no episodes by which its updates could be judged.
        ReplayDiverged: an update does not come out as recorded.
    """
    judge = source.settings.judge.judges[0]
    known, samples = _Log(), defaultdict[str, list[Sample]](list)
    name = question.family if isinstance(question, FamilyQuestion) else ""
    async with source.connect_log() as log:
        async with aclosing(read(log, after=0, strict=True)) as recordeds:
            async for recorded in recordeds:
                known.take(recorded, judge)
                fact = recorded.fact
                if name and isinstance(fact, StepTaken) and fact.action_ids:
                    request = known.requests.get(fact.episode)
                    if request is not None and name in (request.task.full_family, request.task.family):
                        samples[fact.episode].append(sample_of(recorded, fact))
        updates = _updates(known, question, run=source.name)
        inquiry, origin = Inquiry(updates), ""
        if isinstance(question, FamilyQuestion):
            since = known.begins_with(updates)
            until = max(known.versions) if question.until is None else question.until
            inquiry.probe, origin = _probe(known, samples, since=since, until=until, name=name)
        said(
            f"recomputing updates {updates[0]} to {updates[-1]}, with the gradient of each step of theirs"
            if len(updates) > 1
            else f"recomputing update {updates[0]}, with the gradient of each step of it"
        )
        report = await verify(
            log,
            source.blobs,
            policy=policy_folder(source.settings.policy.base),
            code_rev=source.code_rev,
            tolerance=tolerance,
            only=[(known.updates[updates[0]], known.updates[updates[-1]])],
            progress=progress,
            make_trainer=partial(ExplainedTraining, inquiry=inquiry),
        )
        _require_as_recorded(report, source.name)
        wanted = {one.position for one in inquiry.steps} | {one.position for one in inquiry.watched}
        steps = await _steps_at(log, wanted)
    tokenizer = load_tokenizer(policy_folder(source.settings.policy.base))
    probed = {one.sample.episode for one in inquiry.probe}
    return Explanation(
        run=source.name,
        question=_in_words(question, known),
        first_update=updates[0],
        last_update=updates[-1],
        first_version=known.begins_with(updates),
        episodes=_episodes(inquiry, known, steps, tokenizer),
        tokens=_tokens(inquiry, steps, tokenizer),
        family=name,
        probe_origin=origin,
        probe_episodes=len(probed),
        success=_success(known, samples) if name else (),
        recomputed=report.updates,
    )


def _in_words(question: Place | FamilyQuestion, known: _Log) -> str:
    if isinstance(question, FamilyQuestion):
        until = max(known.versions) if question.until is None else question.until
        return f"{question.family}, policy {question.since or 0} to {until}"
    newest = {"update": known.updates, "policy": known.versions, "batch": known.batches}[question.noun]
    return f"{question.noun} {max(newest) if question.number is None else question.number}"


def _updates(known: _Log, question: Place | FamilyQuestion, *, run: str) -> range:
    if not known.updates:
        raise NoSuchPlace(
            f"run {run} has no update yet, so nothing moved its policy. Run: hindcast run show {run}"
        )
    match question:
        case FamilyQuestion(since=since, until=until):
            found = known.between(since or 0, max(known.versions, default=0) if until is None else until)
        case Place(noun="update", number=number):
            number = max(known.updates) if number is None else number
            found = range(number, number + 1)
        case Place(noun="policy", number=number):
            number = max(known.versions, default=0) if number is None else number
            found = known.between(max((one for one in known.versions if one < number), default=0), number)
        case Place(noun="batch", number=number):
            number = max(known.batches, default=0) if number is None else number
            if number not in known.batches:
                raise NoSuchPlace(f"batch {number} of run {run} trained no policy that was published")
            return _updates(known, Place("policy", known.batches[number]), run=run)
        case _:
            raise NoSuchPlace(f"{question} is no update: give update=N, batch=N, policy=N, or a task family")
    absent = [one for one in found if one not in known.updates]
    if not found or absent:
        raise NoSuchPlace(
            f"run {run} has no update {absent[0]}; its last one is {max(known.updates)}"
            if absent
            else f"no update of run {run} lies between these policy versions"
        )
    return found


def _probe(
    known: _Log, samples: dict[str, list[Sample]], *, since: int, until: int, name: str
) -> tuple[list[ProbeStep], str]:
    """Episodes of the family that versions from one to another played: held-out ones if there are enough, else any."""
    played = [
        episode
        for episode, steps in samples.items()
        if episode in known.rewards
        and known.requests[episode].origin != BRANCH
        and since <= _version(steps) <= until
    ]
    held_out = [one for one in played if known.requests[one].origin == EVALUATION]
    for found, origin in ((held_out, "evaluation"), (played, "training")):
        won = [one for one in found if known.rewards[one] > 0.5]
        lost = [one for one in found if known.rewards[one] <= 0.5]
        if min(len(won), len(lost)) >= (FEW if origin == "evaluation" else 1):
            half = PROBE_EPISODES // 2
            chosen = (
                won[-max(half, PROBE_EPISODES - len(lost)) :] + lost[-max(half, PROBE_EPISODES - len(won)) :]
            )
            mean = sum(known.rewards[one] for one in chosen) / len(chosen)
            weights = {one: (known.rewards[one] - mean) / len(chosen) for one in chosen}
            return [ProbeStep(step, weights[one]) for one in chosen for step in samples[one]], origin
    if not samples:
        families = sorted({one.task.full_family for one in known.requests.values()})
        raise SettingsError(f"no episode of {name!r} was played; there are: {', '.join(families)}")
    raise SettingsError(
        f"the {len(played)} judged episodes of {name} that versions {since} to {until} played ended alike, so they do not "
        "tell what would have been better. Choose other versions with --since and --until"
    )


def _version(steps: Sequence[Sample]) -> int:
    return int(unpack_ids(steps[0].versions)[0]) if steps and steps[0].versions else -1


def _require_as_recorded(report: VerifyReport, run: str) -> None:
    if report.first_divergence is not None:
        found = report.first_divergence
        raise ReplayDiverged(
            f"position {found.position} ({found.event}) does not come out as recorded, so what moved the policy then is not "
            f"known: {found.cause} Run: hindcast verify {run}. On another machine than the recorded one: --tolerance 1e-4"
        )
    if report.left_out:
        raise OtherDevice(
            f"what moved the policy is not known here: {'; '.join(part.reason for part in report.left_out)}. Ask where they were "
            "computed, or within rounding: --tolerance 1e-2"
        )


async def _steps_at(log: EventLog, positions: Collection[int]) -> dict[int, StepTaken]:
    found: dict[int, StepTaken] = {}
    for position in sorted(positions):
        async with aclosing(read(log, after=position - 1, until=position)) as recordeds:
            async for recorded in recordeds:
                if isinstance(recorded.fact, StepTaken):
                    found[position] = recorded.fact
    return found


def _episodes(
    inquiry: Inquiry, known: _Log, facts: Mapping[int, StepTaken], tokenizer: Any
) -> tuple[MovingEpisode, ...]:
    by_episode = defaultdict[tuple[str, bool], list[StepShare]](list)
    for one in inquiry.steps:
        by_episode[one.episode, one.rehearsed].append(one)
    found: list[MovingEpisode] = []
    for (name, rehearsed), parts in by_episode.items():
        request = known.requests[name]
        steps = _steps(parts, facts, tokenizer, updates=len(inquiry.updates))
        found.append(
            MovingEpisode(
                episode=name,
                group=request.group,
                family=request.task.full_family,
                origin=request.origin,
                reward=known.rewards.get(name),
                rehearsed=rehearsed,
                advantage=sum(one.advantage for one in parts) / len(parts),
                share=sum(one.share for one in steps),
                pull=sum(one.pull or 0.0 for one in steps) if inquiry.probe else None,
                steps=steps,
            )
        )
    return tuple(sorted(found, key=lambda one: -abs(one.share if one.pull is None else one.pull)))


def _steps(
    parts: Sequence[StepShare], facts: Mapping[int, StepTaken], tokenizer: Any, *, updates: int
) -> tuple[MovingStep, ...]:
    """An episode's steps in order; one that several updates trained on is one."""
    by_answer = defaultdict[tuple[int, bytes], list[StepShare]](list)
    for one in parts:
        by_answer[one.position, one.action_ids].append(one)

    def answer(position: int, ids: bytes) -> str:
        fact = facts[position]
        return fact.answer if ids == fact.action_ids else tokenizer.decode(unpack_ids(ids).tolist())

    return tuple(
        MovingStep(
            position=position,
            step=facts[position].index,
            answer=answer(position, ids),
            share=sum(one.share for one in own) / updates,
            pull=None if own[0].pull is None else sum(one.pull or 0.0 for one in own),
        )
        for (position, ids), own in sorted(by_answer.items())
    )


def _tokens(inquiry: Inquiry, facts: Mapping[int, StepTaken], tokenizer: Any) -> tuple[TokenChange, ...]:
    same = defaultdict[tuple[bytes, bytes], list[tuple[int, int, float, float]]](list)
    """By prompt, and answer up to and including a token: where it stands, and its log-probabilities."""
    for place, (before, after) in enumerate(zip(inquiry.before, inquiry.after, strict=True)):
        sample = inquiry.watched[place]
        for index, (then, now) in enumerate(zip(before.tolist(), after.tolist(), strict=True)):
            key = sample.prompt_ids, sample.action_ids[: 4 * index + 4]
            same[key].append((place, index, float(np.exp(then)), float(np.exp(now))))
    first = sorted(
        ((own[0], len({inquiry.watched[place].position for place, *_ in own}) - 1) for own in same.values()),
        key=lambda one: -abs(one[0][3] - one[0][2]),
    )
    found: list[TokenChange] = []
    for (place, index, then, now), others in first[:TOKENS_LISTED]:
        sample = inquiry.watched[place]
        ids = unpack_ids(sample.action_ids).tolist()
        found.append(
            TokenChange(
                episode=sample.episode,
                position=sample.position,
                step=facts[sample.position].index,
                context=tokenizer.decode(ids[max(0, index - CONTEXT) : index]),
                token=tokenizer.decode(ids[index : index + 1]),
                before=then,
                after=now,
                others=others,
            )
        )
    return tuple(found)


def _success(known: _Log, samples: dict[str, list[Sample]]) -> tuple[VersionSuccess, ...]:
    counts = defaultdict[int, list[float]](list)
    for episode, steps in samples.items():
        if episode in known.rewards and (version := _version(steps)) >= 0:
            counts[version].append(known.rewards[episode])
    return tuple(
        VersionSuccess(version=version, episodes=len(found), successes=sum(one > 0.5 for one in found))
        for version, found in sorted(counts.items())
    )
