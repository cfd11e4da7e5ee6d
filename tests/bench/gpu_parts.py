"""The learner's updates on a GPU: are they the same bits again, how fast are they, what memory do they take?

    make gpu-parts [OUT=FOLDER] [GPU_PYTHON=python3]

Needs the packages that the learner imports, and no broker, browser or server. Every part is a process of its own and a JSON
file in OUT; a part whose file is there is not run again. `OUT/report.md` has them all, and those that failed.

Samples are drawn once, from the first weights, so every later update is off-policy: staleness grows with the updates.
"""

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
import torch
import torch.distributed as dist
from torch.distributed import TCPStore  # type: ignore[attr-defined]

from bench.engine_calls import recorded_episodes
from bench.learner import made_up_batch
from bench.untied import write_untied
from hindcast.app.settings.configuration import resolve
from hindcast.core.domain.arrays import pack_floats, unpack_floats
from hindcast.core.models.policy import WEIGHTS
from hindcast.core.settings.computing import Device, Precision
from hindcast.events.catalogue import UpdateApplied
from hindcast.learner.batch_plan import minibatches_of
from hindcast.learner.buffer.records import Batch
from hindcast.learner.distributed.ranks import DistributedRank, Ranks
from hindcast.learner.distributed.rendezvous import LOOPBACK
from hindcast.learner.numerics import configure, fingerprint
from hindcast.learner.training import Training
from hindcast.storage.blobs.store import BlobStore

PART_S = 470.0
"""Time limit of one part."""
BATCHES = 3
LONG = 10
"""Batches of the part with 20 updates."""
RANK = 16


@dataclass(frozen=True)
class Size:
    """A Llama with random weights, and what it is trained on."""

    width: int
    inner: int
    layers: int
    heads: int
    episodes: int
    tokens_per_forward: int
    dtype: torch.dtype = torch.float32
    """Number format of the weights' file."""


SIZES = {
    "toy": Size(width=48, inner=96, layers=2, heads=2, episodes=8, tokens_per_forward=1024),
    "half": Size(width=1024, inner=4096, layers=24, heads=16, episodes=32, tokens_per_forward=8192),
    "seven": Size(
        width=4096,
        inner=11008,
        layers=32,
        heads=32,
        episodes=8,
        tokens_per_forward=8192,
        dtype=torch.bfloat16,
    ),
}
"""`half` has .42 billion weights, `seven` 6.5 billion."""


@dataclass(frozen=True)
class Part:
    """One measurement: batches of two updates each."""

    precision: Precision = "float32"
    packed: bool = False
    checkpointing: bool = False
    deterministic: bool = True
    adapters: bool = False
    """Whether adapters of rank `RANK` are trained on frozen weights."""
    seven: bool = False
    """Whether the model is that of 7B, unless the size is the toy's."""
    ranks: int = 1
    """Processes that compute each update together, on one GPU, and add in the order of their ranks (`learner.exact_ranks`)."""
    emulated: bool = False
    """Whether one process emulates the ranks."""
    digest_every: int = 1
    """As in the settings; 0: by the model's size, and then only speed is compared."""
    batches: int = BATCHES
    altered: bool = False
    """Whether one recorded log-probability of the last batch is another one: its updates must show it."""
    attempt: int = 0

    @property
    def name(self) -> str:
        """Of its file."""
        traits = [self.precision, *(["packed"] if self.packed else [])]
        traits += [*(["checkpointed"] if self.checkpointing else [])]
        traits += [*([] if self.deterministic else ["not-deterministic"])]
        traits += [*(["7b"] if self.seven else []), *(["adapters"] if self.adapters else [])]
        traits += [*([] if self.ranks == 1 else [f"{self.ranks}-ranks"])]
        traits += [*(["emulated"] if self.emulated else [])]
        traits += [*(["few-digests"] if self.digest_every != 1 else [])]
        traits += [*([] if self.batches == BATCHES else [f"{2 * self.batches}-updates"])]
        traits += [*(["altered"] if self.altered else [])]
        return f"{'-'.join(traits)}-{self.attempt}"


PARTS = tuple(
    Part(**traits, attempt=attempt)
    for traits in (
        {"precision": "bf16"},
        {"precision": "float32"},
        {"precision": "bf16", "packed": True},
        {"precision": "bf16", "checkpointing": True},
        {"precision": "bf16", "deterministic": False},
        {"precision": "bf16", "adapters": True},
        {"precision": "bf16", "batches": LONG},
        {"precision": "bf16", "digest_every": 0},
        {"precision": "bf16", "ranks": 2},
        {"precision": "bf16", "ranks": 2, "emulated": True},
        {"precision": "bf16", "seven": True, "adapters": True, "checkpointing": True},
    )
    for attempt in (0, 1)
)
CONTROL = Part(precision="bf16", altered=True)
"""The negative control."""


