"""Which tasks are kept from training a model beside the policy, so that it can be measured on them. By their content alone."""

from hindcast.core.ids import digest_hex

_RANGE = 2**32


def is_held_out(task: str, *, share: float) -> bool:
    """Whether a task, by its id, belongs to the share that is only measured; the same in every run and process.

    A digest of the id decides: a task of a small share is in every larger one.
    """
    drawn = int(digest_hex(f"held out {task}".encode())[:8], 16)
    return drawn < share * _RANGE
