"""Every error that Hindcast raises for its users. Each message says what, where, the value and what to do next."""


class HindcastError(Exception):
    """Base of all errors meant for a user. The command line prints the text alone and exits with `exit_code`."""

    exit_code = 1


class SettingsError(HindcastError):
    """A setting is unknown, missing or out of range."""

    exit_code = 2


class PluginError(SettingsError):
    """A plugin that a setting or a recorded run names is missing, broken, or not the one that it was."""


class BrokerUnreachable(HindcastError):
    """The event log's broker does not answer."""


class BrokerDenied(HindcastError):
    """The broker refused a publish or a subscription: this process acts outside its role."""


class ForeignLog(HindcastError):
    """The stream under this name belongs to another run, was swapped, or lost events it once had."""


class LogFull(HindcastError):
    """The stream reached its size limit; nothing was lost, and nothing more can be appended."""


class DiskFull(HindcastError):
    """A disk has no room. What was stored before is untouched, and nothing half-written counts as stored."""


class BlobsUnreachable(DiskFull):
    """The server of the blobs does not do what is asked. To whoever stores one it is what a full disk is: wait, try again."""


class ExpectationFailed(HindcastError):
    """Another writer appended first: the fact this process wanted to record has been decided already."""


class NoSuchPlace(HindcastError):
    """A place in a log was named that is not there, or in words that name none."""

    exit_code = 2


class CorruptEvent(HindcastError):
    """Stored bytes do not decode, or break a hash chain. Names the position."""


class UnknownVersion(HindcastError):
    """An event was written by a newer Hindcast than this one."""


class BlobMissing(HindcastError):
    """A blob named by an event is not in the blob store."""


class BlobCorrupt(HindcastError):
    """A blob's bytes do not have the digest they are stored under."""


class ModelFileError(HindcastError):
    """A model folder is incomplete, damaged or of an unsupported kind."""


class PictureUnreadable(HindcastError):
    """An image is damaged, or comes out otherwise than it was shown to the policy."""


class CheckpointCorrupt(HindcastError):
    """A checkpoint's tensors do not match the digest its event recorded."""


class BrowserUnavailable(HindcastError):
    """No usable Chromium was found or it did not start."""


class EnvironmentFailed(HindcastError):
    """A site did not answer or a page did not load in its time."""


class EngineFailed(HindcastError):
    """The policy engine did not answer in its time or with the version expected of it."""


class ReplayDiverged(HindcastError):
    """A recomputed fact differs from the recorded one."""

    exit_code = 3


class JudgeUnavailable(HindcastError):
    """The judge cannot give a verdict now; the episode stays undecided."""

    exit_code = 4


class RelabelerUnavailable(HindcastError):
    """Whoever tells what an episode achieved cannot be asked now; a later try may succeed."""

    exit_code = 4


class RelabelerFailed(HindcastError):
    """A relabeler cannot tell what an episode achieved: it is left without relabels, and the reason stands in the log."""
