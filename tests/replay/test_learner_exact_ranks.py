"""Several processes that add in rank order, and one that emulates them: the same bits."""

from pathlib import Path
from typing import Any

import pytest

from fakes.tiny_policy import write_tiny_policy
from hindcast.core.settings.schema import LearnerSettings
from hindcast.learner.distributed.rendezvous import UnlikeRanks
from hindcast.learner.numerics import configure
from hindcast.learner.verify.verify import InexactRanks, verify
from stories.forging import put
from stories.ranks_story import leading, learn_with, share_blobs
from stories.training_story import bench, learn, settings_with

pytestmark = pytest.mark.torch

FORMS: dict[str, dict[str, Any]] = {
    "whole": {"gradient_checkpointing": True, "kl_coefficient": 0.1, "digest_every": 3},
    "packed bf16": {"precision": "bf16", "packed_sequences": True, "shared_prefixes": False},
    "adapter": {"lora_rank": 4, "kl_coefficient": 0.1},
    "adapter packed bf16": {
        "lora_rank": 3,
        "precision": "bf16",
        "packed_sequences": True,
        "shared_prefixes": False,
    },
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
        assert verified.verified_on == verified.recorded_on


@pytest.mark.slow
async def test_one_process_computes_what_three_did(tmp_path: Path) -> None:
    await assert_verified(tmp_path, processes=3, llama=True, forms=["whole", "adapter packed bf16"])


async def test_a_process_that_computes_differently_is_refused_by_name(tmp_path: Path) -> None:
    made = await bench(tmp_path, batches=0)
    ranks = LearnerSettings(processes=2, exact_ranks=True)
    other = {"ATEN_CPU_CAPABILITY": "default"}
    refused = "process 1 has cpu_capability DEFAULT, its leader AVX"
    with pytest.raises(UnlikeRanks, match=refused), leading(made, ranks, followers_environment=other):
        pass


async def test_what_cannot_be_exact_is_said_before_it_is_computed(tmp_path: Path) -> None:
    """As of runs recorded before there was `learner.exact_ranks`; their events are checked all the same."""
    made = await bench(tmp_path, batches=2, settings=settings_with(processes=2))
    await learn(made, until=2)

    def make_trainer(*_: Any, **__: Any) -> Any:
        raise AssertionError("it has computed")

    with pytest.raises(
        InexactRanks, match=r"2 processes added.*exact_ranks = false.*r_test --tolerance 1e-4"
    ):
        await verify(made.log, made.blobs, policy=made.policy, make_trainer=make_trainer)
    assert (await verify(made.log, made.blobs, policy=made.policy, tolerance=1e-4)).within_tolerance
    content = bytearray(made.log.events[4].data)
    content[len(content) // 2] ^= 1
    put(made.log, 5, bytes(content))
    damaged = await verify(made.log, made.blobs, policy=made.policy, make_trainer=make_trainer)
    assert damaged.first_divergence is not None
    assert (damaged.updates, damaged.stretches) == (0, ())
    assert "no number of run r_test was recomputed" in damaged.notices[0]


@pytest.mark.slow
@pytest.mark.parametrize("llama", [False, True], ids=["convolutions", "llama"])
@pytest.mark.parametrize("processes", [2, 3, 4])
async def test_one_process_computes_what_several_did(tmp_path: Path, processes: int, llama: bool) -> None:
    await assert_verified(tmp_path, processes=processes, llama=llama, forms=list(FORMS))
