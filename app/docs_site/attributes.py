"""Attributes of a class with their docstrings, read from the source."""

import ast
import inspect
import textwrap
from typing import NamedTuple


class Attribute(NamedTuple):
    """One annotated attribute of a class."""

    type: str
    """As it is written."""
    default: str
    """As it is written; empty: it has to be given."""
    text: str
    """Its docstring."""


def attributes_of(cls: type) -> dict[str, Attribute]:
    """The attributes that the class declares itself, in their order."""
    (tree,) = ast.parse(textwrap.dedent(inspect.getsource(cls))).body
    assert isinstance(tree, ast.ClassDef)
    found: dict[str, Attribute] = {}
    for node, after in zip(tree.body, [*tree.body[1:], None], strict=True):
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            found[node.target.id] = Attribute(
                type=ast.unparse(node.annotation),
                default=ast.unparse(node.value) if node.value is not None else "",
                text=_text(after),
            )
    return found


def _text(node: ast.stmt | None) -> str:
    match node:
        case ast.Expr(value=ast.Constant(value=str(text))):
            return inspect.cleandoc(text)
        case _:
            return ""
