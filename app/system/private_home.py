"""A home is its owner's: folders 0700, files 0600, for every role and command.

The umask says so, set once by each entry point (`restrict_new_files`), so that SQLite, nats-server and libraries keep to it,
too. What older versions left open is closed (`close_home`). What a user asks for elsewhere (`--to`) gets the modes of
their own umask (`users_umask`).

A home that is group-writable and has the set-group-ID bit (`chmod 2770`) is shared with its group on purpose: what is made in
it is the group's, too, but for secrets and blobs, which stay the owner's.
"""

import os
import re
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from hindcast.events.disk import Disk

UMASK = "HINDCAST_UMASK"
"""Environment variable with the umask of whoever ran the command, in octal digits."""
OTHERS = 0o077
"""Access that a home gives to nobody but its owner."""
NOT_IN_GROUP = 0o007
"""Access that a shared home gives to its owner and group alone."""
BLOBS = "blobs"
"""A folder of many files, which have always been the owner's."""
_OURS = re.compile(
    r"broker|runs|secrets|processes|folded|endpoint|policy-server|peers|bench-.+"
    r"|(broker|current|failure|page|policy-server|ready|site)\.json|broker\.(lock|log|users)|bus\.lock"
    r"|honcho\.log(\.\d+)?|\..+\.json\.\d+|\.doctor-.+"
)
"""Names in a home that Hindcast gives."""


def restrict_new_files(home: Path) -> None:
    """From now on this process and those that it starts make files for the home's owner alone."""
    before = os.umask(_withheld(home))
    os.environ.setdefault(UMASK, f"{before:o}")


@contextmanager
def users_umask(place: Path, home: Path) -> Iterator[None]:
    """What is made within has the modes of the user's own umask, unless `place`, where it is made, lies in the home."""
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
    """The folder, for its owner alone, with all that it holds."""
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    close_home(home)


def is_open(home: Path) -> bool:
    """Whether others can look into a folder that holds something of ours."""
    with suppress(OSError):
        return bool(home.stat().st_mode & _withheld(home)) and any(map(is_named_by_us, os.listdir(home)))
    return False


def is_named_by_us(name: str) -> bool:
    """Whether Hindcast gives an entry of a home this name."""
    return _OURS.fullmatch(name) is not None


def close_home(home: Path) -> None:
    """Take from others what older versions let them read.

    A folder that holds other things than ours, or that all may write to (`/tmp`), stays as it is: then each entry of ours
    is closed for itself. What belongs to another user is left to them.
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
    """A secret of the home, never empty: made once, however many ask for it at once, readable by the owner alone."""
    path = home / "secrets" / name
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    mine = secrets.token_hex(4)
    if not path.exists():
        Disk().create(path, secrets.token_urlsafe(32).encode(), mine=mine)
    token = path.read_text().strip()
    if not token:  # somebody emptied it
        token = secrets.token_urlsafe(32)
        Disk().replace(path, token.encode(), mine=mine)
    return token


def _restrict(place: Path, withheld: int) -> None:
    with suppress(OSError):  # of another user, removed meanwhile, or on a disk that is read-only
        mode = place.lstat().st_mode
        if mode & withheld and not stat.S_ISLNK(mode):
            place.chmod(stat.S_IMODE(mode) & ~withheld)


def _withheld(home: Path) -> int:
    """Bits that no file of this home has."""
    shared = stat.S_ISGID | stat.S_IWGRP
    with suppress(OSError):
        if home.stat().st_mode & shared == shared:
            return NOT_IN_GROUP
    return OTHERS
