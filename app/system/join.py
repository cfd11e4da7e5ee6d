"""Joining a run from another machine by its broker's address alone: settings come from the first event of its log.

What says where this machine works (`log.url`, its own folders) is laid over them; nothing else may differ. Before anything
starts it is made sure that the run is there, that every role's password holds, that clocks agree (lag, and the age of what
the archiver lets go of, are reckoned from recorded times), that the code is the same, and that blobs and the model can be
reached from here.
"""

import asyncio
import re
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path

import msgspec

from hindcast.app.runs.runs import RunHandle, list_runs, run_folder, write_down
from hindcast.app.settings.configuration import Layer, flatten, from_override, merge_recorded
from hindcast.app.system.processes import read_json, write_json
from hindcast.app.system.supervisor import instance_name
from hindcast.app.system.system import ROLES
from hindcast.core.errors import HindcastError, SettingsError
from hindcast.core.models.folders import policy_folder
from hindcast.core.settings.operation import is_operational
from hindcast.core.text.nearest import advice
from hindcast.events.catalogue import RunForked
from hindcast.events.codec import decode_envelope
from hindcast.events.envelope import BlobRef
from hindcast.events.jetstream.accounts import PUBLISHES
from hindcast.events.jetstream.connection import connect
from hindcast.events.jetstream.run_discovery import clock_ahead_s, runs_on
from hindcast.events.jetstream.stream_log import JetStreamLog
from hindcast.events.log.joined_log import RunLog
from hindcast.events.log.run_identity import beginning
from hindcast.events.registry import BY_CLASS
from hindcast.events.subjects import family_wildcard
from hindcast.learner.recipes import DEFAULT

JOINED = "joined.json"
"""In the folder of a run that this home has joined: which broker it is at."""
CLOCK_S = 20.0
"""How far this machine's clock may be from the broker's: a consumer that is a minute behind is an alert."""
MACHINE = re.compile(r"[a-z0-9][a-z0-9-]{0,30}")
"""A machine's name stands in subjects."""
NEEDS_BLOBS = ("curriculum", "actor", "judge", "relabeler", "learner", "archiver")
WRITES_BLOBS = ("curriculum", "actor", "learner", "archiver")
NEEDS_MODEL = ("actor", "relabeler", "learner")
AS_READER = {"page": "reader"}
"""Roles without a user of their own."""


class JoinRefused(HindcastError):
    """This machine cannot take part in that run as it is."""


class JoinRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What somebody who joins asks for."""

    url: str
    run: str | None
    """None: the only one there is."""
    counts: Mapping[str, int]
    """Processes of each role."""
    machine: str
    overrides: Sequence[str] = ()
    other_code: bool = False
    """Whether another revision of the code may join."""


def parse_roles(text: str) -> dict[str, int]:
    """`actor,actor,judge` as a number of processes for each role; actors bring the store that they play in.

    Raises:
        SettingsError: there is no such role, or it can only be on the run's first machine.

    """
    counts: dict[str, int] = {}
    for role in (part.strip() for part in text.split(",")):
        if role not in ROLES or role == "bus":
            joinable = [name for name in ROLES if name != "bus"]
            raise SettingsError(
                f"--roles {text!r} names {role!r}, and no machine joins so; {advice(role, joinable)}"
            )
        counts[role] = counts.get(role, 0) + 1
    if "actor" in counts:
        counts["site"] = 1
    return {role: counts[role] for role in ROLES if role in counts}


def parse_machine(name: str) -> str:
    """A machine's name as it stands in the names of its processes; raises SettingsError."""
    short = name.split(".")[0].lower().replace("_", "-")
    if not MACHINE.fullmatch(short):
        raise SettingsError(
            f"{name!r} cannot be a machine's name in the log: small letters, digits and `-`, 31 at most. Give one with --name."
        )
    return short


