"""Settings of the learner's device, precision and memory, fixed for a whole run.

They change the cost of an update, and some change the last bits of its result: see docs/learner.md.
"""

from typing import Annotated, Literal

from pydantic import Field

from hindcast.core.settings.section import Count, Formerly, Section

Device = Literal["auto", "cpu", "cuda"]
Precision = Literal["float32", "bf16"]
WantedPrecision = Literal["auto", "float32", "bf16"]

Attention = Literal["sdpa", "flash_attention_2"]


class ComputingSettings(Section):
    """The learner's device, precision and memory."""

    device: Annotated[Device, Formerly(value="cpu")] = "auto"
    """Device of the learner: `cpu`, `cuda`, or `auto`: a GPU if there is one. The log says which it was."""
    precision: Annotated[WantedPrecision, Formerly(value="float32")] = "auto"
    """Precision of matrix products: `float32`, `bf16`, or `auto`: `bf16` on a GPU that computes in it, else `float32`. With
    `bf16`, trained weights, gradients, optimizer and log-probabilities stay float32."""
    gradient_checkpointing: bool = False
    """Whether activations inside a layer are recomputed for its gradient instead of kept."""
    offload_optimizer: bool = False
    """Whether AdamW's state is kept in main memory between steps, if the learner uses a GPU."""
    lora_rank: Annotated[int, Field(ge=0, le=65_536)] = 0
    """Rank of a low-rank adapter (LoRA) that is trained while the weights stay frozen; 0: the weights are trained."""
    lora_alpha: Count = 16
    """LoRA's alpha: the adapter's output is scaled by `lora_alpha / lora_rank`."""
    lora_targets: tuple[str, ...] = ("all-linear",)
    """Layers to adapt, by name as `q_proj`; `all-linear`: all linear layers except the head."""
    packed_sequences: bool = False
    """Whether the samples of a forward pass share one row without padding, each attending only to itself. Models that cannot
    keep them apart, such as ones with convolutions, use padding."""
    shared_prefixes: Annotated[bool, Formerly(value=False)] = True
    """Whether samples that begin alike, as those of a group do, compute their common tokens once; needs `attention = "sdpa"`.
    Models that it does not suit, such as ones with a sliding window, compute each sample alone; so do samples with pictures.
    Where samples share, `packed_sequences` has no effect."""
    float32_head: bool = False
    """Whether logits are computed in float32 from the hidden states of `bf16`: closer to a server that does the same. vLLM
    servers that Hindcast starts then do, too; external ones need the argument in docs/vllm.md."""
    arithmetic: Annotated[Literal[1, 2], Formerly(value=1)] = 2
    """Version of how updates are computed and digested, for runs that were recorded with an earlier one. From 2 on: digests of
    tensors are computed in threads; a sample longer than a pass needs no mask of trees; on a GPU one kernel takes AdamW's step,
    and attention in float32 repeats shared keys."""
    digest_every: Annotated[int, Field(ge=0, le=1_000_000), Formerly(value=1)] = 0
    """Updates between two that record a digest of weights and optimizer state; the others record their inputs and numbers alone.
    0: by the model's size, 1 for each 400 MB of base weights; with an adapter 1."""
    attention: Attention = "sdpa"
    """Attention kernel: `sdpa`: torch's own; `flash_attention_2`: that of the package flash-attn, which reads packed
    sequences without a mask and needs a GPU and `bf16`."""
    mismatch_alarm: Annotated[float, Field(ge=0), Formerly(value=0.0)] = 0.01
    """Threshold of `mismatch_kl`, the KL per token between sampler and learner with equal weights: above it an alarm is
    recorded; 0: never."""
    processes: Annotated[int, Field(ge=1, le=65_536)] = 1
    """Data-parallel processes that compute each update; each uses its own GPU if there are GPUs."""
    exact_ranks: Annotated[bool, Formerly(value=False)] = True
    """Whether several processes add their gradients in the order of their ranks, so that `hindcast verify` reproduces their
    updates bit for bit in one process."""
