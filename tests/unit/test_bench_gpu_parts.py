"""The GPU's benchmark at a size for CPUs, and what it kept of the GPU that it was run on."""

import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from shutil import copy, copytree

import pytest
import torch

from bench import gpu_parts
from bench.gpu_parts import PARTS, SIZES, Part, measure, report
from tools.package_folder import lay_out

pytestmark = pytest.mark.torch

ROOT = Path(__file__).parents[2]
KEPT = Path(gpu_parts.__file__).parent / "gpu_h200"


def test_two_measurements_of_a_part_come_to_the_same_bits_and_another_precision_to_others() -> None:
    first, again = (measure(Part(attempt=attempt), SIZES["toy"], "cpu") for attempt in (0, 1))
    assert len(first["digests"]) == 2 * gpu_parts.BATCHES
    assert first["digests"] == again["digests"]
    assert first["digests"] != measure(Part(precision="bf16"), SIZES["toy"], "cpu")["digests"]
    assert first["tokens_per_s"] > 0
    assert first["peak_gib"] is None


def test_an_altered_log_probability_shows_from_its_batch_on() -> None:
    plain, control = (measure(part, SIZES["toy"], "cpu")["digests"] for part in (Part(), Part(altered=True)))
    alike = [one == other for one, other in zip(plain, control, strict=True)]
    assert alike == [True] * 4 + [False] * 2


def test_adapters_are_trained_to_the_same_bits_twice() -> None:
    first, again = (measure(Part(adapters=True, attempt=attempt), SIZES["toy"], "cpu") for attempt in (0, 1))
    assert first["digests"] == again["digests"]
    assert len(set(first["digests"])) == len(first["digests"])


@pytest.mark.process
@pytest.mark.slow
def test_two_ranks_on_one_device_have_the_bits_of_one_process_that_emulates_them(tmp_path: Path) -> None:
    """As processes of their own, over gloo; and the report says so."""
    for part in ("bf16-2-ranks-0", "bf16-2-ranks-emulated-0"):
        command = [sys.executable, "-m", "bench.gpu_parts", tmp_path, "--size", "toy", "--device", "cpu"]
        subprocess.run(
            [*command, "--part", part],
            env={**os.environ, "PYTHONPATH": str(ROOT / "tests"), "OMP_NUM_THREADS": "1"},
            timeout=600,
            check=True,
        )
    found = "".join(report(tmp_path, "toy"))
    assert "Two ranks on one device, and one process that emulates them: the same bits: yes." in found


def test_a_large_model_with_adapters_is_kept_in_bf16(tmp_path: Path) -> None:
    """At the size of a toy: the file of its weights has that format, and no digest is left out."""
    part = next(one for one in PARTS if one.seven)
    assert part.name == "bf16-checkpointed-7b-adapters-0"
    found = measure(part, replace(SIZES["toy"], dtype=torch.bfloat16), "cpu")
    assert all(found["digests"])


def test_the_report_says_whether_two_processes_agreed() -> None:
    lines = "".join(report(KEPT, "half")).splitlines()
    assert "| bf16 | 2,840 | 20.84 GiB | yes | yes |" in lines
    assert "| bf16-not-deterministic | 2,914 | 20.84 GiB | - | yes |" in lines
    assert "| float32 | 2,359 | 27.13 GiB | - | yes |" in lines


def test_the_report_names_what_failed_and_what_the_control_showed(tmp_path: Path) -> None:
    copytree(KEPT, tmp_path, dirs_exist_ok=True)
    kept = json.loads((KEPT / "bf16-0.json").read_text())
    kept["digests"][-2:] = ["0" * 64] * 2
    (tmp_path / "bf16-altered-0.json").write_text(json.dumps(kept))
    (tmp_path / "bf16-packed-0.error.txt").write_text("Traceback\nOutOfMemoryError: 12 GiB")
    found = "".join(report(tmp_path, "half"))
    assert "altered by .01: the same bits as the plain learner: up to update 4." in found
    assert "Failed: bf16-packed-0: OutOfMemoryError: 12 GiB" in found


@pytest.mark.slow
def test_parts_run_where_hindcast_is_not_installed(tmp_path: Path) -> None:
    """As on a machine with a GPU: its Python has the packages that the learner imports, and no Hindcast."""
    site, out = tmp_path / "site", tmp_path / "out"
    site.mkdir()
    for path in Path(torch.__file__).parents[1].iterdir():
        if "hindcast" not in path.name:
            (site / path.name).symlink_to(path)
    lay_out(tmp_path / "package")
    out.mkdir()
    for part in PARTS[2:]:  # what is there is not measured again
        copy(KEPT / "bf16-0.json", out / f"{part.name}.json")
    places = (tmp_path / "package", ROOT / "tests", site)
    ran = subprocess.run(
        [sys._base_executable, "-m", "bench.gpu_parts", out, "--size", "toy", "--device", "cpu"],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": ":".join(map(str, places)), "OMP_NUM_THREADS": "1"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert ran.stdout.count('"digests"') == 3
    found = (out / "report.md").read_text()
    assert "Failed" not in found
    assert re.search(r"^\| bf16 \| [\d,]+ \| - \| yes \| yes \|$", found, re.MULTILINE)
    assert "the same bits as the plain learner: up to update 4." in found


def test_make_runs_the_benchmark_with_the_folder_that_is_given() -> None:
    shown = subprocess.run(
        ["make", "--dry-run", "gpu-parts", "OUT=kept"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert "PYTHONPATH=build/package:tests python3 -m bench.gpu_parts kept" in shown.splitlines()
    assert "setup" not in shown
