"""Memory over time: which slopes are growth, and that a real process is measured with its children."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from bench.memory import BLOCKS, Sample, bars, fit, growths, judge, take_sample, to_csv
from hindcast.app.system.processes import report


def samples_of(sizes: list[float], *, every_s: float = 60.0, pids: list[int] | None = None) -> list[Sample]:
    return [
        Sample(at_s=every_s * n, sizes_mib={"learner.1": size}, pids={"learner.1": pids[n] if pids else 7})
        for n, size in enumerate(sizes)
    ]


def test_a_straight_line_gives_its_slope_and_no_doubt() -> None:
    slope, margin = fit([(3600.0 * n, 100.0 + 7.0 * n) for n in range(BLOCKS)])
    assert slope == pytest.approx(7.0)
    assert margin == pytest.approx(0.0, abs=1e-9)


def test_steady_growth_is_called_growing_and_the_warm_up_is_left_out() -> None:
    climb = [500.0] * 12 + [100.0 + n for n in range(48)]
    (found,) = growths(samples_of(climb), warm_up_s=12 * 60.0)
    assert found.slope == pytest.approx(60.0)
    assert found.low == pytest.approx(found.high)
    assert found.verdict == "growing"
    assert (found.peak_mib, found.restarts) == (147.0, 0)


def test_a_size_that_swings_without_a_trend_is_flat_or_unclear_but_never_growing() -> None:
    saw = [100.0 + (n % 7) for n in range(120)]
    (found,) = growths(samples_of(saw), warm_up_s=0)
    assert found.low < 0 < found.high
    assert found.verdict == "flat"
    assert judge(-50.0, 60.0, mean_mib=100.0) == "unclear"


def test_a_process_that_was_replaced_is_told() -> None:
    pids = [1] * 10 + [2] * 14
    (found,) = growths(samples_of([10.0] * 24, pids=pids), warm_up_s=0)
    assert found.restarts == 1


def test_too_few_samples_are_refused() -> None:
    with pytest.raises(ValueError, match="too few"):
        growths(samples_of([1.0] * 20), warm_up_s=15 * 60.0)


def test_bars_show_the_shape_and_ignore_what_is_below_a_mebibyte() -> None:
    assert bars([1.0, 5.0, 9.0]) == "▁▅█"
    assert bars([1.0, 1.2, 1.0]) == "▁▂▁"


def test_a_process_counts_with_its_children(tmp_path: Path) -> None:
    child = "import sys, time; block = bytearray(40 << 20); sys.stdout.write('x\\n'); sys.stdout.flush(); time.sleep(60)"
    parent = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}])"
    process = subprocess.Popen([sys.executable, "-c", parent], stdout=subprocess.PIPE, start_new_session=True)
    try:
        assert process.stdout is not None
        process.stdout.readline()
        report(tmp_path, name="actor.1", pid=process.pid, state="ready")
        sample = take_sample(tmp_path, at_s=0.0, others={"start": os.getpid()})
    finally:
        os.killpg(process.pid, 9)
        process.communicate()
    assert sample.sizes_mib["actor.1 (browser)"] > 40 > sample.sizes_mib["actor.1 (Python)"] > 1
    parts = sample.sizes_mib["actor.1 (browser)"] + sample.sizes_mib["actor.1 (Python)"]
    assert sample.sizes_mib["actor.1"] == pytest.approx(parts)
    assert sample.sizes_mib["start"] > 10
    assert to_csv([sample]).splitlines()[0] == "at_s,process,mib"
