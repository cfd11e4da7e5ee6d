"""Who says something to a run, where they gave no name: the user of this machine."""

import os
from getpass import getuser


def this_user() -> str:
    """Their name; `uid-1234` where the machine has none for them, as in a container that was given a number alone."""
    try:
        return getuser()
    except (KeyError, OSError):  # the former up to Python 3.12
        return f"uid-{os.getuid()}"
