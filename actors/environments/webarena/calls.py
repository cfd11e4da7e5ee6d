"""Parses calls of helper functions in task files, such as `func:shopping_get_latest_order_url()`; never runs them."""

import ast
from collections.abc import Mapping

import msgspec

PREFIX = "func:"
PAGE = "__page__"
"""Argument that means the page itself."""
LAST_URL = "__last_url__"
"""Replaced in an argument by the page's address."""

PARAMETERS: Mapping[str, int] = {
    "shopping_get_latest_order_url": 0,
    "shopping_get_sku_latest_review_author": 1,
    "shopping_get_sku_latest_review_rating": 1,
    "reddit_get_post_url": 1,
    "gitlab_get_project_memeber_role": 2,
}
"""Helper functions of the task files and their numbers of arguments; names are spelt as there."""


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """A call of a helper function."""

    name: str
    arguments: tuple[str, ...]


def read_call(text: str) -> Call:
    """Parse the call after `func:`.

    Raises:
        ValueError: it is no call, or its function or arguments are unknown; the message says which.

    >>> read_call("func:reddit_get_post_url('__last_url__')")
    Call(name='reddit_get_post_url', arguments=('__last_url__',))
    """
    try:
        node = ast.parse(text.removeprefix(PREFIX).strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ValueError("it is no call of a function") from error
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name) or node.keywords:
        raise ValueError("it is no plain call of a function")
    name = node.func.id
    if name not in PARAMETERS:
        raise ValueError(f"there is no function {name!r}; there are: {', '.join(PARAMETERS)}")
    if len(node.args) != PARAMETERS[name]:
        raise ValueError(f"{name} has {PARAMETERS[name]} arguments, not {len(node.args)}")
    return Call(name=name, arguments=tuple(map(_argument, node.args)))


def _argument(node: ast.expr) -> str:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.Name) and node.id == PAGE:
        return PAGE
    raise ValueError(f"an argument must be a text in quotes or {PAGE}")
