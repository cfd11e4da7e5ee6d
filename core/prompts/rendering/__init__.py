"""Pages as text for a policy. Each renderer has a name and a version; `episode.started` records which one was used.

A renderer is a pure function of the page: equal pages, equal text. Changing a renderer's output means a new version.
"""

from collections.abc import Callable

from hindcast.core.domain.observation import Page
from hindcast.core.prompts.rendering.lines import render_lines
from hindcast.core.prompts.rendering.neutral import neutralised
from hindcast.core.prompts.rendering.outline import render_outline
from hindcast.core.prompts.rendering.webrl import render_webrl
from hindcast.core.prompts.rendering.webshop import render_webshop_rich, render_webshop_text

RENDERERS: dict[str, Callable[[Page], str]] = {
    "lines/1": render_lines,
    "lines/2": lambda page: render_lines(neutralised(page)),
    "webrl/1": render_webrl,
    "webrl/2": lambda page: render_webrl(neutralised(page)),
    "webrl/3": render_outline,
    "webshop_text/1": render_webshop_text,
    "webshop_rich/1": render_webshop_rich,
}
"""`lines` for small models, `webrl` for those that read HTML, WebShop's for agents that read its text modes. The second
versions differ from the first on pages whose text could pass for a line or an element of another: there it is neutralised.
`webrl/3` writes pages as WebRL's published code does, for its published checkpoints."""

OUTLINED = frozenset({"webrl/3"})
"""Renderers for which a snapshot carries the page's outline."""
