"""Renderers: turn a page into text for a policy. Each is a plugin that `actors.renderer` and `episode.started` name.

A renderer is a pure function: equal pages give equal text. A change of a renderer's output needs a new name, such as
`lines/3` after `lines/2`. `lines` is for small models, `webrl` for those that read HTML, WebShop's for agents of its text
modes. The second versions neutralize page text that could pass for another line or element. `webrl/3` renders as WebRL's
published code does, for its published checkpoints.
"""

from collections.abc import Callable, Mapping

import msgspec

from hindcast.core.domain.observation import Page
from hindcast.core.plugins import PluginTable, find_plugin

KIND = "renderers"
"""The kind of plugin."""


class Renderer(msgspec.Struct, frozen=True, kw_only=True):
    """One way to write a page as text."""

    render: Callable[[Page], str]
    """Pure; reads nothing but the page."""
    needs_outline: bool = False
    """Whether it reads `Page.outline`, which is taken only then."""
    keeps_role_marks_out: bool = False
    """Whether no page text can pass for the role marks of the `webrl` framings."""
    state_version: int = 1
    """To be raised when a page is rendered differently under the same name."""


def find_renderer(name: str) -> Renderer:
    """The renderer that settings name. Raises PluginError where there is none."""
    return find_plugin(KIND, name, Renderer)


def _render(renderer: Renderer) -> Callable[[Page], str]:
    return renderer.render


RENDERERS: Mapping[str, Callable[[Page], str]] = PluginTable(KIND, _render)
"""The function of every renderer, by name."""
