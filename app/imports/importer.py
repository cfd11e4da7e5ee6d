"""Interface of importers: plugins that read another system's run as conversations, for `hindcast import`."""

from collections.abc import Callable
from pathlib import Path

import msgspec

from hindcast.app.imports import IMPORTERS
from hindcast.app.imports.recorded_run import Located
from hindcast.core.plugins import find_plugin


class Importer(msgspec.Struct, frozen=True, kw_only=True):
    """One format of `hindcast import`."""

    reads: str
    """What it reads, in a few words."""
    conversations: Callable[[Path], Located]
    """Yields every conversation of a file with its place. It is called twice: the first time to check everything.

    Raises:
        DocumentError: something cannot be read; names the key.
        OSError: the file cannot be read.
    """
    judge: str = "recorded"
    """Judge whose verdicts are the recorded rewards; a new run has it."""
    state_version: int = 1
    """Raise it when the same file becomes other episodes: they are then imported anew."""


def find_importer(name: str) -> Importer:
    """The importer of a format. Raises PluginError if there is none."""
    return find_plugin(IMPORTERS, name, Importer)


def check_importer(found: Importer) -> list[str]:
    """Describe the mistakes of an importer, one sentence each."""
    return [] if found.reads else ["its `reads` does not say what it reads"]
