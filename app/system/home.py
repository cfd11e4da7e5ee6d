"""The home folder, which holds every run of this machine, and its access rights: folders 0700 and files 0600.

Each entry point sets the umask once (`restrict_new_files`), so that SQLite, nats-server and libraries obey it, too.
`close_home` restricts what older versions left open. Output outside the home (`--to`) gets the user's own umask
(`users_umask`).

A home that is group-writable with the set-group-ID bit (`chmod 2770`) is shared with its group on purpose. New files are
then the group's, too, except secrets and blobs, which stay the owner's.
"""

import os
import re
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from hindcast.core.errors import SettingsError
from hindcast.events.disk import Disk

SHOWN = 200
"""Characters of an invalid path that a message shows."""
UMASK = "HINDCAST_UMASK"
"""Environment variable with the user's umask, in octal digits."""
OTHERS = 0o077
"""Permission bits that no one but the owner gets."""
NOT_IN_GROUP = 0o007
"""Permission bits that nobody outside the group of a shared home gets."""
BLOBS = "blobs"
"""Folder of blobs; its many files have always been the owner's, so `close_home` skips it."""
_OURS = re.compile(
    r"broker|runs|secrets|processes|folded|endpoint|policy-server|peers|bench-.+"
    r"|(broker|current|failure|page|policy-server|ready|site)\.json|broker\.(lock|log|users)|bus\.lock"
    r"|honcho\.log(\.\d+)?|\..+\.json\.\d+|\.doctor-.+"
)
"""Names that Hindcast gives to entries of a home."""


def home_folder() -> Path:
    """The folder `HINDCAST_HOME`, by default `.hindcast` in the current folder.

    Raises:
        SettingsError: it is no folder, or its path is not valid UTF-8, which SQLite needs.

    """
    home = Path(os.environ.get("HINDCAST_HOME") or ".hindcast").absolute()
    if "\0" in str(home):
        raise SettingsError("HINDCAST_HOME holds a null character, which no path can")
    try:
        str(home).encode()
    except UnicodeEncodeError:
        raise SettingsError(
            f"the path {str(home)!a} is not valid UTF-8. Set HINDCAST_HOME to a folder whose path is."
        ) from None
    try:
        there = home.is_dir()
    except OSError as error:
        raise SettingsError(
            f"{str(home)[:SHOWN]} cannot be a folder: {error.strerror}. Set HINDCAST_HOME to one that can be made."
        ) from error
    if there:
        return home
    if os.path.lexists(home):
        what = "a link that leads nowhere" if home.is_symlink() else "a file"
        raise SettingsError(f"{home} is {what}: HINDCAST_HOME names the folder that runs are kept in")
    return home


def restrict_new_files(home: Path) -> None:
    """Restrict the files that this process and its children create to the home's owner."""
    before = os.umask(_withheld(home))
    os.environ.setdefault(UMASK, f"{before:o}")


@contextmanager
def users_umask(place: Path, home: Path) -> Iterator[None]:
    """Use the user's own umask for files created in the block, unless `place`, where they are created, is in the home."""
    users = os.environ.get(UMASK)
    if users is None or place.resolve().is_relative_to(home.resolve()):
        yield
        return
    before = os.umask(int(users, 8))
    try:
        yield
    finally:
        os.umask(before)


def make_home(home: Path) -> None:
    """Create the home folder for its owner alone, and restrict its content."""
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    close_home(home)


def is_open(home: Path) -> bool:
    """Whether other users can read a folder that holds entries of Hindcast."""
    with suppress(OSError):
        return bool(home.stat().st_mode & _withheld(home)) and any(map(is_named_by_us, os.listdir(home)))
    return False


def is_named_by_us(name: str) -> bool:
    """Whether Hindcast gives this name to an entry of a home."""
    return _OURS.fullmatch(name) is not None


def close_home(home: Path) -> None:
    """Withdraw other users' access to a home that an older version left open.

    A folder with foreign entries, or one that all users may write to (`/tmp`), keeps its mode; then each entry of Hindcast is
    restricted. Files of other users stay unchanged.
    """
    withheld = _withheld(home)
    with suppress(PermissionError):
        names = os.listdir(home)
        ours = [name for name in names if is_named_by_us(name)]
        if len(ours) == len(names) and not home.stat().st_mode & stat.S_ISVTX:
            _restrict(home, withheld)
        for name in ours:
            for folder, folders, files in os.walk(home / name):
                for inner in (*folders, *files):
                    _restrict(Path(folder, inner), withheld)
                folders[:] = [inner for inner in folders if inner != BLOBS]
            _restrict((home / name).resolve(), withheld)


def lasting_token(home: Path, name: str) -> str:
    """A secret of the home, never empty: created once even by concurrent callers, readable by the owner alone."""
    path = home / "secrets" / name
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    mine = secrets.token_hex(4)
    if not path.exists():
        Disk().create(path, secrets.token_urlsafe(32).encode(), suffix=mine)
    token = path.read_text().strip()
    if not token:  # the file was emptied
        token = secrets.token_urlsafe(32)
        Disk().replace(path, token.encode(), suffix=mine)
    return token


def _restrict(place: Path, withheld: int) -> None:
    with suppress(OSError):  # of another user, removed meanwhile, or on a disk that is read-only
        mode = place.lstat().st_mode
        if mode & withheld and not stat.S_ISLNK(mode):
            place.chmod(stat.S_IMODE(mode) & ~withheld)


def _withheld(home: Path) -> int:
    """Permission bits that no file of this home gets."""
    shared = stat.S_ISGID | stat.S_IWGRP
    with suppress(OSError):
        if home.stat().st_mode & shared == shared:
            return NOT_IN_GROUP
    return OTHERS
