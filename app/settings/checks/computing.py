"""Settings of how the learner computes that are each allowed but do not go together, in words."""

from hindcast.core.settings.computing import ComputingSettings


def computing_conflicts(learner: ComputingSettings) -> list[str]:
    """What is wrong with device, precision, attention and processes together."""
    found = []
    if learner.attention == "flash_attention_2" and (learner.precision, learner.device) != ("bf16", "cuda"):
        found.append(
            f"learner.attention = 'flash_attention_2' needs learner.precision = 'bf16' and learner.device = 'cuda', not "
            f"{learner.precision!r} and {learner.device!r}"
        )
    if learner.processes > 1 and learner.offload_optimizer:
        found.append(
            f"learner.offload_optimizer keeps one process's memory small, and with learner.processes = {learner.processes} each "
            "has its part of AdamW's state alone: leave it off"
        )
    return found
