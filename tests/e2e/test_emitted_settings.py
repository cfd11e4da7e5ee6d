"""A settings file of `hindcast size --emit`, for one GPU: a run starts from it here, trains, and verifies bit for bit.

Overridden is what a machine without a GPU cannot have, and what makes the run short; precision, packing, gradient
checkpointing, context lengths and time limits are those of the file.
"""

from pathlib import Path

import pytest

from processes.system import SMALL_GROUPS, Home

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800), pytest.mark.broker, pytest.mark.browser]

WITHOUT_GPU = {
    "policy.base": "base",
    "policy.engine": "in_process",
    "learner.device": "cpu",
    "vllm.gpus": "[]",
}


def test_a_run_from_the_emitted_file_trains_and_verifies(tmp_path: Path) -> None:
    home, file = Home(tmp_path / "home"), tmp_path / "settings.toml"
    size = ("--model", "0.5B", "--gpu", "rtx4090", "--gpus", "1", "--contexts", "4")
    home.json("size", *size, "--emit", "settings.toml", "--to", str(file))
    # short answers of the shipped policy, so that the log of few episodes is enough for a batch
    short = {**SMALL_GROUPS, "curriculum.max_running": "8"}
    changed = WITHOUT_GPU | {key: short[key] for key in short if not key.endswith("_s")}
    chosen = [part for key, value in changed.items() for part in ("--set", f"{key}={value}")]
    done = home.json(
        "start", "emitted", "--config", str(file), *chosen, "--until", "updates=1", timeout_s=1200
    )
    assert done["updates"] >= 1
    report = home.json("verify", "emitted", timeout_s=600)
    assert report["identical"], report["first_divergence"]
    shown = home.json("config", "show", "emitted")["settings"]["learner"]
    assert (shown["precision"], shown["packed_sequences"], shown["gradient_checkpointing"]) == (
        "bf16",
        True,
        True,
    )
