"""Numbered boxes over a screenshot: where they are drawn, with which numbers, and what is refused."""

from io import BytesIO

import pytest
from PIL import Image

from hindcast.core.domain.observation import Box, Mark
from hindcast.core.prompts.rendering import marks as rendering
from hindcast.core.prompts.rendering.marks import COLOURS, DIGIT_WIDTH, DOT, GLYPHS, PADDING, draw_marks

WHITE = (255, 255, 255)
PAPER = (240, 240, 240)


def picture(width: int, height: int) -> bytes:
    drawn = BytesIO()
    Image.new("RGB", (width, height), PAPER).save(drawn, "JPEG", quality=95)
    return drawn.getvalue()


def drawn(*marks: Mark, scale: float = 1.0, width: int = 200, height: int = 100) -> Image.Image:
    image = Image.open(BytesIO(draw_marks(picture(width, height), marks, scale=scale)))
    assert image.format == "PNG"
    assert image.size == (width, height)
    return image


def read_number(image: Image.Image, left: int, top: int, digits: int) -> str:
    """The digits on a plate, read dot by dot."""
    found = ""
    for place in range(digits):
        x = left + PADDING + DOT * place * (DIGIT_WIDTH + 1)
        dots = "".join(
            "1" if image.getpixel((x + DOT * column, top + PADDING + DOT * row)) == WHITE else "0"
            for row in range(5)
            for column in range(3)
        )
        found += next(digit for digit, glyph in GLYPHS.items() if glyph == dots)
    return found


def test_digits_are_told_apart() -> None:
    assert len(set(GLYPHS.values())) == len(GLYPHS) == 10
    assert all(len(glyph) == 15 for glyph in GLYPHS.values())


def test_a_box_is_drawn_where_its_element_is_with_its_number_above_it() -> None:
    image = drawn(Mark(17, Box(100, 80, 120, 60)), scale=0.5)  # 50, 40 to 109, 69
    colour = COLOURS[17 % len(COLOURS)]
    for corner in ((50, 69), (109, 69), (109, 40), (80, 40), (51, 68)):
        assert image.getpixel(corner) == colour, corner
    for outside in ((49, 55), (110, 55), (80, 70), (80, 50)):
        assert image.getpixel(outside) == PAPER, outside
    assert read_number(image, 50, 40 - 14, 2) == "17"


@pytest.mark.parametrize("number", [0, 1, 23, 456, 7890])
def test_numbers_are_those_of_the_elements(number: int) -> None:
    image = drawn(Mark(number, Box(20, 40, 100, 30)))
    assert read_number(image, 20, 26, len(str(number))) == str(number)


@pytest.mark.parametrize(
    "box", [Box(0, 0, 50, 20), Box(190, 95, 60, 60), Box(-30, -30, 40, 40), Box(500, 500, 9, 9)]
)
def test_numbers_stay_on_the_picture_whatever_the_box(box: Box) -> None:
    image = drawn(Mark(42, box))
    spots = [(x, y) for x in range(200) for y in range(100) if image.getpixel((x, y)) == WHITE]
    left, top = min(x for x, _ in spots) - PADDING, min(y for _, y in spots) - PADDING
    assert left >= 0
    assert top >= 0
    assert read_number(image, left, top, 2) == "42"


def test_boxes_smaller_than_a_line_are_drawn() -> None:
    image = drawn(Mark(1, Box(100, 60, 1, 1)), scale=0.3)
    assert image.getpixel((30, 18)) == COLOURS[1]


def test_the_same_picture_and_boxes_give_the_same_bytes_and_no_box_changes_nothing() -> None:
    image, marks = picture(60, 40), (Mark(3, Box(5, 20, 20, 10)),)
    assert draw_marks(image, marks, scale=1.0) == draw_marks(image, marks, scale=1.0)
    plain = Image.open(BytesIO(draw_marks(image, (), scale=1.0)))
    assert plain.getcolors() == [(60 * 40, PAPER)]


def test_what_is_no_picture_or_too_large_a_one_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="4 bytes are no picture"):
        draw_marks(b"none", (), scale=1.0)
    with pytest.raises(ValueError, match="no picture"):
        draw_marks(picture(200, 100)[:300], (), scale=1.0)
    monkeypatch.setattr(rendering, "MAX_PIXELS", 1999)
    with pytest.raises(ValueError, match="40 x 50 pixels"):
        draw_marks(picture(40, 50), (), scale=1.0)