async def plan_join(home: Path, asked: JoinRequest) -> RunHandle:
    """The run as this machine will see it, written down in `home`.

    Raises:
        BrokerUnreachable, BrokerDenied: no way to the broker, or a role's password is missing or wrong.
        JoinRefused: no such run, another clock, another code, or blobs or model that are not here.
        SettingsError: an override of what a run computes.

    """
    here = _here(asked)
    provisional = merge_recorded([here], recipe=DEFAULT).settings.log
    async with AsyncExitStack() as stack:
        connections = {}
        for role in _users(asked.counts):
            connection = await connect(
                asked.url, role=role, home=home, timeout_s=provisional.connect_timeout_s
            )
            stack.push_async_callback(connection.close)
            connections[role] = connection
        reader = connections["reader"]
        run = _choose(asked, await runs_on(reader))
        _require_same_clock(await clock_ahead_s(reader, run), asked.url)
    if run in list_runs(home) and read_json(run_folder(home, run) / JOINED) is None:
        raise JoinRefused(
            f"{home} has a run {run!r} of its own. Set HINDCAST_HOME to another folder, which then is this machine's part of "
            "the run that it joins."
        )
    looking = RunHandle(home, run, merge_recorded([here], recipe=DEFAULT))
    async with looking.connect_stream("reader") as stream:
        await _require_no_fork(stream)
        await _require_own_name(stream, asked, _joined_as(looking, asked))
    async with looking.connect_log() as log:
        started = await beginning(log)
        recorded = Layer(source="run.started", values=flatten(started.settings, f"the log of run {run}"))
        handle = RunHandle(home, run, merge_recorded([recorded, here], recipe=started.recipe))
        await _require_same_code(log, handle.code_rev, other_code=asked.other_code)
    _require_reachable(handle, asked.counts)
    await asyncio.to_thread(_require_same_blobs, handle, started.base_policy, asked)
    names = sorted({*_joined_as(handle, asked), asked.machine})
    write_json(handle.folder / JOINED, {"url": asked.url, "machines": names})
    write_down(handle)
    return handle


def _here(asked: JoinRequest) -> Layer:
    """What holds on this machine, whatever the run's first event says."""
    chosen = [from_override(text).values for text in asked.overrides]
    values = {key: value for layer in chosen for key, value in layer.items()}
    fixed = sorted(key for key in values if not is_operational(key))
    if fixed:
        raise SettingsError(
            f"--set {fixed[0]} changes what the run computes, which its first event fixes; a machine that joins may only say "
            "where and how it works: log.*, storage.*, telemetry.*, actors.browser_*, actors.contexts, policy.threads"
        )
    return Layer(
        source="hindcast join",
        values={"storage.archive": "", **values, "log.url": asked.url, "log.domain": ""},
    )


def _users(counts: Mapping[str, int]) -> list[str]:
    """The broker's users that the roles are."""
    users = [AS_READER.get(role, role) for role in counts]
    return list(dict.fromkeys(["reader", *(user for user in users if user in PUBLISHES)]))


def _choose(asked: JoinRequest, runs: Sequence[str]) -> str:
    there_are = f"it has {', '.join(runs)}" if runs else "it has none: start one there first (hindcast start)"
    if asked.run is None and len(runs) == 1:
        return runs[0]
    if asked.run is not None and asked.run in runs:
        return asked.run
    which = "which run is meant" if asked.run is None else f"there is no run {asked.run!r}"
    raise JoinRefused(
        f"the broker at {asked.url} was asked for a run, and {which}; {there_are}. Name one with --run."
    )


def _require_same_clock(ahead_s: float, url: str) -> None:
    if abs(ahead_s) > CLOCK_S:
        raise JoinRefused(
            f"this machine's clock is {abs(ahead_s):.0f} s {'ahead of' if ahead_s > 0 else 'behind'} that of the broker at {url}. "
            "Lag, and the age of what the archiver lets go of, are reckoned from recorded times. Set the clock (NTP)."
        )


