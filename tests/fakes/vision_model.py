"""A tiny random vision-language model of the architecture of Qwen2.5-VL, in a folder as one that was fetched."""

import json
from pathlib import Path

import torch
from transformers import AutoModelForImageTextToText, Qwen2_5_VLConfig
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

from fakes.model_families import FAMILIES, SMALL, texts_of_pages, tokenizer_of

MARKS = ("<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>")
FAMILY = FAMILIES["qwen2"]._replace(special=(*FAMILIES["qwen2"].special, *MARKS))
LARGEST = 28 * 28 * 40
"""Pixels of an image as the tower sees it: 40 tokens at most."""


def write_vision_model(folder: Path, *, seed: int = 1) -> Path:
    """Configuration, tokenizer, image processor and weights, the latter under the names that published files have."""
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = tokenizer_of(FAMILY, texts_of_pages())
    tokenizer.save_pretrained(folder)
    start, end, image, video = (tokenizer.convert_tokens_to_ids(mark) for mark in MARKS)
    stops = [tokenizer.convert_tokens_to_ids(name) for name in FAMILY.stops]
    config = Qwen2_5_VLConfig(
        text_config={
            **SMALL,
            "vocab_size": -(-len(tokenizer) // 64) * 64 + 64,
            "rope_parameters": {"rope_type": "default", "rope_theta": 1e6, "mrope_section": [1, 1, 2]},
            "eos_token_id": stops[0],
            "bos_token_id": None,
        },
        vision_config={
            "depth": 2,
            "hidden_size": 32,
            "intermediate_size": 48,
            "num_heads": 2,
            "out_hidden_size": SMALL["hidden_size"],
            "fullatt_block_indexes": [1],
            "window_size": 56,
        },
        vision_start_token_id=start,
        vision_end_token_id=end,
        image_token_id=image,
        video_token_id=video,
        tie_word_embeddings=True,
    )
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = AutoModelForImageTextToText.from_config(config)
        with torch.no_grad():
            for value in model.parameters():
                if value.ndim > 1:
                    value.normal_(std=0.15)
    model.save_pretrained(folder)
    Qwen2VLImageProcessorPil(min_pixels=56 * 56, max_pixels=LARGEST).save_pretrained(folder)
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": stops}))
    return folder
