"""Where and how the learner computes: settings that change the cost of an update, and some of them its last bits.

They hold for a whole run. What each does to bits and memory: docs/learner.md.
"""

from typing import Annotated, Literal

from pydantic import Field

from hindcast.core.settings.section import Count, Section

Device = Literal["auto", "cpu", "cuda"]
Precision = Literal["float32", "bf16"]


class ComputingSettings(Section):
    """What the learner computes with."""

    device: Device = "cpu"
    """Where the learner computes: `cpu`, `cuda`, or `auto`: a GPU where there is one."""
    precision: Precision = "float32"
    """Of products of matrices. With `bf16` weights, gradients, optimiser and log-probabilities stay float32."""
    gradient_checkpointing: bool = False
    """Whether activations inside a layer are computed again when its gradient is, instead of being kept."""
    offload_optimizer: bool = False
    """Whether AdamW's state lies in the computer's memory between steps, where the learner computes on a GPU."""
    lora_rank: Annotated[int, Field(ge=0, le=65_536)] = 0
    """Rank of a low-rank adapter (LoRA) that is trained in the weights' place, which stay frozen; 0: the weights are."""
    lora_alpha: Count = 16
    """What the adapter counts, times its rank."""
    lora_targets: tuple[str, ...] = ("all-linear",)
    """Layers that it adapts, by name as `q_proj`; `all-linear`: every linear one but the head."""
    packed_sequences: bool = False
    """Whether the samples of a pass stand in one row without padding, each seeing itself alone, where the model keeps them
    apart; of one that does not, such as one with convolutions, they are padded as ever."""
    attention: Literal["sdpa", "flash_attention_2"] = "sdpa"
    """torch's own attention, or that of the package flash-attn, which reads packed sequences without a mask; the latter needs
    a GPU and `bf16`."""
    mismatch_alarm: Annotated[float, Field(ge=0)] = 0.0
    """KL per token between what the sampler and the learner say under equal weights (`mismatch_kl`) from which on an alarm is
    recorded; 0: never."""
    processes: Annotated[int, Field(ge=1, le=65_536)] = 1
    """Processes that compute each update together, each on a GPU of its own where there are GPUs."""
