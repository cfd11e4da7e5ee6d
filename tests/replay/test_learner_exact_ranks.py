"""Several processes that add in rank order, and one that emulates them: the same bits."""

from pathlib import Path
from typing import Any

import pytest

from fakes.tiny_policy import write_tiny_policy
from hindcast.core.settings.schema import LearnerSettings
from hindcast.learner.numerics import configure
from hindcast.learner.verify.verify import verify
from stories.ranks_story import leading, learn_with, share_blobs
from stories.training_story import bench, settings_with

pytestmark = pytest.mark.torch

FORMS: dict[str, dict[str, Any]] = {
    "whole": {"gradient_checkpointing": True, "kl_coefficient": 0.1},
    "packed bf16": {"precision": "bf16", "packed_sequences": True},
    "adapter": {"lora_rank": 4, "kl_coefficient": 0.1},
    "adapter packed bf16": {"lora_rank": 3, "precision": "bf16", "packed_sequences": True},
}


async def assert_verified(folder: Path, *, processes: int, llama: bool, forms: list[str]) -> None:
    """Train in so many processes, which are replaced in the middle of a batch; then compute all of it in this one."""
    configure(1)
    common = {"processes": processes, "exact_ranks": True, "tokens_per_forward": 64}
    policy = write_tiny_policy(folder / "policy", llama=llama)
    benches = []
    for form in forms:
        share_blobs(folder / form, folder / "blobs")
        settings = settings_with(**common, **FORMS[form])
        benches.append(await bench(folder / form, batches=2, settings=settings, policy=policy))
    ranks = LearnerSettings(processes=processes, exact_ranks=True)
    for until in (3, 4):
        with leading(benches[0], ranks) as make:
            for made in benches:
                report = await learn_with(make, made, until=until)
                assert report.updates == until
    for form, made in zip(forms, benches, strict=True):
        verified = await verify(made.log, made.blobs, policy=made.policy)
        assert verified.identical, (form, verified.first_divergence)
        assert verified.updates == 4


async def test_one_process_computes_what_three_did(tmp_path: Path) -> None:
    await assert_verified(tmp_path, processes=3, llama=True, forms=["whole", "adapter packed bf16"])


@pytest.mark.slow
@pytest.mark.parametrize("llama", [False, True], ids=["convolutions", "llama"])
@pytest.mark.parametrize("processes", [2, 3, 4])
async def test_one_process_computes_what_several_did(tmp_path: Path, processes: int, llama: bool) -> None:
    await assert_verified(tmp_path, processes=processes, llama=llama, forms=list(FORMS))
