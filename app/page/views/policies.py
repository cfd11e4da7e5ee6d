"""Page of the policy versions."""

import msgspec

from hindcast.app.page.runs import PageQuery
from hindcast.storage.readmodel.run_queries import PolicyRow, list_policies

PAGE = 100
"""Rows of a page."""


class PoliciesPage(msgspec.Struct, frozen=True, kw_only=True):
    """Values of the page of policy versions."""

    policies: list[PolicyRow]
    """Policy versions, newest first."""
    before: int | None
    """Parameter of the next page; None: there is none."""


def policies(ask: PageQuery) -> PoliciesPage:
    """The newest versions, and who samples from them."""
    found = list_policies(ask.connection, as_of=ask.position, before=ask.number("before"), limit=PAGE + 1)
    return PoliciesPage(policies=found[:PAGE], before=found[PAGE - 1].version if len(found) > PAGE else None)
