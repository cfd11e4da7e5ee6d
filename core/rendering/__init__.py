"""Pages as text for a policy. Each renderer has a name and a version; `episode.started` records which one was used.

A renderer is a pure function of the page: equal pages, equal text. Changing a renderer's output means a new version.
"""

from collections.abc import Callable

from core.observation import Page
from core.rendering.lines import render_lines
from core.rendering.neutral import neutralised
from core.rendering.webrl import render_webrl
from core.rendering.webshop import render_webshop_rich, render_webshop_text

RENDERERS: dict[str, Callable[[Page], str]] = {
    "lines/1": render_lines,
    "lines/2": lambda page: render_lines(neutralised(page)),
    "webrl/1": render_webrl,
    "webrl/2": lambda page: render_webrl(neutralised(page)),
    "webshop_text/1": render_webshop_text,
    "webshop_rich/1": render_webshop_rich,
}
"""`lines` for small models, `webrl` for checkpoints trained on WebRL's simplified HTML, WebShop's for agents that read its
text modes. The second versions differ from the first on pages whose text could pass for a line or an element of another:
there it is neutralised."""
