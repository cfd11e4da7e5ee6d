"""Files of our own broker's store: diagnosis and repair of a stream that the server does not load.

    broker/jetstream/<account>/streams/RUN_<run>/   meta.inf  meta.sum       what the stream is, and the checksum of that
        msgs/   <number>.blk  index.db                                       its events; the index is made anew if it is damaged
        obs/<consumer>/   meta.inf  meta.sum  o.dat                          what a work queue is, and how far it was served

nats-server 2.15 skips a stream whose description is damaged, with one line in its own log, and answers that there is none.
Asked to create it, it loads the block files again, but the work queues only at its next start. An unreadable description of a
queue stops the whole stream, or the queue is skipped. The blocks are sound in all these cases, and everything else can be
rebuilt: descriptions are made again, and a queue made anew delivers finished work again.
"""

import re
import shutil
from pathlib import Path

from hindcast.core.errors import HindcastError
from hindcast.events.subjects import stream_name

CHECKSUM_CHARS = 16
DESCRIPTION, CHECKSUM, SERVED = "meta.inf", "meta.sum", "o.dat"


class StreamNotLoaded(HindcastError):
    """The broker's folder holds the events of a run, but the broker does not load them."""


def store_of(home: Path) -> Path:
    """Return JetStream's folder of a home's own broker."""
    return home / "broker"


def stored_stream(home: Path, run: str) -> Path | None:
    """Return the folder of a run's stream, if it holds block files."""
    folders = store_of(home).glob(f"jetstream/*/streams/{stream_name(run)}")
    return next((folder for folder in folders if any((folder / "msgs").glob("*.blk"))), None)


def describe_damage(folder: Path) -> str:
    """Say which description is damaged in the folder of a stream or queue that the server does not load."""
    for name in (DESCRIPTION, CHECKSUM):
        path = folder / name
        try:
            content = path.read_bytes()
        except FileNotFoundError:
            return f"{path} is missing"
        if not content:
            return f"{path} is empty"
    if (folder / SERVED).exists():  # a queue's: the server does not compare its checksum
        return f"{folder / DESCRIPTION} or {SERVED} in the same folder is damaged"
    if len(content) != CHECKSUM_CHARS:
        return f"{path} is damaged: it has {len(content)} bytes instead of {CHECKSUM_CHARS}"
    return (
        f"{folder / DESCRIPTION} does not match its checksum {folder / CHECKSUM}: one of the two is damaged"
    )


def describe_stream_damage(stream: Path, reason: str) -> str:
    """Say what is damaged in a stream that the server does not serve; `reason` is its reason, which may name a work queue."""
    match = re.search(r'consumer "([^"]*)"', reason)
    if match is None:
        return describe_damage(stream)
    folder = queue_folder(stream, match[1])
    if match[1] and folder.is_dir():
        return describe_damage(folder)
    return f"the {DESCRIPTION} of a work queue under {folder.parent if match[1] else folder} is damaged"


def queue_folder(stream: Path, queue: str) -> Path:
    """Return the folder of a stream's work queue."""
    return stream / "obs" / queue


def forget_descriptions(stream: Path) -> None:
    """Delete the files that the server makes again when the stream is created over its blocks. It must not run meanwhile."""
    shutil.rmtree(stream / "obs", ignore_errors=True)
    for name in (DESCRIPTION, CHECKSUM):
        (stream / name).unlink(missing_ok=True)
