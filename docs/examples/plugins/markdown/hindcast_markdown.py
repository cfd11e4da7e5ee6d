"""A renderer as a plugin: a page as Markdown, with element numbers in brackets.

# Desk
- button: Add one [1]
"""

from hindcast.api import Node, Page
from hindcast.core.prompts.rendering import Renderer
from hindcast.core.prompts.rendering.neutral import neutralised


def render(page: Page) -> str:
    """Write headings with `#`, elements as list items, and other texts as they are.

    `neutralised` folds line breaks and rewrites bracketed numbers, so that no page text can pass for an element.
    """
    return "\n".join(_line(node) for node in neutralised(page).nodes)


def _line(node: Node) -> str:
    if node.kind == "heading":
        return f"# {node.text}"
    if node.id is None:
        return node.text
    value = f" = {node.value}" if node.value else ""
    return f"- {node.kind}: {node.text}{value} [{node.id}]"


RENDERER = Renderer(render=render)
