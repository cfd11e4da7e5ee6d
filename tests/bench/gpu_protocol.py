"""What should be measured first on a machine with a GPU where packages can be installed, step by step.

    make gpu [OUT=FOLDER] [VLLM_PYTHON=PYTHON]

| step | what it finds out |
|---|---|
| machine | GPUs, driver, CUDA, NCCL, bf16, deterministic kernels (`hindcast doctor`) |
| parts | gradients and updates: equal bits in two processes, speed, memory (`bench.gpu_parts`) |
| resume | a run that a host without a GPU opened: its learner is killed and recomputes; `hindcast verify` finds the same bits |
| engine | a vLLM server against the engine in process: tokens per second, and how far log-probabilities are apart |
| weights | new weights under way on a real vLLM server, tied and untied, from files and streamed (`tests/vllm`) |

Every step leaves OUT/STEP.json, and a step whose file is there is not run again; a failed one leaves OUT/STEP.error.txt.
OUT/report.md has all of them. The last two steps need VLLM_PYTHON.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench import gpu_parts
from processes.system import COMMAND, ROOT, SMALL_GROUPS, Home, settings

STEP_S = 3600.0
"""Time limit of a command, and of each wait of a run."""


@dataclass(frozen=True)
class Protocol:
    """Where and at which size the steps run."""

    out: Path
    size: str
    device: str
    updates: int
    """Updates of the run whose learner is killed."""
    vllm_python: str
    """Of an environment with vLLM; empty: the steps that need it are left out."""

    def environment(self) -> dict[str, str]:
        """Environment variables of the commands."""
        return {
            **os.environ,
            "HINDCAST_HOME": str(self.out / "home"),
            "HINDCAST_VLLM_PYTHON": self.vllm_python,
        }

    def hindcast(self, *arguments: str) -> Any:
        """One command of ours, as JSON. Raises CalledProcessError with its messages."""
        return json.loads(self.command([*COMMAND, *arguments, "--json"]).splitlines()[-1])

    def command(self, words: list[str]) -> str:
        """Output of a command. Raises CalledProcessError with its messages."""
        done = subprocess.run(
            words,
            cwd=ROOT,
            env=self.environment(),
            capture_output=True,
            text=True,
            timeout=STEP_S,
            check=True,
        )
        return done.stdout


def machine(protocol: Protocol) -> Any:
    """Findings of `hindcast doctor`, which exits with 1 where something is missing."""
    done = subprocess.run(
        [*COMMAND, "doctor", "--set", f"learner.device={protocol.device}", "--json"],
        cwd=ROOT,
        env=protocol.environment(),
        capture_output=True,
        text=True,
        timeout=STEP_S,
        check=False,
    )
    return json.loads(done.stdout)


def parts(protocol: Protocol) -> Any:
    """The report of `bench.gpu_parts`, whose parts are kept, too."""
    gpu_parts.run(protocol.out / "parts", protocol.size, protocol.device)
    return {"report": (protocol.out / "parts" / "report.md").read_text()}


def resume(protocol: Protocol) -> Any:
    """What `hindcast verify` says of a run that was opened without a GPU, and whose learner was killed."""
    home = Home(protocol.out / "home")
    seen = home.environment.pop("CUDA_VISIBLE_DEVICES", None)
    home.environment["CUDA_VISIBLE_DEVICES"] = ""
    device = {"learner.device": protocol.device if protocol.device == "cpu" else "auto"}
    chosen = settings(device, base=SMALL_GROUPS)
    assert home.stop(home.start("protocol", "--recipe", "mgrpo", *chosen, "--actors", "0")) == 0
    del home.environment["CUDA_VISIBLE_DEVICES"]
    if seen is not None:
        home.environment["CUDA_VISIBLE_DEVICES"] = seen
    system = home.start("protocol", "--until", f"updates={protocol.updates}")
    try:
        half = protocol.updates // 2

        def trained() -> bool:
            return int(home.json("run", "show", "protocol")["updates"]) >= half

        home.wait_for(f"{half} updates", trained, timeout_s=STEP_S)
        home.kill("learner.1")
        assert system.wait(STEP_S) == 0, home.words()
    finally:
        system.kill()
    report = home.json("verify", "protocol", timeout_s=STEP_S)
    names = ("identical", "updates", "digests", "first_divergence", "recorded_on", "verified_on", "cpu_ratio")
    return {name: report[name] for name in names}


def engine(protocol: Protocol) -> Any:
    """Rates of both engines and `mismatch_kl` of both."""
    against = ("--against", "vllm", "--python", protocol.vllm_python, "--repeats", "3")
    return protocol.hindcast("bench", "engine", *against)


def weights(protocol: Protocol) -> Any:
    """Differences of log-probabilities that the tests of a real server print."""
    test = ROOT / "tests" / "vllm" / "test_vllm_server.py"
    output = protocol.command([sys.executable, "-m", "pytest", "-q", "-s", str(test)])
    return {"differences": [line.lstrip(".") for line in output.splitlines() if "largest difference" in line]}


STEPS: dict[str, Callable[[Protocol], Any]] = {
    one.__name__: one for one in (machine, parts, resume, engine, weights)
}
WITH_VLLM = ("engine", "weights")


def run(protocol: Protocol, wanted: list[str]) -> None:
    """Run the steps that have no record yet, and write the report."""
    protocol.out.mkdir(parents=True, exist_ok=True)
    for name in wanted:
        kept, failed = protocol.out / f"{name}.json", protocol.out / f"{name}.error.txt"
        if kept.exists() or (name in WITH_VLLM and not protocol.vllm_python):
            continue
        began = time.monotonic()
        print(f"{name} …", flush=True)
        try:
            found = STEPS[name](protocol)
        except (AssertionError, OSError, ValueError, KeyError, subprocess.SubprocessError) as error:
            said = f"{error}\n{getattr(error, 'stderr', None) or ''}".strip()
            failed.write_text(said[-4000:])
            print(f"{name} failed: {said[-300:]}", flush=True)
            continue
        failed.unlink(missing_ok=True)
        record = {"seconds": round(time.monotonic() - began, 1), "found": found}
        kept.write_text(json.dumps(record, indent=1))
    (protocol.out / "report.md").write_text("".join(report(protocol.out)))


def report(out: Path) -> Iterator[str]:
    """Markdown: every step, what it found, and what failed."""
    for name in STEPS:
        kept, failed = out / f"{name}.json", out / f"{name}.error.txt"
        yield f"## {name}\n\n"
        if kept.exists():
            record = json.loads(kept.read_text())
            found = record["found"]
            text = found["report"] if name == "parts" else f"```json\n{json.dumps(found, indent=1)}\n```\n"
            yield f"{text}\n{record['seconds']:g} s.\n\n"
        elif failed.exists():
            yield f"Failed: {failed.read_text()}\n\n"
        else:
            yield "Not run.\n\n"


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--size", choices=gpu_parts.SIZES, default="half")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--updates", type=int, default=20)
    parser.add_argument("--vllm-python", default="")
    parser.add_argument("--steps", default=",".join(STEPS), help="Names with commas between; default: all.")
    chosen = parser.parse_args()
    protocol = Protocol(chosen.out.absolute(), chosen.size, chosen.device, chosen.updates, chosen.vllm_python)
    run(protocol, chosen.steps.split(","))


if __name__ == "__main__":
    main()
