"""Dispute of a verdict by a person: `verdict.disputed`.

A dispute is shown wherever the verdict is and changes nothing else. Verdicts are facts about a judge, one per episode and
judge (invariant 5), and plans made from them stay (invariant 3): training must not depend on who looked at a page and when.
For other rewards, name another judge and fork.
"""

import asyncio
from typing import Literal

import msgspec

from hindcast.app.runs.controls import append_fact
from hindcast.app.runs.runs import RunHandle
from hindcast.core.errors import SettingsError
from hindcast.events.catalogue import VerdictDisputed
from hindcast.events.catalogue.verdict import JudgeIdentity
from hindcast.storage.readmodel.episode_queries import VerdictRow, show_episode
from hindcast.storage.readmodel.query_parts import training_judge

Outcome = Literal["success", "failure"]


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
