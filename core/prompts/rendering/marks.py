"""Set-of-mark screenshots (arXiv 2310.11441): numbered boxes over the elements that can be acted upon.

The numbers are those of the page's elements, so that an answer about mark 7 is an action on element 7. Marks are drawn from
stored picture and boxes only, without fonts: equal inputs give equal pixels if the picture decodes alike. A change of the
drawing needs a new version.
"""

from collections.abc import Sequence
from io import BytesIO

from PIL import Image, ImageDraw

from hindcast.core.domain.observation import Box, Mark

MAX_PIXELS = 1920 * 8192
"""Most pixels of a picture that is decoded."""

COLOURS = ((200, 30, 30), (20, 90, 200), (0, 120, 60), (150, 60, 170), (170, 90, 0), (0, 110, 130))
"""Colors of boxes, cycled by number, dark enough for white digits."""
LINE = 2
DIGIT_WIDTH, DIGIT_HEIGHT = 3, 5
"""Size of a glyph in dots."""
DOT = 2
"""Width of a dot in pixels."""
PADDING = 2
GLYPHS = {
    "0": "111101101101111",
    "1": "010110010010111",
    "2": "111001111100111",
    "3": "111001111001111",
    "4": "101101111001001",
    "5": "111100111001111",
    "6": "111100111101111",
    "7": "111001010010010",
    "8": "111101111101111",
    "9": "111101111001111",
}
"""Digits, row by row."""


def draw_marks(image: bytes, marks: Sequence[Mark], *, scale: float) -> bytes:
    """Draw a numbered box for each mark and return a PNG; `scale` is picture pixels per CSS pixel.

    Raises ValueError if the image is not a JPEG, or too large.
    """
    try:
        with Image.open(BytesIO(image), formats=["JPEG"]) as picture:
            if picture.width * picture.height > MAX_PIXELS:
                raise ValueError(
                    f"the picture has {picture.width} x {picture.height} pixels, more than are read"
                )
            canvas = picture.convert("RGB")
    except OSError as error:
        raise ValueError(f"the {len(image)} bytes are no picture that can be read: {error}") from error
    drawing = ImageDraw.Draw(canvas)
    for mark in marks:
        _outline(drawing, _scaled(mark.box, scale), COLOURS[mark.element % len(COLOURS)])
    for mark in marks:  # numbers over every box
        _number(drawing, mark.element, _scaled(mark.box, scale), canvas.size)
    png = BytesIO()
    canvas.save(png, "PNG")
    return png.getvalue()


def _scaled(box: Box, scale: float) -> tuple[int, int, int, int]:
    """Left, top, right and bottom in picture pixels, the last two inclusive; never empty."""
    left, top = round(box.x * scale), round(box.y * scale)
    right, bottom = round((box.x + box.width) * scale) - 1, round((box.y + box.height) * scale) - 1
    return left, top, max(left, right), max(top, bottom)


def _outline(
    drawing: ImageDraw.ImageDraw, edges: tuple[int, int, int, int], colour: tuple[int, int, int]
) -> None:
    left, top, right, bottom = edges
    line = min(LINE, right - left + 1, bottom - top + 1)
    drawing.rectangle((left, top, right, bottom), outline=colour, width=line)


def _number(
    drawing: ImageDraw.ImageDraw, number: int, edges: tuple[int, int, int, int], size: tuple[int, int]
) -> None:
    """Draw the number at the box's upper left corner: above it if there is room, else inside."""
    digits = str(number)
    width = 2 * PADDING + DOT * (len(digits) * (DIGIT_WIDTH + 1) - 1)
    height = 2 * PADDING + DOT * DIGIT_HEIGHT
    left = max(0, min(edges[0], size[0] - width))
    top = edges[1] - height if edges[1] >= height else edges[1]
    top = max(0, min(top, size[1] - height))
    drawing.rectangle((left, top, left + width - 1, top + height - 1), fill=COLOURS[number % len(COLOURS)])
    for index, digit in enumerate(digits):
        for dot, filled in enumerate(GLYPHS[digit]):
            if filled == "1":
                x = left + PADDING + DOT * (index * (DIGIT_WIDTH + 1) + dot % DIGIT_WIDTH)
                y = top + PADDING + DOT * (dot // DIGIT_WIDTH)
                drawing.rectangle((x, y, x + DOT - 1, y + DOT - 1), fill=(255, 255, 255))
