"""Pages as text for a policy. Each renderer has a name and a version; `episode.started` records which one was used.

A renderer is a pure function of the page: equal pages, equal text. Changing a renderer's output means a new version.
"""

from collections.abc import Callable

from core.observation import Page
from core.rendering.lines import render_lines
from core.rendering.webrl import render_webrl

RENDERERS: dict[str, Callable[[Page], str]] = {
    "lines/1": render_lines,
    "webrl/1": render_webrl,
}
"""`lines/1` for small models, `webrl/1` for checkpoints trained on WebRL's simplified HTML."""
