"""What a person appends to a run: pause, resume, drain, cancel, and disputes of verdicts, each an event with author and reason.

No role begins new work during a pause (`actors.curriculum.leases`). The curriculum executes drain and cancel and records
`control.applied`. A pause outlives the system: a run that is started later stays paused.

A dispute is shown wherever the verdict is and changes nothing else. Verdicts are facts about a judge, one per episode and
judge (invariant 5), and plans made from them stay (invariant 3): training must not depend on who looked at a page and when.
For other rewards, name another judge and fork.
"""

import asyncio
import os
import re
from contextlib import aclosing
from getpass import getuser
from typing import Any, Literal

import msgspec

from hindcast.actors.curriculum.leases import Pauses
from hindcast.app.runs.folded_read_model import show_now
from hindcast.app.runs.runs import RunHandle
from hindcast.core.errors import SettingsError
from hindcast.events.catalogue import (
    ControlRequested,
    EpisodeEnded,
    EpisodeRequested,
    EpisodeStarted,
    VerdictDisputed,
)
from hindcast.events.catalogue.verdict import JudgeIdentity
from hindcast.events.codec import decode
from hindcast.events.envelope import Fact, Recorded
from hindcast.events.log.port import EventLog
from hindcast.events.log.reader import skim
from hindcast.events.registry import BY_CLASS
from hindcast.events.subjects import family_wildcard, subject_of
from hindcast.storage.readmodel.episode_queries import VerdictRow, show_episode
from hindcast.storage.readmodel.query_parts import training_judge

ROLE = "control"
PRODUCER = "control.1"
_TOKEN = re.compile(r"[A-Za-z0-9_-]+")
"""Characters that a subject may contain unescaped."""

Command = Literal["pause", "resume", "drain", "cancel"]


async def append_fact(run: RunHandle, fact: Fact, *, entity: str) -> int:
    """Append a fact as role `control` and bring the read model up to date; returns the fact's position.

    Raises:
        BrokerUnreachable, LogFull: it could not be appended.

    """
    async with run.connect_log(ROLE) as log:
        async with run.publisher(log, PRODUCER) as publisher:
            position = await publisher.decide(fact, entity=entity, correlation=entity)
        await show_now(run, log)
    return position


def this_user() -> str:
    """The user's name; `uid-1234` if the machine has no name for the user, as in some containers."""
    try:
        return getuser()
    except (KeyError, OSError):  # KeyError up to Python 3.12
        return f"uid-{os.getuid()}"


class ControlRecord(msgspec.Struct, frozen=True, kw_only=True):
    """Result of a control command."""

    run: str
    position: int
    command: str
    arguments: dict[str, Any]
    author: str
    reason: str
    works: bool
    """Whether the run's system is running; if not, the command takes effect at its next start."""


async def ask_run(
    run: RunHandle, command: Command, *, author: str, reason: str, arguments: dict[str, Any] | None = None
) -> ControlRecord:
    """Append the command.

    Raises:
        SettingsError: it would change nothing, its episode is unknown or over, or no running role could execute it.
        BrokerUnreachable, LogFull: it could not be appended.

    """
    given = arguments or {}
    works = run.is_running()
    if command == "drain" and not works:
        raise SettingsError(
            f"run {run.name} is not running, so that there is nothing to drain. Start it: hindcast start {run.name}"
        )
    if command in ("pause", "resume"):
        async with run.connect_log(ROLE) as log:
            pauses = await pauses_in_force(log)
        _require_change(run.name, command, pauses, whose=given.get("of", author))
    if command == "cancel":
        async with run.connect_log(ROLE) as log:
            known = await _was_requested(log, given["episode"])
            end = await _end_of(log, given["episode"]) if known else None
        if end is not None:
            how = BY_CLASS[type(end.fact)].name.partition(".")[2]
            raise SettingsError(
                f"episode {given['episode']} of run {run.name} is over: it was {how} at position {end.position}. Nothing is "
                f"left to cancel; see: hindcast episode show {given['episode']} {run.name}"
            )
        if not known:
            raise SettingsError(
                f"run {run.name} has no episode {given['episode']!r} to cancel. List its episodes: "
                f"hindcast episode list {run.name}"
            )
    fact = ControlRequested(command=command, arguments=given, author=author, reason=reason)
    position = await append_fact(run, fact, entity=run.name)
    return ControlRecord(
        run=run.name,
        position=position,
        command=command,
        arguments=given,
        author=author,
        reason=reason,
        works=works,
    )


