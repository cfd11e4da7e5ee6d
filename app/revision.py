"""Which code this is; stands in every event."""

import subprocess
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

REVISION_S = 5.0
"""How long git may take to name the revision."""


def is_code_newer_than(began: float, root: Path = Path(__file__).resolve().parents[1]) -> bool:
    """Whether a source file of events was put in place after `began` (unix seconds): the process knows older ones."""
    return any(path.stat().st_ctime > began for path in (root / "events").rglob("*.py"))


@cache
def code_revision() -> str:
    """The git revision of the code, with `+` when it was changed since; else the installed version."""
    root = Path(__file__).resolve().parents[1]
    if not (root / ".git").exists():
        return _installed_version()
    try:
        described = subprocess.run(
            ["git", "-C", str(root), "describe", "--always", "--dirty=+", "--exclude=*"],
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
