"""What can be wrong with an archive, for its users."""

from hindcast.core.errors import CorruptEvent, ForeignLog, HindcastError


class ArchiveMissing(HindcastError):
    """The folder holds no archive."""


class ArchiveDamaged(CorruptEvent):
    """A file of an archive is not as it was written. Names the segment and the first position concerned."""


class ArchiveBusy(HindcastError):
    """Another process writes this archive."""


class ArchiveReadOnly(HindcastError):
    """An archive is no log to append to: only the archiver writes it, from a log."""


class ArchiveUnknown(HindcastError):
    """The archive was written by a newer Hindcast."""


class BeyondArchive(ForeignLog):
    """Positions were asked for that this archive does not hold."""
