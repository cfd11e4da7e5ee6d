"""The renderer `webrl/1`: simplified HTML in the style of WebRL, with element numbers in `id`.

The published checkpoints read markup such as `<a id="7">Reports</a>`: tag, number, a few attributes, own text. Text and
attribute values are escaped, so that page text cannot pass for markup.
"""

from html import escape

from hindcast.core.domain.observation import Node, Page
from hindcast.core.prompts.rendering import Renderer
from hindcast.core.prompts.rendering.neutral import neutralised

_TEXT_TAGS = {"text": "p", "heading": "h1", "image": "img"}
_SHOWN_ATTRIBUTES = ("type", "role", "placeholder", "readonly", "expanded", "selected", "pressed", "class")


def render_webrl(page: Page) -> str:
    """Render `<html>` with the title and one element per line, indented by depth."""
    lines = ["<html>", f"<title>{escape(page.title)}</title>", "<body>"]
    lines.extend(" " * node.depth + _element(node) for node in page.nodes)
    lines += ["</body>", "</html>"]
    return "\n".join(lines)


def _element(node: Node) -> str:
    tag = _TEXT_TAGS.get(node.kind, node.tag)
    attributes = _attributes(node)
    if tag == "img":
        return f'<img{attributes} alt="{escape(node.text)}">'
    if tag == "input":
        label = f"<label>{escape(node.text)}</label> " if node.text and node.kind != "button" else ""
        return f"{label}<input{attributes}>"
    if tag == "select":
        label = f"<label>{escape(node.text)}</label> " if node.text else ""
        options = "".join(
            f"<option{' selected' if option == node.value else ''}>{escape(option)}</option>"
            for option in node.options
        )
        return f"{label}<select{attributes}>{options}</select>"
    if tag == "textarea":
        label = f"<label>{escape(node.text)}</label> " if node.text else ""
        return f"{label}<textarea{attributes}>{escape(node.value or '')}</textarea>"
    return f"<{tag}{attributes}>{escape(node.text)}</{tag}>"


def _attributes(node: Node) -> str:
    attributes: list[tuple[str, str]] = []
    if node.id is not None:
        attributes.append(("id", str(node.id)))
    kind = _input_type(node)
    if kind:
        attributes.append(("type", kind))
    attributes += [
        (name, node.attributes[name])
        for name in _SHOWN_ATTRIBUTES
        if name in node.attributes and name != "type"
    ]
    if node.tag == "input" and node.kind == "button":
        attributes.append(("value", node.text))
    elif node.tag == "input" and node.value:
        attributes.append(("value", node.value))
    text = "".join(f' {name}="{escape(value)}"' for name, value in attributes)
    if node.checked:
        text += " checked"
    if node.disabled:
        text += " disabled"
    return text


def _input_type(node: Node) -> str:
    if node.tag != "input":
        return node.attributes.get("type", "")
    if node.kind == "button":
        return "submit"
    if node.kind in ("checkbox", "radio"):
        return node.kind
    return node.attributes.get("type", "text")


WEBRL_1 = Renderer(render=render_webrl, keeps_role_marks_out=True)
WEBRL_2 = Renderer(render=lambda page: render_webrl(neutralised(page)), keeps_role_marks_out=True)