@contextmanager
def joined(rank: int, size: int, store: TCPStore) -> Iterator[Ranks]:
    """Join the other ranks. All use gloo and the same GPU, which NCCL refuses."""
    dist.init_process_group("cpu:gloo,cuda:gloo", store=store, rank=rank, world_size=size)
    try:
        yield DistributedRank(exact=True)
        # a process that ends right after a collective is aborted by gloo's threads
        store.set("done", "") if rank == 0 else store.wait(["done"])
    finally:
        dist.destroy_process_group()


@contextmanager
def leading(part: Part, others: Sequence[str]) -> Iterator[Ranks | None]:
    """The first of a part's ranks, with the others in processes of their own; None: one process alone.

    `others`: command line of another rank, without its number and port.
    """
    if part.ranks == 1 or part.emulated:
        yield None
        return
    store = TCPStore(LOOPBACK, 0, part.ranks, is_master=True, wait_for_workers=False)
    started = [
        subprocess.Popen([*others, "--rank", str(rank), "--port", str(store.port)])
        for rank in range(1, part.ranks)
    ]
    try:
        with joined(0, part.ranks, store) as ranks:
            yield ranks
        if any(process.wait(PART_S) for process in started):
            raise RuntimeError("another rank failed; its messages are above")
    finally:
        for process in started:
            process.kill()


def measure(part: Part, size: Size, device: Device, ranks: Ranks | None = None) -> dict[str, Any]:
    """Train in this process. `ranks`: with others; None: alone."""
    configure(torch.get_num_threads())
    if not part.deterministic:
        torch.use_deterministic_algorithms(False)
    learner = resolve(recipe="mgrpo", overrides=[]).settings.learner.model_copy(
        update={
            "device": device,
            "precision": part.precision,
            "packed_sequences": part.packed,
            "gradient_checkpointing": part.checkpointing,
            "tokens_per_forward": size.tokens_per_forward,
            "warmup_updates": 1,
            "lora_rank": RANK if part.adapters else 0,
            "digest_every": part.digest_every,
            "processes": part.ranks,
            "exact_ranks": True,
        }
    )
    with TemporaryDirectory() as scratch:
        folder = write_untied(
            Path(scratch) / "policy",
            seed=0,
            width=size.width,
            inner=size.inner,
            layers=size.layers,
            heads=size.heads,
            spread=0.02,
            dtype=size.dtype,
        )
        work = made_up_batch(folder, recorded_episodes(size.episodes), learner)
        store = BlobStore(Path(scratch) / "blobs")
        training = Training(
            folder, store.put((folder / WEIGHTS).read_bytes()), blobs=store, settings=learner, ranks=ranks
        )
        digests, seconds = [], []
        for number in range(part.batches):
            last = number == part.batches - 1
            batch = altered(work.batch) if part.altered and last else work.batch
            began = time.monotonic()
            training.begin(msgspec.structs.replace(work.plan, batch=number), batch)
            for index in range(len(minibatches_of(work.plan))):
                fact = training.step(index)
                assert isinstance(fact, UpdateApplied), fact
                digests.append(fact.after)
                loss = fact.metrics["loss"]
            seconds.append(time.monotonic() - began)
    on_gpu = device != "cpu" and torch.cuda.is_available()
    return {
        "part": asdict(part),
        "digests": digests,
        "loss": loss,
        "tokens": work.tokens,
        "seconds": [round(one, 3) for one in seconds],
        "tokens_per_s": round(work.tokens / min(seconds[1:])),
        "peak_gib": round(torch.cuda.max_memory_allocated() / 2**30, 2) if on_gpu else None,
        "fingerprint": msgspec.to_builtins(fingerprint(torch.get_num_threads(), device)),
    }


def altered(batch: Batch) -> Batch:
    """The batch with the first token of its first answer recorded a hundredth of a nat less likely."""
    first, *others = batch.samples
    recorded = unpack_floats(first.logprobs).copy()
    recorded[0] -= 0.01
    return replace(batch, samples=[msgspec.structs.replace(first, logprobs=pack_floats(recorded)), *others])


