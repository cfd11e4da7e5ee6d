"""Screenshots: JPEG by Chromium itself, scaled as it is drawn, with the boxes of the numbered elements.

Nothing in the page changes. The only script that runs asks where its elements are: a page that answers wrongly spoils
its own picture alone.
"""

from base64 import b64decode
from typing import Any

import msgspec

from hindcast.actors.environments.base import WindowImage
from hindcast.actors.environments.snapshot import BOXES_JS, LIMITS
from hindcast.actors.environments.window import Window
from hindcast.core.domain.observation import Box, Mark

MAX_IMAGE_BYTES = 4 * 2**20
"""A larger image is not kept. Width and quality have limits, so only a window of odd proportions can exceed it."""
MAX_MARKS = int(LIMITS["nodes"])
MAX_MARKS_CHARS = 200 * MAX_MARKS
FARTHEST = 100_000
"""Coordinates beyond it are rejected."""


class _View(msgspec.Struct, frozen=True, rename="camel"):
    """The visible part of the document, in CSS pixels: `Page.getLayoutMetrics`."""

    page_x: float
    page_y: float
    client_width: float
    client_height: float


async def take_picture(window: Window, *, width: int, quality: int) -> WindowImage:
    """Photograph the active tab, at most `width` pixels wide. The caller bounds the wait; raises Playwright's errors, IndexError."""
    tab = window.tab
    marks = marks_in(await tab.page.evaluate(BOXES_JS))
    devtools = await window.devtools(tab)
    metrics = await devtools.send("Page.getLayoutMetrics")
    view = msgspec.convert(metrics["cssVisualViewport"], _View)
    if view.client_width < 1 or view.client_height < 1:
        return WindowImage(missing="the window has no size")
    scale = min(1.0, width / view.client_width)
    clip = {"x": view.page_x, "y": view.page_y, "width": view.client_width, "height": view.client_height}
    taken = await devtools.send(
        "Page.captureScreenshot", {"format": "jpeg", "quality": quality, "clip": {**clip, "scale": scale}}
    )
    image = b64decode(taken["data"])
    if len(image) > MAX_IMAGE_BYTES:
        return WindowImage(missing=f"it has {len(image)} bytes, at most {MAX_IMAGE_BYTES} are kept")
    return WindowImage(
        image=image,
        width=round(scale * view.client_width),
        height=round(scale * view.client_height),
        scale=scale,
        marks=marks,
    )


def marks_in(found: object) -> tuple[Mark, ...]:
    """Parse the result of boxes.js; empty if the page returned anything else."""
    if not isinstance(found, str) or len(found) > MAX_MARKS_CHARS:
        return ()
    try:
        marks = msgspec.json.decode(found, type=tuple[Mark, ...])
    except (msgspec.DecodeError, UnicodeEncodeError):
        return ()
    return tuple(mark for mark in marks[:MAX_MARKS] if _is_likely(mark.box))


def box_in(found: Any) -> Box | None:
    """Parse the box of act.js; None if it is missing or implausible."""
    try:
        box = msgspec.convert(found, Box)
    except msgspec.ValidationError:
        return None
    return box if _is_likely(box) else None


def _is_likely(box: Box) -> bool:
    near = all(abs(number) <= FARTHEST for number in (box.x, box.y, box.width, box.height))
    return near and box.width > 0 and box.height > 0
