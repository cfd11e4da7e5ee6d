"""One digest over the states of all models that a run trains."""

from collections.abc import Mapping

from hindcast.core.ids import digest_hex

POLICY = "policy"
"""The model that acts."""
CRITIC = "critic"
"""Model that estimates the probability of success from a state."""
ORM = "orm"
"""Outcome reward model: decides whether an ended episode reached its goal. Also the name of its judge."""
RELABELER = "relabeler"
"""Model of the relabeler `learned`: names the goals that an ended episode achieved."""


def combined(states: Mapping[str, str]) -> str:
    """Combine model digests by name: the policy's own if it is alone, else the sha256 over all names and digests, sorted."""
    if set(states) == {POLICY}:
        return states[POLICY]
    return digest_hex("".join(f"{name} {states[name]}\n" for name in sorted(states)).encode())
