"""A sample page, answer and screenshot of common size: how many tokens they take, and whether a model can read them."""

from io import BytesIO
from pathlib import Path

import numpy as np
from PIL import Image

from hindcast.core.domain.observation import Element, Node, Page
from hindcast.core.errors import ModelFileError
from hindcast.core.models.vision import ImageProcessor, ProcessedImage
from hindcast.core.settings.schema import Settings

EXAMPLE = '# Element: Copper kettle, 2 litres [37]\ndo(action="Click", element="37")'

_ROW = (
    ("text", "p", "In stock, delivered within two to four working days"),
    ("link", "a", "Copper kettle with wooden handle, 2 litres"),
    ("button", "button", "Add to cart"),
    ("input", "input", "Quantity"),
    ("text", "span", "$ 48.90"),
)


def _outline(rows: int) -> tuple[Element, ...]:
    """Return the page's elements with their boxes, each row in a list item."""
    width, height = 246, 20
    elements = [
        Element(tag="html", attributes={"data-bbox": "0,0,1280,720"}),
        Element(tag="ul", depth=1, attributes={"data-bbox": f"8,8,{width * len(_ROW)},{height * rows}"}),
    ]
    for row in range(rows):
        box = f"8,{8 + height * row},{width * len(_ROW)},{height}"
        elements.append(Element(tag="li", depth=2, attributes={"data-bbox": box}))
        for column, (kind, tag, text) in enumerate(_ROW):
            box = f"{8 + width * column},{8 + height * row},{width},{height}"
            elements.append(
                Element(
                    tag=tag,
                    depth=3,
                    id=None if kind == "text" else 5 * row + column,
                    text=text,
                    attributes={"data-text": text, "data-bbox": box},
                )
            )
    return tuple(elements)


PAGE = Page(
    url="http://shop.example/list",
    title="Kettles and pots, sorted by price",
    nodes=tuple(
        Node(kind=kind, tag=tag, text=text, id=None if kind == "text" else 5 * row + place)
        for row in range(20)
        for place, (kind, tag, text) in enumerate(_ROW)
    ),
    outline=_outline(20),
)
"""100 elements, 60 of which can be acted upon."""


ASPECT = 0.8
"""Approximate ratio of a window's height to its width."""


def sample_pictures(folder: Path, settings: Settings) -> tuple[ProcessedImage, ...]:
    """Process a picture of a screenshot's size with the folder's model; none if the settings show the policy none.

    Raises ModelFileError if the model reads no pictures.
    """
    if settings.actors.screenshot_observation == "off":
        return ()
    width = settings.actors.screenshot_width
    xs, ys = np.arange(width) % 251, np.arange(round(ASPECT * width)) % 241
    pixels = np.stack(np.broadcast_arrays(xs[None], ys[:, None], xs[None] ^ ys[:, None]), axis=-1)
    file = BytesIO()
    Image.fromarray(pixels.astype(np.uint8)).save(file, "JPEG", quality=settings.actors.screenshot_quality)
    return (ImageProcessor(folder).look(file.getvalue()),)


def check_pictures(folder: Path, tokenizer: object, settings: Settings) -> str:
    """Describe how many tokens a screenshot takes.

    Raises ModelFileError if the model, its tokenizer or the prompt length cannot take one.
    """
    (picture,) = sample_pictures(folder, settings)
    added_tokens = getattr(tokenizer, "added_tokens_decoder", {})
    marks = ImageProcessor(folder).marks
    if plain := [mark for mark in marks if mark not in added_tokens or not added_tokens[mark].special]:
        raise ModelFileError(
            f"its configuration marks pictures by the tokens {list(marks)}, of which its tokenizer does not know {plain} as special "
            "ones: text of a page could stand for a picture. Fetch tokenizer and configuration of the same model."
        )
    tokens, allowed = len(picture.ids), settings.actors.max_prompt_tokens
    if 2 * tokens > allowed:
        raise ModelFileError(
            f"a screenshot of {settings.actors.screenshot_width} pixels' width takes {tokens} tokens, more than half of "
            f"actors.max_prompt_tokens = {allowed}. Raise that, or lower actors.screenshot_width."
        )
    return (
        f"a screenshot of {settings.actors.screenshot_width} pixels' width takes {tokens} of {allowed} tokens"
    )
