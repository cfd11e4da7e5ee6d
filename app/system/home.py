"""The home folder, which holds every run of this machine."""

import os
from pathlib import Path

from hindcast.core.errors import SettingsError

SHOWN = 200
"""Characters of an invalid path that a message shows."""


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
