"""All errors that Hindcast raises for its users. Each message says what failed, where, the value and what to do next."""

import sysconfig
import traceback
from importlib.metadata import entry_points
from pathlib import Path

from hindcast.core.text.printable import one_line


class HindcastError(Exception):
    """Base of all errors for users. The command line prints the message alone and exits with `exit_code`."""

    exit_code = 1


class SettingsError(HindcastError):
    """A setting is unknown, missing or out of range."""

    exit_code = 2


class PluginError(SettingsError):
    """A plugin that a setting or a recorded run names is missing, broken, or not the one that it was."""


class BrokerUnreachable(HindcastError):
    """The event log's broker does not answer."""


class BrokerDenied(HindcastError):
    """The broker refused a publish or a subscription, because this process acts outside its role."""


class ForeignLog(HindcastError):
    """The stream of this name belongs to another run, was replaced, or has lost events."""


class LogFull(HindcastError):
    """The stream has reached its size limit: it takes no more events, and has lost none."""


class DiskFull(HindcastError):
    """A disk is full. Stored data is intact, and nothing half-written counts as stored."""


class BlobsUnreachable(DiskFull):
    """The blob server fails requests. Callers handle it like a full disk: they wait and try again."""


class ExpectationFailed(HindcastError):
    """Another writer appended first: the fact that this process wanted to record is already decided."""


class NoSuchPlace(HindcastError):
    """A place in a log does not exist, or the text does not name one."""

    exit_code = 2


class CorruptEvent(HindcastError):
    """Stored bytes do not decode or break a hash chain. The message names the position."""


class UnknownVersion(HindcastError):
    """A newer Hindcast than this one wrote an event."""


class BlobMissing(HindcastError):
    """A blob that an event names is not in the blob store."""


class BlobCorrupt(HindcastError):
    """A blob's bytes do not match the digest under which they are stored."""


class ModelFileError(HindcastError):
    """A model folder is incomplete, damaged or of an unsupported kind."""


class PictureUnreadable(HindcastError):
    """An image is damaged, or decodes differently from what the policy saw."""


class CheckpointCorrupt(HindcastError):
    """A checkpoint's tensors do not match the digest in its event."""


class BrowserUnavailable(HindcastError):
    """No usable Chromium was found, or it did not start."""


class EnvironmentFailed(HindcastError):
    """A site did not answer, or a page did not load, within its time limit."""


class EngineFailed(HindcastError):
    """The policy engine did not answer within its time limit, or answered with an unexpected version."""


class ReplayDiverged(HindcastError):
    """A recomputed fact differs from the recorded one."""

    exit_code = 3


class JudgeUnavailable(HindcastError):
    """The judge cannot give a verdict now; the episode stays undecided."""

    exit_code = 4


class RelabelerUnavailable(HindcastError):
    """The relabeler cannot answer now; a later attempt may succeed."""

    exit_code = 4


class RelabelerFailed(HindcastError):
    """A relabeler cannot determine what an episode achieved: the episode stays without relabels, and the log records why."""


PACKAGES = frozenset({"api", "app", "actors", "core", "events", "learner", "storage"})
"""Folders of Hindcast's own packages."""


def error_and_place(error: BaseException) -> str:
    """Describe any raised error in one line: its type, its message, and the file and line to look at.

    That is the innermost line of a plugin, although torch or Hindcast, called with a wrong value, may have raised the error;
    without a plugin, the line that raised it.
    """
    frames = traceback.extract_tb(error.__traceback__)
    of_plugins = [frame for frame in frames if _is_of_a_plugin(frame.filename)]
    innermost = (of_plugins or frames)[-1:]
    location = "".join(f" ({frame.filename}:{frame.lineno})" for frame in innermost)
    return f"{type(error).__name__}: {one_line(str(error))}{location}"


def _is_of_a_plugin(file: str) -> bool:
    """Whether a file is neither Python's nor Hindcast's, nor that of an installed package without plugins."""
    path, own_folder = Path(file), Path(__file__).parents[1]
    if not path.is_file():  # as <string>
        return False
    if path.is_relative_to(own_folder) and path.relative_to(own_folder).parts[0] in PACKAGES:
        return False
    for installed in {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}:
        if path.is_relative_to(installed):
            return path.relative_to(installed).parts[0].removesuffix(".py") in _packages_with_plugins()
    return not path.is_relative_to(sysconfig.get_path("stdlib"))


def _packages_with_plugins() -> set[str]:
    groups = (group for group in entry_points().groups if group.startswith("hindcast."))
    return {entry.module.partition(".")[0] for group in groups for entry in entry_points(group=group)}
