"""`webshop_text/1`, `webshop_rich/1`: WebShop's observations for text agents, as its `text` and `text_rich` modes.

    WebShop [SEP] Instruction: [SEP] Find me … [SEP] Search

Rich: a line each, `[button] Buy Now [button_]`, `[clicked button] small [clicked button_]` for what was chosen, which is
said above, too. Where upstream shows blank lines of its HTML there are none here.
"""

from hindcast.core.domain.observation import Node, Page

SEPARATOR = " [SEP] "
_BUTTONS = frozenset({"button", "link", "radio"})


def render_webshop_text(page: Page) -> str:
    """The page's texts with separators; fields have none."""
    return SEPARATOR.join(" ".join(node.text.split()) for node in page.nodes if _has_text(node))


def render_webshop_rich(page: Page) -> str:
    """The page's texts, those that can be clicked marked."""
    chosen = [
        f"You have clicked {node.text}." for node in page.nodes if node.kind == "radio" and node.checked
    ]
    return "\n".join([*reversed(chosen), *(_line(node) for node in page.nodes if _has_text(node))])


def _line(node: Node) -> str:
    text = " ".join(node.text.split())
    if node.kind not in _BUTTONS:
        return text
    clicked = "clicked " if node.checked or "visited" in node.attributes else ""
    return f"[{clicked}button] {text} [{clicked}button_]"


def _has_text(node: Node) -> bool:
    return node.kind != "input" and bool(node.text.strip())
