"""Records a golden run: a small real training run as an archive, and a forged one that no verification may pass.

A recorded run never changes: it stays readable and its plans stay reproducible for every later Hindcast. Run after a
release that changed a schema or the format: python tests/golden/record_run.py NAME
"""

import asyncio
import json
import shutil
import sys
import tempfile
from pathlib import Path

import msgspec

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent)]

from fakes import tiny_policy  # noqa: E402
from hindcast.events.archive.writer import LOCK, ArchiveWriter  # noqa: E402
from hindcast.events.catalogue import BatchPlanned  # noqa: E402
from hindcast.events.codec import decode  # noqa: E402
from hindcast.events.log.memory import MemoryLog  # noqa: E402
from hindcast.learner.numerics import configure  # noqa: E402
from hindcast.storage.archive.archiver import Archiver  # noqa: E402
from hindcast.storage.blobs.store import BlobStore  # noqa: E402
from stories.archive_story import QuickDisk  # noqa: E402
from stories.forging import forge  # noqa: E402
from stories.training_story import Bench, Member, Story, informative, learn, settings_with, tell  # noqa: E402

RUNS = HERE / "runs"
CONFIG = ".policy.json"
"""Beside the archive: configuration of the run's policy. Its tokenizer is the one that ships with Hindcast."""
NAME = "golden"
SHAPE = {
    "vocab_size": 256,
    "hidden_size": 16,
    "intermediate_size": 16,
    "num_hidden_layers": 2,
    "layer_types": ["conv", "full_attention"],
}
FORGED = "-forged"
SEGMENT_BYTES = 12_000
FRAME_EVENTS = 40


async def record(place: Path) -> Bench:
    """Six updates in three batches, with a restart in the middle of the second; weights and checkpoints are let go of."""
    configure(1)
    tiny_policy.SMALL |= SHAPE
    policy = tiny_policy.write_tiny_policy(place / "policy")
    blobs, log, story = BlobStore(place / "blobs"), MemoryLog(NAME), Story(policy)
    settings = settings_with(keep_checkpoints=1, keep_weights=1, checkpoint_every=1)
    started = story.start(blobs, settings)
    told = [started._replace(entity=NAME)]
    for index in range(6):
        told += story.group(*informative(steps=1 + index % 3))
        if index % 3 == 1:
            told += story.group(*(Member(1.0, 1) for _ in range(4)))
            told += story.group(
                Member(1.0, 2), Member(0.0, 1, abandoned=True), Member(0.0, 1), Member(0.0, 2)
            )
    await tell(log, told)
    made = Bench(log, blobs, policy, story)
    for goal in (3, 6):
        await learn(made, until=goal)
    return made


async def archive(made: Bench, folder: Path, *, blobs: bool) -> None:
    """Write it down."""
    shutil.rmtree(folder, ignore_errors=True)
    writer = ArchiveWriter.open(folder, run=NAME, segment_bytes=SEGMENT_BYTES, disk=QuickDisk())
    for start in range(0, len(made.log.events), FRAME_EVENTS):
        writer.append(made.log.events[start : start + FRAME_EVENTS])
    writer.note()
    if blobs:
        await Archiver(made.log, made.blobs, writer, pages=True).run(follow=False)
    writer.close()
    (folder / LOCK).unlink()


def forged(made: Bench) -> None:
    """The smallest lie: one advantage of the second plan is another number, all digests are made to fit."""
    plans = [
        stored.position
        for stored in made.log.events
        if (recorded := decode(stored)) and isinstance(recorded.fact, BatchPlanned)
    ]

    def lie(fact: BatchPlanned) -> BatchPlanned:
        first = msgspec.structs.replace(fact.episodes[0], advantage=fact.episodes[0].advantage * (1 + 2**-52))
        return msgspec.structs.replace(fact, episodes=(first, *fact.episodes[1:]))

    forge(made.log, plans[1], lie, digests=True)


def main() -> None:
    name = sys.argv[1]
    folder = RUNS / name
    if folder.exists():
        raise SystemExit(f"{folder} exists; golden runs never change. Choose another name.")
    with tempfile.TemporaryDirectory() as place:
        made = asyncio.run(record(Path(place)))
        asyncio.run(archive(made, folder, blobs=True))
        config = json.loads((made.policy / "config.json").read_text())
        (RUNS / f"{name}{CONFIG}").write_text(json.dumps(config, indent=1) + "\n")
        forged(made)
        asyncio.run(archive(made, RUNS / f"{name}{FORGED}", blobs=False))


if __name__ == "__main__":
    main()
