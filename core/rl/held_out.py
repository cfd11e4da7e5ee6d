"""Held-out tasks: an auxiliary model is never trained on them and its accuracy is measured on them."""

from hindcast.core.ids import digest_hex

_RANGE = 2**32


def is_held_out(task: str, *, share: float) -> bool:
    """Whether a task id belongs to the held-out share; the same in every run and process.

    A digest of the id decides, so that a larger share contains every smaller one.
    """
    hash_value = int(digest_hex(f"held out {task}".encode())[:8], 16)
    return hash_value < share * _RANGE
