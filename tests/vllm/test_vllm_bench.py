"""`hindcast bench engine --against vllm` starts a real server, and finds that both engines compute the same policy."""

from pathlib import Path

import pytest

from processes.system import Home

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(3600)]


def test_rates_of_both_and_how_exact_they_are(tmp_path: Path) -> None:
    home = Home(tmp_path)
    told = home.json(
        *("bench", "engine", "--against", "vllm", "--repeats", "2"),
        *("--episodes", "8", "--contexts", "4", "--steps", "2"),
        timeout_s=3000,
    )
    assert {one["unit"] for one in told["comparisons"]} == {"tokens/s", "tokens/CPU s"}
    assert all(one["ratio"] > 0 for one in told["comparisons"])
    assert {one["engine"] for one in told["mismatch"]} == {"in process", "vLLM"}
    assert all(one["tokens"] > 100 and one["mismatch_kl"] < 1e-6 for one in told["mismatch"])


def test_a_policy_that_the_build_for_cpus_would_compute_otherwise_is_refused(tmp_path: Path) -> None:
    refused = Home(tmp_path).run("bench", "engine", "--against", "vllm", "--policy", "base")
    assert refused.returncode != 0
    assert "lfm2" in refused.stderr
