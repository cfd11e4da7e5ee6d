"""The renderers `webshop_text/1` and `webshop_rich/1`: WebShop's observations for text agents (`text`, `text_rich`).

    WebShop [SEP] Instruction: [SEP] Find me … [SEP] Search

Rich: a line per text, `[button] Buy Now [button_]`, and `[clicked button] small [clicked button_]` for a chosen option,
which lines at the top repeat. Upstream's blank lines from its HTML are left out.
"""

from hindcast.core.domain.observation import Node, Page
from hindcast.core.prompts.rendering import Renderer

SEPARATOR = " [SEP] "
_BUTTONS = frozenset({"button", "link", "radio"})


def render_webshop_text(page: Page) -> str:
    """Render the page's texts with separators; input fields have no text."""
    return SEPARATOR.join(" ".join(node.text.split()) for node in page.nodes if _has_text(node))


def render_webshop_rich(page: Page) -> str:
    """Render the page's texts, a line each, with buttons marked."""
    selected_lines = [
        f"You have clicked {node.text}." for node in page.nodes if node.kind == "radio" and node.checked
    ]
    return "\n".join([*reversed(selected_lines), *(_line(node) for node in page.nodes if _has_text(node))])


def _line(node: Node) -> str:
    text = " ".join(node.text.split())
    if node.kind not in _BUTTONS:
        return text
    clicked = "clicked " if node.checked or "visited" in node.attributes else ""
    return f"[{clicked}button] {text} [{clicked}button_]"


def _has_text(node: Node) -> bool:
    return node.kind != "input" and bool(node.text.strip())


WEBSHOP_TEXT = Renderer(render=render_webshop_text)
WEBSHOP_RICH = Renderer(render=render_webshop_rich)
