"""Join a run from another machine, given the broker's address; settings come from the first event of its log.

Settings that say where this machine works (`log.url`, its own folders) override the recorded ones; nothing else may
differ. Before anything starts, it checks that the run exists, every role's password works, clocks agree (lag and the age
of pages for the archiver come from recorded times), the code is the same, and blobs and the model are reachable.
"""

import asyncio
import re
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path

import msgspec

from hindcast.app.runs.runs import RunHandle, list_runs, run_folder, write_down
from hindcast.app.settings.configuration import Layer, flatten_recorded, from_override, merge_recorded
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
from hindcast.events.jetstream.api import clock_ahead_s, runs_on
from hindcast.events.jetstream.connection import connect
from hindcast.events.jetstream.stream_log import JetStreamLog
from hindcast.events.log.joined_log import RunLog
from hindcast.events.log.run_identity import beginning
from hindcast.events.registry import BY_CLASS
from hindcast.events.subjects import family_wildcard
from hindcast.learner.recipes import DEFAULT

JOINED = "joined.json"
"""File in the folder of a joined run; it names the broker."""
CLOCK_S = 20.0
"""Largest difference of this machine's clock from the broker's: a consumer one minute behind raises an alert."""
MACHINE = re.compile(r"[a-z0-9][a-z0-9-]{0,30}")
"""Pattern of a machine's name, which is part of log subjects."""
NEEDS_BLOBS = ("curriculum", "actor", "judge", "relabeler", "learner", "archiver")
WRITES_BLOBS = ("curriculum", "actor", "learner", "archiver")
NEEDS_MODEL = ("actor", "relabeler", "learner")
AS_READER = {"page": "reader"}
"""Roles that connect as another role's user."""


class JoinRefused(HindcastError):
    """This machine cannot take part in the run as it is."""


class JoinRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Arguments of `hindcast join`."""

    url: str
    run: str | None
    """None: the only run of the broker."""
    counts: Mapping[str, int]
    """Number of processes of each role."""
    machine: str
    overrides: Sequence[str] = ()
    other_code: bool = False
    """Whether to join with another code revision."""


def parse_roles(text: str) -> dict[str, int]:
    """Parse `actor,actor,judge` into a number of processes for each role. Actors also start the store that they play in.

    Raises:
        SettingsError: a role does not exist, or may only run on the run's first machine.

    """
    counts: dict[str, int] = {}
    for role in (part.strip() for part in text.split(",")):
        if role not in ROLES or role == "bus":
            joinable = [name for name in ROLES if name != "bus"]
            raise SettingsError(
                f"--roles {text!r} names {role!r}, which no machine can join as; {advice(role, joinable)}"
            )
        counts[role] = counts.get(role, 0) + 1
    if "actor" in counts:
        counts["site"] = 1
    return {role: counts[role] for role in ROLES if role in counts}


def parse_machine(name: str) -> str:
    """Validate a machine's name, which becomes part of its processes' names. Raises SettingsError."""
    short = name.split(".")[0].lower().replace("_", "-")
    if not MACHINE.fullmatch(short):
        raise SettingsError(
            f"{name!r} cannot be a machine's name: use small letters, digits and `-`, at most 31 characters. Give one with --name."
        )
    return short


async def plan_join(home: Path, asked: JoinRequest) -> RunHandle:
    """Check that this machine can join the run, and record the run in `home`.

    Raises:
        BrokerUnreachable, BrokerDenied: the broker does not answer, or a role's password is missing or wrong.
        JoinRefused: no such run, a wrong clock, other code, or unreachable blobs or model.
        SettingsError: an override changes what the run computes.

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
            f"{home} has a run {run!r} of its own. Set HINDCAST_HOME to another folder for the part of the joined run that works "
            "on this machine."
        )
    looking = RunHandle(home, run, merge_recorded([here], recipe=DEFAULT))
    async with looking.connect_stream("reader") as stream:
        await _require_no_fork(stream)
        await _require_own_name(stream, asked, _joined_as(looking, asked))
    async with looking.connect_log() as log:
        started = await beginning(log)
        recorded = Layer(
            source="run.started", values=flatten_recorded(started.settings, f"the log of run {run}")
        )
        handle = RunHandle(home, run, merge_recorded([recorded, here], recipe=started.recipe))
        await _require_same_code(log, handle.code_rev, other_code=asked.other_code)
    _require_reachable(handle, asked.counts)
    await asyncio.to_thread(_require_same_blobs, handle, started.base_policy, asked)
    names = sorted({*_joined_as(handle, asked), asked.machine})
    write_json(handle.folder / JOINED, {"url": asked.url, "machines": names})
    write_down(handle)
    return handle


def _here(asked: JoinRequest) -> Layer:
    """Settings that hold on this machine instead of the recorded ones."""
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
    """The broker's users for these roles."""
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
            "Lags and the age of archived pages are computed from recorded times. Set the clock (NTP)."
        )


async def _require_same_code(log: RunLog, ours: str, *, other_code: bool) -> None:
    last = await log.last_under(family_wildcard(log.run, "run"))
    assert last is not None  # the log begins with one
    theirs = decode_envelope(last).code_rev
    if ours != theirs and not other_code:
        raise JoinRefused(
            f"run {log.run} was last started with code revision {theirs or 'unknown'}, and this is {ours}: they may record "
            "different events. Install that revision here, or pass --other-code."
        )


def _joined_as(handle: RunHandle, asked: JoinRequest) -> list[str]:
    """Names under which this home has joined the run before; a home that joined before names were recorded is trusted."""
    note = read_json(handle.folder / JOINED)
    return [] if note is None else list(note.get("machines", [asked.machine]))


async def _require_no_fork(stream: JetStreamLog) -> None:
    """Refuse a fork: its log begins with its parent's log, which only the fork's own home can read."""
    if stream.began > 1:
        first = await stream.read(after=stream.began - 1, limit=1)
        if first and decode_envelope(first[0]).type == BY_CLASS[RunForked].name:
            raise JoinRefused(
                f"run {stream.run} is a fork: events before position {stream.began} are in its parent's log, which only the home "
                "of the fork can read. Run it there, or start a new run from its weights and join that one."
            )


async def _require_own_name(stream: JetStreamLog, asked: JoinRequest, joined_as: Sequence[str]) -> None:
    """Refuse a name that another machine uses: its processes would look like restarts of the other machine's."""
    if asked.machine in joined_as:
        return
    for role in asked.counts:
        name = instance_name(f"{role}.1", machine=asked.machine)
        if await stream.last_under(f"run.{stream.run}.*.{name}.*") is not None:
            raise JoinRefused(
                f"the log of run {stream.run} has events of {name}, and this home has not joined it as {asked.machine} before: "
                "another machine has that name. Choose another with --name."
            )


def _require_same_blobs(handle: RunHandle, known: BlobRef, asked: JoinRequest) -> None:
    """Check that this machine can read the run's blobs, and write them if its roles do.

    It reads an existing blob first, because a folder that is not mounted here may still be writable.
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
            f"the blobs of run {handle.name} are in {place} (storage.blobs), and this machine cannot use them: {error}"
        ) from error
    if not there:
        raise JoinRefused(
            f"run {handle.name} keeps its blobs in {place} (storage.blobs), and this machine does not find its first weights there "
            f"(sha256 {known.sha256[:16]}…): mount the same folder here, or check AWS_ENDPOINT_URL and the bucket's name."
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
            f"run {handle.name} has policy.base = {model}, and this machine has no such folder: put the model there."
        )
