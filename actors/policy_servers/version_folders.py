"""Folders that servers read versions from: whole models, or adapters.

A server loads folders, and the learner publishes files. Each version has a folder of its own name, complete
and durable from the moment that it can be seen, so that a server never reads half of one version and half of another, and what
a power cut left is not taken for a version.
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
"""Names of versions' folders, and of those that are not whole: nothing else is ever removed, for the folder round them
may be a user's own."""


class VersionLayout(Protocol):
    """What is in a version's folder."""

    kept: int
    """Versions whose folders stay, beside those that are lent."""

    def fill(self, folder: Path, weights: Path, *, base: Path) -> None:
        """Lay a published file out in a new folder, for the policy in `base`. Raises OSError, ModelFileError."""
        ...


class WholeModelLayout:
    """The policy's configuration and tokenizer beside the weights of a version."""

    kept = 2
    """The one that servers have, and the one that they are given."""

    def fill(self, folder: Path, weights: Path, *, base: Path) -> None:
        """See `VersionLayout.fill`."""
        for file in _all_but_weights(base):
            shutil.copyfile(file, folder / file.name)
        _link_or_copy(weights, folder / WEIGHTS)


class AdapterLayout:
    """A version's adapter, as `peft` writes it."""

    kept = 8
    """vLLM may read an adapter again that it was given before, for answers that began with it and wait for their turn."""

    def fill(self, folder: Path, weights: Path, *, base: Path) -> None:
        """See `VersionLayout.fill`."""
        (folder / CONFIG_NAME).write_text(config_text(weights))
        _link_or_copy(weights, folder / WEIGHTS_NAME)


class VersionFolders:
    """Where servers read weights from."""

    def __init__(self, root: Path, base: Path, layout: VersionLayout) -> None:
        """`base`: the folder of the policy at version 0."""
        self._root = root
        self._base = base
        self._layout = layout
        self._laying_out = Lock()
        """Each server is kept by a task of its own, and all want the same version at once."""
        self._lent: list[Path] = []
        """Folders that servers are being given, each as often as that is so."""
        self._lending = Lock()
        """Over the list alone: the event loop gives folders back, and must not wait while a version is copied."""

    def base(self) -> Path:
        """The policy's own folder, with its first weights."""
        return self._base

    @contextmanager
    def lent(self, version: int, digest: str, weights: Path) -> Iterator[Path]:
        """The folder of a version with the weights of a file, made if need be; older ones go.

        It stays for the length of the context, however many newer ones come meanwhile: a server may take longer to read a
        version than the learner to publish the next two.

        Raises:
            ModelFileError: the weights are not there, or there is no room.

        """
        with self._laying_out:
            folder = self._put(version, digest, weights)
            with self._lending:
                self._lent.append(folder)
        try:
            yield folder
        finally:
            with self._lending:
                self._lent.remove(folder)

    def _put(self, version: int, digest: str, weights: Path) -> Path:
        folder = self._root / f"{version:08d}-{digest[:12]}"
        if not folder.is_dir():
            partial = folder.with_name(f".{folder.name}.partial")
            for left in self._named(_PARTIAL):  # by one that was killed
                shutil.rmtree(left, ignore_errors=True)
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
        with self._lending:
            lent = set(self._lent)
        whole = self._named(_OURS)
        for old in whole[: max(0, whole.index(folder) + 1 - self._layout.kept)]:
            if old not in lent:
                shutil.rmtree(old, ignore_errors=True)
        return folder

    def drop(self) -> None:
        """Remove every version, and the folder itself where nothing of anybody else's is in it. No server may ask for them."""
        for each in (*self._named(_OURS), *self._named(_PARTIAL)):
            shutil.rmtree(each, ignore_errors=True)
        with suppress(OSError):
            self._root.rmdir()

    def _named(self, names: re.Pattern[str]) -> list[Path]:
        """Oldest version first."""
        if not self._root.is_dir():
            return []
        return sorted(each for each in self._root.iterdir() if names.fullmatch(each.name))


def _all_but_weights(base: Path) -> Iterable[Path]:
    for file in sorted(base.iterdir()):
        if file.is_file() and ".safetensors" not in file.name:
            yield file


def _link_or_copy(source: Path, target: Path) -> None:
    """A link keeps the weights there though the blob is let go of; between file systems there is none."""
    try:
        os.link(source, target)
    except FileNotFoundError:
        raise
    except OSError:
        shutil.copyfile(source, target)
