"""Default author of a person's events: the user of this machine."""

import os
from getpass import getuser


def this_user() -> str:
    """The user's name; `uid-1234` if the machine has no name for the user, as in some containers."""
    try:
        return getuser()
    except (KeyError, OSError):  # KeyError up to Python 3.12
        return f"uid-{os.getuid()}"
