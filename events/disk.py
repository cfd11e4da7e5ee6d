"""Durable writes to disk: the one place that replaces files so that they survive a crash.

After any crash a replaced file is the old one or the new one: it is written under another name, synced and renamed, then its
folder is synced, because a rename alone may be lost. Tests substitute a disk that fails at any step.
"""

import os
from pathlib import Path

PRIVATE_FILE = 0o600
PRIVATE_FOLDER = 0o700
"""Only the owner may read prompts and pages, as in the blob store."""


class Disk:
    """The real disk."""

    def write(self, file: int, content: bytes) -> None:
        """Write all content at the end of an open file."""
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

    def rename(self, temporary: Path, path: Path) -> None:
        """Move a finished file to its place."""
        temporary.replace(path)

    def cut(self, file: int, size_bytes: int) -> None:
        """Truncate a file to a size, durably."""
        os.ftruncate(file, size_bytes)
        self.sync(file)

    def sync_tree(self, folder: Path) -> None:
        """Return once everything in a folder is durable."""
        for parent, _, names in os.walk(folder):
            for name in names:
                file = os.open(Path(parent, name), os.O_RDONLY)
                try:
                    self.sync(file)
                finally:
                    os.close(file)
            self.sync_folder(Path(parent))

    def replace(self, path: Path, content: bytes, *, suffix: str = "new") -> None:
        """Replace a whole file; it is durable under its name when this returns. The next call overwrites an unfinished one.

        `suffix` ends the temporary name; if several writers may write at once, each needs its own.
        """
        temporary = path.with_name(f".{path.name}.{suffix}")
        file = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, PRIVATE_FILE)
        try:
            try:
                self.write(file, content)
                self.sync(file)
            finally:
                os.close(file)
            self.rename(temporary, path)
        except OSError:
            temporary.unlink(missing_ok=True)
            raise
        self.sync_folder(path.parent)

    def create(self, path: Path, content: bytes, *, suffix: str) -> bool:
        """Create a whole file like `replace`, but return False if it exists. `suffix` is the writer's own.

        On a disk without hard links an existing file is replaced.
        """
        temporary = path.with_name(f".{path.name}.{suffix}")
        self.replace(temporary, content, suffix="new")
        try:
            os.link(temporary, path)
        except FileExistsError:
            return False
        except OSError:
            self.rename(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)
        self.sync_folder(path.parent)
        return True

    def make_folder(self, folder: Path) -> None:
        """Make a folder and its missing parents, durably."""
        missing = []
        while not folder.is_dir():
            missing.append(folder)
            folder = folder.parent
        for path in reversed(missing):
            path.mkdir(mode=PRIVATE_FOLDER, exist_ok=True)
            self.sync_folder(path.parent)
