"""Which policy a benchmark measures."""

from pathlib import Path

UNTIED = "untied"
"""A Llama of the shipped policy's size with random weights (`bench.untied`)."""


def measured_policy(name: str, scratch: Path) -> Path:
    """The folder of `base`, of `UNTIED`, which is written into `scratch`, or of the Hugging Face model whose path `name` is."""
    from bench.untied import write_untied  # loads torch
    from hindcast.core.models.folders import policy_folder

    return write_untied(scratch / UNTIED, seed=0) if name == UNTIED else policy_folder(name)
