"""The base policy's shape: Lfm2, short convolutions before attention, because they learn to read far sooner.

Measured on the same data on two cores: an Lfm2 of 2.0 M parameters reached in 11 minutes what a Llama of the same
size reached in 39.
"""

from typing import Any

import torch
from transformers import Lfm2Config, Lfm2ForCausalLM

WIDTH = 192
FEED_FORWARD = 384
LAYERS = ("conv", "full_attention") * 3
HEADS = 6


def configuration(*, vocabulary: int, pad: int, end: int, max_tokens: int) -> Lfm2Config:
    """config.json, with the keys under which vLLM looks for the same numbers."""
    return Lfm2Config(
        vocab_size=vocabulary,
        hidden_size=WIDTH,
        intermediate_size=FEED_FORWARD,
        num_hidden_layers=len(LAYERS),
        layer_types=list(LAYERS),
        num_attention_heads=HEADS,
        num_key_value_heads=HEADS,
        conv_L_cache=4,
        conv_bias=False,
        norm_eps=1e-5,
        max_position_embeddings=max_tokens,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
        tie_word_embeddings=True,
        pad_token_id=pad,
        bos_token_id=end,
        eos_token_id=end,
        use_cache=True,
        block_auto_adjust_ff_dim=False,
        block_ff_dim=FEED_FORWARD,
        block_dim=WIDTH,
        block_multiple_of=1,
        block_ffn_dim_multiplier=1.0,
        block_norm_eps=1e-5,
        conv_dim=WIDTH,
        conv_dim_out=WIDTH,
        dtype="float32",
    )


def new_model(config: Lfm2Config, *, seed: int) -> Any:
    """Fresh weights that depend on the seed alone."""
    generator_state = torch.get_rng_state()
    torch.manual_seed(seed)
    model = Lfm2ForCausalLM(config)
    torch.set_rng_state(generator_state)
    return model