def run(out: Path, size: str, device: str) -> None:
    """Every part that has no file yet, each in a process of its own."""
    out.mkdir(parents=True, exist_ok=True)
    for part in (*PARTS, CONTROL):
        kept = out / f"{part.name}.json"
        if kept.exists():
            continue
        command = [sys.executable, "-m", "bench.gpu_parts", str(out), "--size", size, "--device", device]
        try:
            done = subprocess.run(
                [*command, "--part", part.name], capture_output=True, text=True, timeout=PART_S, check=False
            )
            error = done.stderr.strip()[-2000:] if done.returncode else ""
        except subprocess.TimeoutExpired:
            error = f"it took more than {PART_S:g} s"
        failed = out / f"{part.name}.error.txt"
        failed.write_text(error) if error else failed.unlink(missing_ok=True)
        print(part.name, "failed: " + error[-300:] if error else kept.read_text()[:400], flush=True)
    (out / "report.md").write_text("".join(report(out, size)))


def report(out: Path, size: str) -> Iterator[str]:
    """Markdown: what was run on which machine, and whether two processes came to the same bits."""
    known = {path.stem: json.loads(path.read_text()) for path in sorted(out.glob("*.json"))}
    if not known:
        yield "Nothing was measured.\n"
        return
    machine = next(iter(known.values()))["fingerprint"]
    yield f"Size `{size}`; {machine['platform']}, torch {machine['torch']}, transformers {machine['transformers']}.\n\n"
    yield "| learner | tokens/s | peak memory | same bits in two processes | same bits as the plain learner |\n"
    yield "|---|---|---|---|---|\n"
    for part in PARTS[::2]:
        plain = known.get(f"{part.precision}-0")
        both = [known.get(f"{part.name[:-1]}{attempt}") for attempt in (0, 1)]
        ran = [one for one in both if one is not None]
        if ran:
            same = "-" if len(ran) < 2 else "yes" if ran[0]["digests"] == ran[1]["digests"] else "**no**"
            rate = max(one["tokens_per_s"] for one in ran)
            memory = f"{ran[0]['peak_gib']} GiB" if ran[0]["peak_gib"] is not None else "-"
            alike = "-" if plain is None else _alike(plain["digests"], ran[0]["digests"])
            if part.ranks > 1 or part.seven:
                alike = "-"
            if part.digest_every != 1:
                same = alike = "-"
            yield f"| {part.name[:-2]} | {rate:,} | {memory} | {same} | {alike} |\n"
    control, plain = known.get(CONTROL.name), known.get(f"{CONTROL.precision}-0")
    if control and plain:
        seen = _alike(plain["digests"], control["digests"])
        yield f"\nOne log-probability of the last batch altered by .01: the same bits as the plain learner: {seen}.\n"
    together, emulated = known.get("bf16-2-ranks-0"), known.get("bf16-2-ranks-emulated-0")
    if together and emulated:
        seen = _alike(together["digests"], emulated["digests"])
        yield f"\nTwo ranks on one device, and one process that emulates them: the same bits: {seen}.\n"
    for path in sorted(out.glob("*.error.txt")):
        yield f"\nFailed: {path.name.removesuffix('.error.txt')}: {path.read_text().splitlines()[-1]}\n"


def _alike(expected: Sequence[str], found: Sequence[str]) -> str:
    """Up to which update two sequences of digests are equal."""
    for update, (one, other) in enumerate(zip(expected, found, strict=False), start=1):
        if one != other:
            return "no" if update == 1 else f"up to update {update - 1}"
    return "yes"


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--size", choices=SIZES, default="half")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--part", help="Run this part alone, in this process.")
    parser.add_argument("--rank", type=int, default=0, help="As this rank of the part.")
    parser.add_argument("--port", type=int, help="Where the first rank's store is.")
    chosen = parser.parse_args()
    if chosen.part is None:
        run(chosen.out, chosen.size, chosen.device)
        return
    part = next(one for one in (*PARTS, CONTROL) if one.name == chosen.part)
    size = SIZES["seven" if part.seven and chosen.size != "toy" else chosen.size]
    if chosen.rank:
        store = TCPStore(LOOPBACK, chosen.port, part.ranks, is_master=False)
        with joined(chosen.rank, part.ranks, store) as ranks:
            measure(part, size, chosen.device, ranks)
        return
    with leading(part, [sys.executable, "-m", "bench.gpu_parts", *sys.argv[1:]]) as ranks:
        found = measure(part, size, chosen.device, ranks)
    (chosen.out / f"{part.name}.json").write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