async def pauses_in_force(log: EventLog) -> dict[str, str]:
    """Reasons of the pauses in force, by author; read from the log's control events, newest first."""
    subject = family_wildcard(log.run, "control")
    told: list[Recorded] = []
    until: int | None = None
    while (stored := await log.last_under(subject, until=until)) is not None:
        recorded = decode(stored)
        assert recorded is not None
        told.append(recorded)
        until = recorded.position - 1
    pauses = Pauses()
    for recorded in reversed(told):
        pauses.apply(recorded)
    return pauses.reasons


async def _was_requested(log: EventLog, episode: str) -> bool:
    """Whether the log knows an episode. Looks up its start; without one, searches the whole log for its request."""
    started = subject_of(log.run, EpisodeStarted, key=episode)
    if _TOKEN.fullmatch(episode) and await log.last_under(started) is not None:
        return True
    end = (await log.identity()).last
    async with aclosing(skim(log, family="request", until=end)) as recordeds:
        async for recorded in recordeds:
            if isinstance(recorded.fact, EpisodeRequested) and recorded.fact.episode == episode:
                return True
    return False


async def _end_of(log: EventLog, episode: str) -> Recorded | None:
    """The terminal fact of an episode; None if the episode is not over."""
    if not _TOKEN.fullmatch(episode):
        return None
    stored = await log.last_under(subject_of(log.run, EpisodeEnded, key=episode))
    return None if stored is None else decode(stored)


def _require_change(run: str, command: str, pauses: dict[str, str], *, whose: str) -> None:
    if command == "pause" and whose in pauses:
        raise SettingsError(f"run {run} is paused by {whose} already: {pauses[whose]}")
    if command == "resume" and whose not in pauses:
        others = "; ".join(f"{author} ({why})" for author, why in pauses.items())
        hint = f". Paused by: {others}; to lift another author's pause: --of AUTHOR" if others else ""
        raise SettingsError(f"run {run} is not paused by {whose}{hint}")


class DisputeRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A recorded dispute."""

    run: str
    position: int
    episode: str
    judge: str
    """Judge of the disputed verdict."""
    said: str
    """Outcome of the verdict."""
    outcome: str
    """Outcome according to the person."""
    author: str
    reason: str


async def dispute(
    run: RunHandle, episode: str, *, outcome: str, author: str, reason: str, judge: str | None = None
) -> DisputeRecord:
    """Append a dispute of a judge's first verdict. `judge` None: the judge that training uses.

    Raises:
        NotInReadModel: there is no such episode.
        SettingsError: there is no such verdict, it has this outcome already, or an argument is missing.
        BrokerUnreachable, LogFull: it could not be appended.

    """
    if outcome not in ("success", "failure"):
        raise SettingsError(f"an outcome is success or failure, not {outcome!r}")
    if not reason.strip():
        raise SettingsError("a dispute needs a reason: say what the judge missed")
    verdict = await asyncio.to_thread(_verdict, run, episode, judge)
    if verdict.outcome == outcome:
        raise SettingsError(f"{verdict.judge} says {outcome} already: there is nothing to dispute")
    identity = JudgeIdentity(
        name=verdict.judge, version=verdict.judge_version, prompt_digest=verdict.prompt_digest
    )
    fact = VerdictDisputed(
        episode=episode, judge=identity, author=author, reason=reason.strip(), outcome=outcome
    )
    position = await append_fact(run, fact, entity=episode)
    return DisputeRecord(
        run=run.name,
        position=position,
        episode=episode,
        judge=verdict.judge,
        said=verdict.outcome,
        outcome=outcome,
        author=author,
        reason=fact.reason,
    )


def _verdict(run: RunHandle, episode: str, judge: str | None) -> VerdictRow:
    model = run.read_model()
    try:
        with model.reading() as connection:
            wanted = judge or training_judge(connection)
            found = show_episode(connection, episode).verdicts
    finally:
        model.close()
    mine = [verdict for verdict in found if verdict.judge == wanted]
    if not mine:
        spoken = ", ".join(dict.fromkeys(verdict.judge for verdict in found)) or "nobody yet"
        raise SettingsError(f"{wanted} has given no verdict on {episode}; judges with a verdict: {spoken}")
    return mine[0]
