"""Checks the settings of where a run's log and blobs are stored."""

import os
import tempfile
from pathlib import Path

from hindcast.core.errors import SettingsError
from hindcast.core.settings.schema import Settings
from hindcast.events.jetstream.addresses import servers_in
from hindcast.events.jetstream.broker import STORE_LIMIT_BYTES
from hindcast.storage.blobs.bucket import check_address, is_bucket
from hindcast.storage.blobs.remote import KEEPS_PAGES

LEAST_LOG_BYTES = 1024**2
"""Minimum size of a log; a run's first events alone take a part of it."""


def place_conflicts(settings: Settings) -> list[str]:
    """Invalid addresses of log and blobs, and settings that they do not support."""
    log, storage = settings.log, settings.storage
    found = []
    try:
        if log.url:
            servers_in(log.url)
        if is_bucket(storage.blobs):
            check_address(storage.blobs)
    except SettingsError as error:
        found.append(str(error))
    if not log.url and log.replicas > 1:
        found.append(
            f"log.replicas = {log.replicas} needs a cluster of at least as many servers, and with an empty log.url the run starts a "
            "single server: set log.url, or leave log.replicas at 1"
        )
    if "://" in storage.archive:
        found.append(
            f"storage.archive = {storage.archive!r} is an address, and an archive is a folder. Name a folder on this machine; "
            "to keep it elsewhere, too, copy that folder there with your storage's own tool"
        )
    if is_bucket(storage.blobs) and storage.keep_page_episodes:
        found.append(KEEPS_PAGES)
    return found


def size_conflicts(settings: Settings) -> list[str]:
    """Describe a size limit of a new run's log that is too small, or too large for the broker."""
    log = settings.log
    most = 2**63 - 1 if log.url else STORE_LIMIT_BYTES
    if LEAST_LOG_BYTES <= log.max_bytes <= most:
        return []
    return [f"log.max_bytes = {log.max_bytes} must be {LEAST_LOG_BYTES} (1 MiB) to {most} bytes"]


def require_places(settings: Settings, home: Path) -> None:
    """Require that the folders in the settings can be created and written to. Raises SettingsError that lists all others."""
    storage = settings.storage
    named = {"storage.archive": storage.archive}
    if not is_bucket(storage.blobs):
        named["storage.blobs"] = storage.blobs
    wrong = [why for key, place in named.items() if place and (why := _unusable(key, place, home))]
    if wrong:
        raise SettingsError("\n".join(wrong))


def _unusable(key: str, place: str, home: Path) -> str:
    """Explain why a folder cannot be written to; empty if it can."""
    said = f"{key} = {place!r} cannot be a folder to write to"
    try:
        folder = (home / Path(place).expanduser()).absolute()
        # a missing folder is created under its nearest existing parent
        there = next(one for one in (folder, *folder.parents) if os.path.lexists(one))
    except (RuntimeError, OSError) as error:
        return f"{said}: {error}"
    if not there.is_dir():
        return f"{said}: {there} is {'a dangling link' if there.is_symlink() else 'not a folder'}"
    try:
        with tempfile.TemporaryFile(dir=there):
            return ""
    except OSError as error:
        return f"{said}: nothing can be written in {there} ({error.strerror})"
