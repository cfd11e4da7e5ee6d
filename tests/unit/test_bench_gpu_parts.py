"""The GPU's benchmark at a size for CPUs, and what it kept of the GPU that it was run on."""

import subprocess
from pathlib import Path

import pytest

from bench import gpu_parts
from bench.gpu_parts import SIZES, Part, measure, report

pytestmark = pytest.mark.torch

KEPT = Path(gpu_parts.__file__).parent / "gpu_h200"


def test_two_measurements_of_a_part_come_to_the_same_bits_and_another_precision_to_others() -> None:
    first, again = (measure(Part(attempt=attempt), SIZES["toy"], "cpu") for attempt in (0, 1))
    assert len(first["digests"]) == 2 * gpu_parts.BATCHES
    assert first["digests"] == again["digests"]
    assert first["digests"] != measure(Part(precision="bf16"), SIZES["toy"], "cpu")["digests"]
    assert first["tokens_per_s"] > 0
    assert first["peak_gib"] is None


def test_the_report_says_whether_two_processes_agreed() -> None:
    lines = "".join(report(KEPT, "half")).splitlines()
    assert "| bf16 | 2,840 | 20.84 GiB | yes |" in lines
    assert "| float32 | 2,359 | 27.13 GiB | - |" in lines


def test_make_runs_the_benchmark_with_the_folder_that_is_given() -> None:
    shown = subprocess.run(
        ["make", "--dry-run", "gpu-parts", "OUT=kept"],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert "PYTHONPATH=tests .venv/bin/python -m bench.gpu_parts kept" in shown.splitlines()
