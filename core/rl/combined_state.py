"""One digest for the states of all models that a run trains."""

from collections.abc import Mapping

from hindcast.core.ids import digest_hex

POLICY = "policy"
"""The model that acts; others stand beside it."""
CRITIC = "critic"
"""Says of a state how likely success is."""
ORM = "orm"
"""Says of an episode that ended whether it reached its goal: model and judge."""
RELABELER = "relabeler"
"""Says of an episode that ended which goals it achieved: the model of the relabeler `learned`."""


def combined(states: Mapping[str, str]) -> str:
    """The policy's digest where it is alone, else the sha256 over names and digests of all, in sorted order."""
    if set(states) == {POLICY}:
        return states[POLICY]
    return digest_hex("".join(f"{name} {states[name]}\n" for name in sorted(states)).encode())