async def _require_same_code(log: RunLog, ours: str, *, other_code: bool) -> None:
    last = await log.last_under(family_wildcard(log.run, "run"))
    assert last is not None  # the log begins with one
    theirs = decode_envelope(last).code_rev
    if ours != theirs and not other_code:
        raise JoinRefused(
            f"run {log.run} was last started with the code {theirs or 'of no known revision'}, and this is {ours}: what they "
            "record may differ. Install that revision here, or say --other-code."
        )


def _joined_as(handle: RunHandle, asked: JoinRequest) -> list[str]:
    """Names under which this home has joined the run before; a home that joined before these were noted is believed."""
    note = read_json(handle.folder / JOINED)
    return [] if note is None else list(note.get("machines", [asked.machine]))


async def _require_no_fork(stream: JetStreamLog) -> None:
    """A fork's log begins with its parent's, which only the home that it was made in knows where to read."""
    if stream.began > 1:
        first = await stream.read(after=stream.began - 1, limit=1)
        if first and decode_envelope(first[0]).type == BY_CLASS[RunForked].name:
            raise JoinRefused(
                f"run {stream.run} is a fork: what its log has before position {stream.began} is its parent's, and is read "
                "from the home that the fork was made in. Play it there, or begin a run of its own from its weights and join "
                "that one."
            )


async def _require_own_name(stream: JetStreamLog, asked: JoinRequest, joined_as: Sequence[str]) -> None:
    """Two machines of one name would be one in the log: the second's processes would seem to be restarts of the first's."""
    if asked.machine in joined_as:
        return
    for role in asked.counts:
        name = instance_name(f"{role}.1", machine=asked.machine)
        if await stream.last_under(f"run.{stream.run}.*.{name}.*") is not None:
            raise JoinRefused(
                f"the log of run {stream.run} has events of {name}, and this home has not joined it as {asked.machine} before: "
                "another machine bears that name. Give this one another with --name."
            )


def _require_same_blobs(handle: RunHandle, known: BlobRef, asked: JoinRequest) -> None:
    """That blobs of this run can be read from here and, by who makes some, be written: else the first page would show it.

    A folder that is not mounted here can be written to all the same, so it is asked for a blob of the run first.
    """
    place = handle.settings.storage.blobs
    if not place or not any(role in NEEDS_BLOBS for role in asked.counts):
        return
    try:
        there = handle.blobs.has(known)
        if there and any(role in WRITES_BLOBS for role in asked.counts):
            probe = handle.blobs.put(f"{asked.machine} joins run {handle.name}: a probe".encode())
            handle.blobs.get(probe)
            handle.blobs.release(probe)
    except (HindcastError, OSError) as error:
        raise JoinRefused(
            f"the blobs of run {handle.name} lie in {place} (storage.blobs), and this machine cannot work with them: {error}"
        ) from error
    if not there:
        raise JoinRefused(
            f"run {handle.name} keeps its blobs in {place} (storage.blobs), and its first weights are not there as seen from "
            f"this machine (sha256 {known.sha256[:16]}…): mount the same folder here, or look at AWS_ENDPOINT_URL and the "
            "bucket's name."
        )


def _require_reachable(handle: RunHandle, counts: Mapping[str, int]) -> None:
    if not handle.settings.storage.blobs and any(role in NEEDS_BLOBS for role in counts):
        raise JoinRefused(
            f"run {handle.name} keeps its blobs (weights, pages) in a folder of its first machine: storage.blobs is empty. "
            "Start it with storage.blobs = s3://bucket/prefix or a folder that all machines mount, then join."
        )
    model = handle.settings.policy.base
    if any(role in NEEDS_MODEL for role in counts) and not policy_folder(model).is_dir():
        raise JoinRefused(
            f"run {handle.name} has policy.base = {model}, and there is no such folder on this machine: put the model there, too."
        )
