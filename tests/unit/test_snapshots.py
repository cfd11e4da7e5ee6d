"""Snapshots of a fold: the newest one that can be read, and what is passed over."""

import ast
import importlib
import inspect
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec
import pytest
from structlog.testing import capture_logs

import hindcast.actors.curriculum.snapshots
import hindcast.learner.buffer.snapshots
from hindcast.core.plugins import own_modules
from hindcast.core.rl.algorithm import ALGORITHMS
from hindcast.core.settings.schema import LogSettings
from hindcast.events.catalogue import SnapshotSaved, WeightsAdopted
from hindcast.events.envelope import BlobRef
from hindcast.events.log.memory import MemoryLog
from hindcast.events.log.publisher import Publisher
from hindcast.events.log.reader import read
from hindcast.storage.blobs.store import BlobStore
from hindcast.storage.snapshots import SnapshotKind, append_snapshot, code_of, newest_standing

RUN = "r"
NO_RULES = (
    "hindcast.core.errors",
    "hindcast.core.settings.schema",
    "hindcast.core.text",
    "hindcast.events.catalogue",
    "hindcast.events.envelope",
    "hindcast.events.registry",
)
"""Words and facts: what of them stands in a state is part of its shape, and facts change by version alone."""


class Counted(msgspec.Struct):
    """A state."""

    count: int


KIND = SnapshotKind("counter", Counted, rules=("hindcast.core.ids",))


class Bench:
    """A log with events to count, and snapshots of the count."""

    def __init__(self, folder: Path) -> None:
        self.log = MemoryLog(RUN)
        self.blobs = BlobStore(folder)

    async def count(self, events: int) -> int:
        async with self.publisher() as publisher:
            for _ in range(events):
                await publisher.publish(WeightsAdopted(actor="a", version=0, load_ms=0.0), entity="a")
            return await publisher.commit()

    async def keep(
        self, state: Any, position: int, *, kind: SnapshotKind[Any] = KIND, digest: bytes = b""
    ) -> BlobRef:
        blob = self.blobs.put(kind.encode(state))
        (stored,) = await self.log.read(after=position - 1, limit=1)
        async with self.publisher() as publisher:
            await append_snapshot(
                self.log,
                publisher,
                kind,
                blob,
                position=position,
                position_digest=digest or sha256(stored.data).digest(),
            )
        return blob

    def publisher(self) -> Publisher:
        return Publisher(self.log, producer="p", code_rev="", settings=LogSettings(linger_ms=0))

    async def found(self) -> tuple[int, int] | None:
        standing = await newest_standing(self.log, self.blobs, KIND)
        return None if standing is None else (standing.saved.position, standing.state.count)


@pytest.fixture
async def bench(tmp_path: Path) -> Bench:
    bench = Bench(tmp_path)
    await bench.count(5)
    return bench


async def test_the_newest_snapshot_is_found_whatever_follows_it(bench: Bench) -> None:
    assert await bench.found() is None
    await bench.keep(Counted(5), 5)
    await bench.keep(Counted(6), 6)
    await bench.count(3)
    assert await bench.found() == (6, 6)


async def test_each_snapshot_names_the_one_before_it(bench: Bench) -> None:
    for position in (3, 4, 5):
        await bench.keep(Counted(position), position)
    assert await said(bench) == [(3, 0), (4, 6), (5, 7)]


async def said(bench: Bench) -> list[tuple[int, int]]:
    facts = [recorded.fact async for recorded in read(bench.log)]
    return [(fact.position, fact.previous) for fact in facts if isinstance(fact, SnapshotSaved)]


async def test_another_projection_is_none_of_ours(bench: Bench) -> None:
    await bench.keep(Counted(5), 5, kind=SnapshotKind("other", Counted, rules=("hindcast.core.ids",)))
    assert await bench.found() is None


@pytest.mark.parametrize("fault", ["gone", "flipped", "cut", "other shape", "other rules", "other log"])
async def test_what_cannot_be_trusted_is_passed_over_for_the_one_before_with_a_warning(
    bench: Bench, fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await bench.keep(Counted(4), 4)
    kind, digest = KIND, b""
    if fault == "other shape":

        class Other(msgspec.Struct):
            count: str

        kind = SnapshotKind("counter", Other, rules=("hindcast.core.ids",))
    elif fault == "other rules":
        kind = SnapshotKind("counter", Counted, rules=("hindcast.core.seeds",))
    elif fault == "other log":
        digest = bytes(32)
    state = Counted("5") if fault == "other shape" else Counted(5)  # type: ignore[arg-type]
    blob = await bench.keep(state, 5, kind=kind, digest=digest)
    path = bench.blobs.path(blob)
    content = path.read_bytes()
    if fault == "gone":
        path.unlink()
    elif fault == "flipped":
        path.write_bytes(bytes([content[0] ^ 1]) + content[1:])
    elif fault == "cut":
        path.write_bytes(content[:-1])
    with capture_logs() as logs:
        assert await bench.found() == (4, 4)
    assert [entry["position"] for entry in logs if entry["log_level"] == "warning"] == [5]


async def test_a_damaged_event_ends_the_search_and_is_left_to_whoever_reads_the_log(bench: Bench) -> None:
    await bench.keep(Counted(5), 5)
    stored = bench.log.events[-1]
    bench.log.events[-1] = type(stored)(stored.position, stored.subject, stored.data[:-3], stored.id)
    assert await bench.found() is None


def test_prose_changes_no_schema_and_code_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    texts = {
        "rules_a": '"""One."""\n\n\ndef f():\n    return 1\n',
        "rules_b": '"""Two."""\n\n# why\ndef f():\n    """What."""\n    return 1\n',
        "rules_c": "def f():\n    return 2\n",
    }
    for name, text in texts.items():
        (tmp_path / f"{name}.py").write_text(text)
    assert code_of("rules_a") == code_of("rules_b")
    assert code_of("rules_a") != code_of("rules_c")


@pytest.mark.parametrize(
    ("root", "rules"),
    [
        *(
            (root, hindcast.learner.buffer.snapshots.RULES)
            for root in (
                "hindcast.learner.buffer.replay_buffer",
                *own_modules(ALGORITHMS),
            )
        ),
        ("hindcast.actors.curriculum.projection", hindcast.actors.curriculum.snapshots.RULES),
    ],
)
def test_every_module_that_decides_what_a_state_is_counts_in_its_schema(
    root: str, rules: Sequence[str]
) -> None:
    found: set[str] = set()
    waiting = [root]
    while waiting:
        name = waiting.pop()
        if name not in found and not name.startswith(NO_RULES):
            found.add(name)
            waiting += imported(name)
    assert found <= set(rules), f"missing: {sorted(found - set(rules))}"


def imported(module: str) -> list[str]:
    """Our own modules that a module imports from."""
    tree = ast.parse(inspect.getsource(importlib.import_module(module)))
    names = [node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module]
    return [name for name in names if name.startswith("hindcast.")]
