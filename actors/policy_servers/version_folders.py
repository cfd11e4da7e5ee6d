"""Folders that servers read versions from: whole models, or adapters.

A server loads folders, and the learner publishes files. Each version has a folder of its own name, complete and durable
from the moment it becomes visible. So a server never reads parts of two versions, and the remains of a power cut are not
mistaken for a version.
"""

import os
import re
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Lock
from typing import Protocol

from hindcast.core.errors import ModelFileError
from hindcast.core.models.adapter_file import CONFIG_NAME, WEIGHTS_NAME, config_text
from hindcast.events.disk import Disk

WEIGHTS = "model.safetensors"


_OURS = re.compile(r"\d{8,}-[0-9a-f]{12}")
_PARTIAL = re.compile(rf"\.{_OURS.pattern}\.partial")
"""Names of versions' folders, and of incomplete ones: nothing else is ever removed, because the parent folder may be the
user's own.
"""


class VersionLayout(Protocol):
    """The content of a version's folder."""

    kept: int
    """Versions whose folders stay, in addition to those in use."""

    def fill(self, folder: Path, weights: Path, *, base: Path) -> None:
        """Write a published file into a new folder, for the policy in `base`. Raises OSError, ModelFileError."""
        ...


class WholeModelLayout:
    """The policy's configuration and tokenizer, with the weights of a version."""

    kept = 2
    """The version that servers have, and the one that they are given."""

    def fill(self, folder: Path, weights: Path, *, base: Path) -> None:
        """See `VersionLayout.fill`."""
        for file in _all_but_weights(base):
            shutil.copyfile(file, folder / file.name)
        _link_or_copy(weights, folder / WEIGHTS)


class AdapterLayout:
    """A version's adapter, as `peft` writes it."""

    kept = 8
    """vLLM may read an adapter again, for waiting answers that began with it."""

    def fill(self, folder: Path, weights: Path, *, base: Path) -> None:
        """See `VersionLayout.fill`."""
        (folder / CONFIG_NAME).write_text(config_text(weights))
        _link_or_copy(weights, folder / WEIGHTS_NAME)


class VersionFolders:
    """The folders that servers read weights from."""

    def __init__(self, root: Path, base: Path, layout: VersionLayout) -> None:
        """`base`: the folder of the policy at version 0."""
        self._root = root
        self._base = base
        self._layout = layout
        self._laying_out = Lock()
        """Each server has a task of its own, and all want the same version at once."""
        self._reserved: list[Path] = []
        """Folders in use by deliveries, each as often as it is in use."""
        self._reserving = Lock()
        """Guards the list alone: the event loop releases folders, and must not wait while a version is copied."""

    def base(self) -> Path:
        """The policy's own folder, with its first weights."""
        return self._base

    @contextmanager
    def reserve_version(self, version: int, digest: str, weights: Path) -> Iterator[Path]:
        """Reserve the folder of a version with the weights of a file, made if needed; older ones are removed.

        It stays until the context ends, however many newer ones follow: a server may take longer to read a version than the
        learner to publish the next two.

        Raises:
            ModelFileError: the weights do not exist, or there is no room.
        """
        with self._laying_out:
            folder = self._fill_folder(version, digest, weights)
            with self._reserving:
                self._reserved.append(folder)
        try:
            yield folder
        finally:
            with self._reserving:
                self._reserved.remove(folder)

    def _fill_folder(self, version: int, digest: str, weights: Path) -> Path:
        folder = self._root / f"{version:08d}-{digest[:12]}"
        if not folder.is_dir():
            partial = folder.with_name(f".{folder.name}.partial")
            for leftover in self._folders_named(_PARTIAL):  # left by a process that was killed
                shutil.rmtree(leftover, ignore_errors=True)
            try:
                partial.mkdir(parents=True)
                self._layout.fill(partial, weights, base=self._base)
                disk = Disk()
                disk.sync_tree(partial)
                disk.rename(partial, folder)
                disk.sync_folder(self._root)
            except ModelFileError:
                shutil.rmtree(partial, ignore_errors=True)
                raise
            except OSError as error:
                shutil.rmtree(partial, ignore_errors=True)
                raise ModelFileError(
                    f"version {version} could not be laid out for the policy servers in {folder}: {error.strerror or error}"
                ) from error
        with self._reserving:
            reserved = set(self._reserved)
        complete = self._folders_named(_OURS)
        for outdated in complete[: max(0, complete.index(folder) + 1 - self._layout.kept)]:
            if outdated not in reserved:
                shutil.rmtree(outdated, ignore_errors=True)
        return folder

    def drop(self) -> None:
        """Remove every version, and the folder itself if nothing else is in it. No server may ask for them."""
        for folder in (*self._folders_named(_OURS), *self._folders_named(_PARTIAL)):
            shutil.rmtree(folder, ignore_errors=True)
        with suppress(OSError):
            self._root.rmdir()

    def _folders_named(self, names: re.Pattern[str]) -> list[Path]:
        """Folders of this pattern, oldest version first."""
        if not self._root.is_dir():
            return []
        return sorted(folder for folder in self._root.iterdir() if names.fullmatch(folder.name))


def _all_but_weights(base: Path) -> Iterable[Path]:
    for file in sorted(base.iterdir()):
        if file.is_file() and ".safetensors" not in file.name:
            yield file


def _link_or_copy(source: Path, target: Path) -> None:
    """Link the weights, which keeps them when the blob is deleted; copy them between file systems."""
    try:
        os.link(source, target)
    except FileNotFoundError:
        raise
    except OSError:
        shutil.copyfile(source, target)
