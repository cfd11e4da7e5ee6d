"""Attention in float32 on a GPU for models whose queries share keys and values (grouped-query attention).

torch 2.13 shares them in its flash kernel only, which takes no float32, and else in a plain kernel that holds the square of the
sequence: 45 GB for a pass of 8 192 tokens of a model of 0.5 billion parameters (estimate). With keys and values repeated for
each query its memory-efficient kernel computes them.
"""

from typing import Any

import torch
from torch.nn import functional
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import repeat_kv
from transformers.masking_utils import sdpa_mask

from hindcast.core.settings.computing import Attention, Precision

REPEATED = "sdpa_repeated"
"""Name of this attention in transformers."""


def attention_for(attention: Attention, device: torch.device, precision: Precision, *, version: int) -> str:
    """Choose the attention of a model, by its name in transformers. `version`: `learner.arithmetic`."""
    repeats = attention == "sdpa" and device.type == "cuda" and precision == "float32" and version > 1
    return REPEATED if repeats else attention


def _repeated_attention(
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    **_ignored: Any,
) -> tuple[torch.Tensor, None]:
    """Compute attention as transformers asks for it  # [rows, heads, length, width] -> [rows, length, heads, width]."""
    groups = getattr(module, "num_key_value_groups", 1)
    output = functional.scaled_dot_product_attention(
        query,
        repeat_kv(key, groups),
        repeat_kv(value, groups),
        attn_mask=attention_mask,
        dropout_p=dropout,
        scale=scaling,
        is_causal=attention_mask is None and query.shape[2] > 1 and getattr(module, "is_causal", True),
    )
    return output.transpose(1, 2).contiguous(), None


AttentionInterface.register(REPEATED, _repeated_attention)
AttentionMaskInterface.register(REPEATED, sdpa_mask)
