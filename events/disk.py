"""The few things a writer does to a disk, in the order that durability asks for: the one place that replaces files durably.

A file that has been replaced is the old one or the new one after any crash: written under another name, synced, renamed,
and its folder synced, since a rename alone may still be lost. Tests put a disk here that dies at any of these steps.
"""

import os
from pathlib import Path

PRIVATE_FILE = 0o600
PRIVATE_FOLDER = 0o700
"""Prompts and pages are the owner's business, as in the blob store."""


class Disk:
    """A real disk."""

    def write(self, file: int, content: bytes) -> None:
        """All of it, at the end of an open file."""
        view = memoryview(content)
        while view:
            view = view[os.write(file, view) :]

    def sync(self, file: int) -> None:
        """Return once the file's content is durable."""
        os.fsync(file)

    def sync_folder(self, folder: Path) -> None:
        """Return once the names in a folder are durable."""
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def rename(self, temporary: Path, place: Path) -> None:
        """Put a finished file in its place."""
        temporary.replace(place)

    def cut(self, file: int, size_bytes: int) -> None:
        """Drop what stands behind a size, durably."""
        os.ftruncate(file, size_bytes)
        self.sync(file)

    def sync_tree(self, folder: Path) -> None:
        """Return once everything in a folder is durable."""
        for place, _, names in os.walk(folder):
            for name in names:
                file = os.open(Path(place, name), os.O_RDONLY)
                try:
                    self.sync(file)
                finally:
                    os.close(file)
            self.sync_folder(Path(place))

    def replace(self, place: Path, content: bytes, *, mine: str = "new") -> None:
        """A whole file, durable under its name when this returns. An unfinished one is overwritten by the next.

        `mine`: ends the name that it is written under; one of its own for each writer where several may write it at once.
        """
        temporary = place.with_name(f".{place.name}.{mine}")
        file = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, PRIVATE_FILE)
        try:
            try:
                self.write(file, content)
                self.sync(file)
            finally:
                os.close(file)
            self.rename(temporary, place)
        except OSError:
            temporary.unlink(missing_ok=True)
            raise
        self.sync_folder(place.parent)

    def create(self, place: Path, content: bytes, *, mine: str) -> bool:
        """A whole file as by `replace`, unless there is one of its name: then False. `mine` is the writer's own.

        Where a disk has no second names for files, one that is there is replaced.
        """
        temporary = place.with_name(f".{place.name}.{mine}")
        self.replace(temporary, content, mine="new")
        try:
            os.link(temporary, place)
        except FileExistsError:
            return False
        except OSError:
            self.rename(temporary, place)
        finally:
            temporary.unlink(missing_ok=True)
        self.sync_folder(place.parent)
        return True

    def make_folder(self, folder: Path) -> None:
        """A folder with those above it, durably."""
        missing = []
        while not folder.is_dir():
            missing.append(folder)
            folder = folder.parent
        for path in reversed(missing):
            path.mkdir(mode=PRIVATE_FOLDER, exist_ok=True)
            self.sync_folder(path.parent)
