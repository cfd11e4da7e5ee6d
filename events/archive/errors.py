"""Errors of archives."""

from hindcast.core.errors import CorruptEvent, ForeignLog, HindcastError


class ArchiveMissing(HindcastError):
    """The folder holds no archive."""


class ArchiveDamaged(CorruptEvent):
    """A file of an archive differs from what was written. The message names the segment and the first affected position."""


class ArchiveBusy(HindcastError):
    """Another process writes this archive."""


class ArchiveReadOnly(HindcastError):
    """An archive cannot be appended to: only the archiver writes it, from a log."""


class ArchiveUnknown(HindcastError):
    """A newer Hindcast wrote the archive."""


class BeyondArchive(ForeignLog):
    """The requested positions are before the archive's beginning."""
