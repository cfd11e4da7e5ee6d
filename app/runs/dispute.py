"""A person disagrees with a verdict: `verdict.disputed`.

A dispute is shown wherever the verdict is and changes nothing else. Verdicts are facts about a judge, one per episode and
judge (invariant 5), and what was planned from them stays planned (invariant 3): what training takes for true must not
depend on who happened to look at a page, and when. Whoever wants other rewards names another judge and forks.
"""

import asyncio
from typing import Literal

import msgspec

from hindcast.app.runs.append_fact import append_fact
from hindcast.app.runs.runs import RunHandle
from hindcast.core.errors import SettingsError
from hindcast.events.catalogue import VerdictDisputed
from hindcast.events.catalogue.verdict import JudgeIdentity
from hindcast.storage.readmodel.queries import show_episode, training_judge
from hindcast.storage.readmodel.results import VerdictRow

Outcome = Literal["success", "failure"]


class DisputeRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What was recorded."""

    run: str
    position: int
    episode: str
    judge: str
    """Whose verdict."""
    said: str
    """Its outcome."""
    outcome: str
    """What the person says it is."""
    author: str
    reason: str


async def dispute(
    run: RunHandle, episode: str, *, outcome: str, author: str, reason: str, judge: str | None = None
) -> DisputeRecord:
    """Append a dispute of a judge's first verdict. `judge` None: the one that training uses.

    Raises:
        NotInReadModel: there is no such episode.
        SettingsError: there is no such verdict, it says so already, or something is missing.
        BrokerUnreachable, LogFull: it could not be appended.

    """
    if outcome not in ("success", "failure"):
        raise SettingsError(f"an outcome is success or failure, not {outcome!r}")
    if not reason.strip():
        raise SettingsError("a dispute needs a reason: say what the judge did not see")
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
        raise SettingsError(f"{wanted} has given no verdict on {episode}; who has: {spoken}")
    return mine[0]
