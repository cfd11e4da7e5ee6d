"""Check that a model can read screenshots, and how many prompt tokens one takes."""

from io import BytesIO
from pathlib import Path

import numpy as np
from PIL import Image

from hindcast.core.errors import ModelFileError
from hindcast.core.models.vision import ImageProcessor, ProcessedImage
from hindcast.core.settings.schema import Settings

ASPECT = 0.8
"""Approximate ratio of a window's height to its width."""


def sample_pictures(folder: Path, settings: Settings) -> tuple[ProcessedImage, ...]:
    """Process a picture of a screenshot's size with the folder's model; none if the settings show the policy none.

    Raises ModelFileError if the model reads no pictures.
    """
    if settings.actors.screenshot_observation == "off":
        return ()
    width = settings.actors.screenshot_width
    across, down = np.arange(width) % 251, np.arange(round(ASPECT * width)) % 241
    pixels = np.stack(np.broadcast_arrays(across[None], down[:, None], across[None] ^ down[:, None]), axis=-1)
    file = BytesIO()
    Image.fromarray(pixels.astype(np.uint8)).save(file, "JPEG", quality=settings.actors.screenshot_quality)
    return (ImageProcessor(folder).look(file.getvalue()),)


def check_pictures(folder: Path, tokenizer: object, settings: Settings) -> str:
    """Describe how many tokens a screenshot takes.

    Raises ModelFileError if the model, its tokenizer or the prompt length cannot take one.
    """
    (picture,) = sample_pictures(folder, settings)
    known = getattr(tokenizer, "added_tokens_decoder", {})
    marks = ImageProcessor(folder).marks
    if plain := [mark for mark in marks if mark not in known or not known[mark].special]:
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
