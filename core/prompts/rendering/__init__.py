"""Renderers: turn a page into text for a policy. Each has a name and a version, which `episode.started` records.

A renderer is a pure function: equal pages give equal text. A change of a renderer's output needs a new version.
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
"""`lines` for small models, `webrl` for those that read HTML, WebShop's for agents of its text modes. The second versions
neutralize page text that could pass for another line or element. `webrl/3` renders as WebRL's published code does, for its
published checkpoints."""

OUTLINED = frozenset({"webrl/3"})
"""Renderers that need a page's outline."""
