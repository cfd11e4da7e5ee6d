"""The revision of the running code, which every event records."""

import subprocess
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("core", "actors", "learner", "events", "storage", "app")
REVISION_S = 5.0
"""How long git may take to name the revision."""


def is_code_newer_than(began: float, root: Path = ROOT) -> bool:
    """Whether a source file is newer than `began` (unix seconds), so that a process that loaded its code then runs older code."""
    files = (path for folder in PACKAGES for path in (root / folder).rglob("*.py"))
    return any(_changed(path) > began for path in files)


def _changed(path: Path) -> float:
    """When a file was changed last, in unix seconds; 0 if it is gone, as during an upgrade."""
    try:
        return path.stat().st_ctime
    except OSError:
        return 0.0


@cache
def code_revision() -> str:
    """The git revision of the code, with `+` if it has uncommitted changes; the installed version where there is no git."""
    if not (ROOT / ".git").exists():
        return _installed_version()
    try:
        described = subprocess.run(
            ["git", "-C", str(ROOT), "describe", "--always", "--dirty=+", "--exclude=*"],
            capture_output=True,
            text=True,
            timeout=REVISION_S,
            check=True,
        )
        return described.stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return _installed_version()


def _installed_version() -> str:
    try:
        return version("hindcast")
    except PackageNotFoundError:
        return "unknown"
