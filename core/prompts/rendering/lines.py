"""The renderer `lines/1`: one node per line as `kind text = state [id]`, short enough for a small model.

    page Checkout
    heading Your cart
    text Mug | 2 | $7.98
    input Quantity = 2 [1]
    checkbox Gift wrap = off [2]
    select Delivery = Standard | Express | Pick up [3]
    button Buy now [4]
    link Home [5]

The state after ` = ` is an input's value (left out if empty), `on` or `off`, a select's choice and then its other options,
`open`/`closed`, or `selected`. A node that refuses input ends in `(disabled)` and has no number.
"""

from hindcast.core.domain.observation import Node, Page
from hindcast.core.prompts.rendering import Renderer
from hindcast.core.prompts.rendering.neutral import neutralised


def render_lines(page: Page) -> str:
    """Render the page's title and nodes, a line each."""
    lines = [f"page {page.title}".rstrip()]
    lines.extend(render_line(node) for node in page.nodes)
    if page.truncated:
        lines.append("text …")
    return "\n".join(lines)


def render_line(node: Node) -> str:
    """Render one node on one line: white space inside values is folded."""
    parts = [node.kind]
    text = node.text or node.attributes.get("class", "")
    if text:
        parts.append(text)
    state = _state(node)
    if state:
        parts.append(f"= {state}")
    if node.disabled:
        parts.append("(disabled)")
    if node.id is not None:
        parts.append(f"[{node.id}]")
    return " ".join(" ".join(parts).split())


def _state(node: Node) -> str:
    if node.checked is not None:
        return "on" if node.checked else "off"
    if node.kind == "select":
        selected = node.value or ""
        return " | ".join([selected, *(option for option in node.options if option != selected)])
    if node.value:
        return node.value
    if "expanded" in node.attributes:
        return "open" if node.attributes["expanded"] == "true" else "closed"
    if node.attributes.get("selected") == "true" or node.attributes.get("pressed") == "true":
        return "selected"
    return ""


LINES_1 = Renderer(render=render_lines)
LINES_2 = Renderer(render=lambda page: render_lines(neutralised(page)))
