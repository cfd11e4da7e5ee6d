"""Pictures for models of the Qwen2.5-VL family: patches for the vision tower, and placeholder tokens in the prompt.

In a prompt a picture is `<|vision_start|>`, one `<|image_pad|>` for each vector of the tower, and `<|vision_end|>`. Text
never becomes such a token, because they are special tokens (`core.prompts.chat_frame.encode_text`). transformers' processor
over Pillow cuts images into patches, with the same arithmetic everywhere. Each processed image has a digest, by which a
later processing is compared.
"""

import re
from collections.abc import Mapping, Sequence
from hashlib import sha256
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple

import torch
from PIL import Image, UnidentifiedImageError
from transformers import AutoConfig

from hindcast.core.errors import ModelFileError, PictureUnreadable
from hindcast.core.models.folders import require_folder

KINDS = ("qwen2_5_vl",)
"""`model_type` of the supported models."""
TOWER = "visual"
"""Name of the vision tower, the part of the model that encodes pictures; it is never trained."""
PROCESSOR = "preprocessor_config.json"


class ProcessedImage(NamedTuple):
    """A picture processed for a model."""

    patches: torch.Tensor
    """Pixel values  # [patches, values] float32."""
    grid: tuple[int, int, int]
    """Number of patches in time (1), height and width."""
    ids: list[int]
    """Placeholder tokens in the prompt."""
    digest: str
    """sha256 of grid and patches, hexadecimal."""


class ImageProcessor:
    """The image processor of a model folder."""

    def __init__(self, folder: Path) -> None:
        """Load it. Raises ModelFileError if the model reads no pictures or has no valid processor configuration."""
        require_folder(folder)
        config = AutoConfig.from_pretrained(folder, trust_remote_code=False, local_files_only=True)
        if config.model_type not in KINDS:
            raise ModelFileError(
                f"the model in {folder} ({config.model_type}) reads no pictures. Those that do and are known here: "
                f"{', '.join(KINDS)}. Use one of them, or set actors.screenshot_observation = 'off'."
            )
        # only vision models need this import
        from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

        try:
            self._processor = Qwen2VLImageProcessorPil.from_pretrained(folder, local_files_only=True)
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise ModelFileError(f"{folder / PROCESSOR} cannot be read: {error}. Fetch it again.") from error
        self._start = int(config.vision_start_token_id)
        self._pad = int(config.image_token_id)
        self._end = int(config.vision_end_token_id)

    @property
    def marks(self) -> tuple[int, int, int]:
        """Tokens before a picture, for each of its vectors, and after it."""
        return self._start, self._pad, self._end

    def look(self, image: bytes) -> ProcessedImage:
        """Process the bytes of an image file. Raises PictureUnreadable."""
        try:
            with Image.open(BytesIO(image)) as picture:
                inputs = self._processor(images=[picture.convert("RGB")], return_tensors="pt")
        except (UnidentifiedImageError, OSError, ValueError, Image.DecompressionBombError) as error:
            raise PictureUnreadable(f"an image of {len(image)} bytes cannot be read: {error}") from error
        patches = inputs["pixel_values"].to(torch.float32).contiguous()
        time, height, width = (int(number) for number in inputs["image_grid_thw"][0])
        vectors = time * height * width // self._processor.merge_size**2
        state = sha256(f"{time} {height} {width}\n".encode())
        state.update(patches.numpy().tobytes())
        ids = [self._start, *[self._pad] * vectors, self._end]
        return ProcessedImage(patches, (time, height, width), ids, state.hexdigest())


def reads_pictures(model: Any) -> bool:
    """Whether a model is a supported vision-language model."""
    return getattr(model.config, "model_type", "") in KINDS


def freeze_tower(model: Any) -> None:
    """Freeze the vision tower, so that only the language model is trained. Other models stay unchanged."""
    if not reads_pictures(model):
        return
    for name, value in model.named_parameters():
        if is_of_tower(name):
            value.requires_grad_(False)


def is_of_tower(name: str) -> bool:
    """Whether a weight of this name belongs to the vision tower."""
    return f".{TOWER}." in f".{name}"


def picture_inputs(
    model: Any,
    ids: torch.Tensor,
    pictures: Sequence[ProcessedImage],
    lengths: Sequence[int],
    *,
    prompts: Sequence[int] | None = None,
) -> Mapping[str, torch.Tensor | None]:
    """Compute the embeddings and positions of prompts with pictures, which replace their tokens in a forward pass.

    A policy may sample a placeholder token in its answer: there it is text. The model's own forward pass would look for
    another picture, so it gets embeddings instead of tokens.

    Args:
        model: a supported vision-language model.
        ids: token ids  # [rows, length], padded on the right.
        pictures: pictures of all rows, in their order in the prompts.
        lengths: lengths of the rows without padding.
        prompts: lengths of the prompts in the rows; None: the whole row is prompt.

    Returns:
        Keyword arguments of the forward pass. Positions are three-dimensional (M-RoPE, Qwen2-VL, arXiv 2409.12191,
        section 2.1): text counts on, and the vectors of a picture have their place in it.
    """
    device = ids.device
    grids = torch.tensor([picture.grid for picture in pictures], device=device)
    columns = torch.arange(ids.shape[1])
    in_prompt = columns < torch.tensor(lengths if prompts is None else prompts)[:, None]
    is_placeholder = (ids == model.config.image_token_id) & in_prompt.to(device)
    positions, _ = model.base_model.get_rope_index(
        ids,
        mm_token_type_ids=is_placeholder.int(),
        image_grid_thw=grids,
        attention_mask=(columns < torch.tensor(lengths)[:, None]).to(device),
    )
    patches = torch.cat([picture.patches for picture in pictures]).to(device)
    embeddings = model.get_input_embeddings()(ids)
    vectors = torch.cat(model.base_model.get_image_features(patches, grids, return_dict=True).pooler_output)
    assert int(is_placeholder.sum()) == len(vectors), (
        "prompts and the pictures in them do not belong together"
    )
    embeddings = embeddings.masked_scatter(
        is_placeholder[..., None], vectors.to(embeddings.device, embeddings.dtype)
    )
    return {"input_ids": None, "inputs_embeds": embeddings, "position_ids": positions}


def name_in_model(name: str, kind: str) -> str:
    """Translate a tensor's name in a published file to its name in the model: files of this family use an earlier layout."""
    if kind not in KINDS:
        return name
    renamed = re.sub(rf"^{TOWER}\.", f"model.{TOWER}.", name)
    return re.sub(rf"^model\.(?!language_model\.|{TOWER}\.)", "model.language_model.", renamed)
