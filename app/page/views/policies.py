"""Policy versions."""

import msgspec

from app.page.asking import Ask
from storage.readmodel.answers import PolicyRow
from storage.readmodel.queries import list_policies


class Policies(msgspec.Struct, frozen=True, kw_only=True):
    """The page's answer."""

    policies: list[PolicyRow]
    """The newest first."""


def policies(ask: Ask) -> Policies:
    """Every version, and who samples from it."""
    return Policies(policies=list_policies(ask.connection, as_of=ask.position))
