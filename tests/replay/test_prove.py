"""A proof holds for the run that it was made of, and for no altered one."""

import asyncio
import json
import shutil
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec
import pytest
from typer.testing import CliRunner

from fakes.tiny_policy import write_tiny_policy
from hindcast.app.cli import app
from hindcast.app.proofs import proof as proving
from hindcast.app.proofs.proof import PROOF, SIGNATURE, Proof, chances, check_proof, prove
from hindcast.app.proofs.signature import ProofInvalid, private_key, public_hex
from hindcast.app.runs.archive_source import ArchiveSource
from hindcast.app.runs.runs import open_run
from hindcast.core.errors import SettingsError
from hindcast.core.hash_tree import leaf_of, root_of
from hindcast.events.archive.archive_log import ArchiveLog
from hindcast.events.catalogue import CheckpointSaved, UpdateApplied
from hindcast.events.codec import decode, encode, encode_fact
from hindcast.events.envelope import Recorded, Stored
from hindcast.learner import loop
from hindcast.learner.verify import survey as surveying
from stories.home_run import learn, record, small_run
from stories.training_story import Story, informative

pytestmark = [pytest.mark.broker, pytest.mark.torch]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A proof of a run of three batches with a checkpoint after each, and its public key."""
    home = tmp_path_factory.mktemp("home")
    policy = write_tiny_policy(home / "policy")

    async def work() -> Proof:
        overrides = ["learner.checkpoint_every=1", "learner.keep_checkpoints=9"]
        run = small_run(home, policy, name="proven", overrides=overrides)
        story = Story(policy)
        facts = [story.start(run.blobs, run.settings)]
        for index in range(6):
            facts += story.group(*informative(steps=1 + index % 2))
        async with run.connect_log("admin"):
            await record(run, facts)
            await learn(run, until=12)
            return await prove(open_run("proven", home=home), home / "proof", key=home / "key")

    proof = asyncio.run(work())
    return home / "proof", proof.key


@pytest.fixture
def copied(made: tuple[Path, str], tmp_path: Path) -> Path:
    shutil.copytree(made[0], tmp_path / "proof")
    return tmp_path / "proof"


async def checked(folder: Path, key: str, *, updates: int = 3, seed: int = 1) -> Any:
    return await check_proof(folder, public=key, updates=updates, seed=seed)


async def test_a_stranger_draws_updates_and_recomputes_them(made: tuple[Path, str]) -> None:
    folder, key = made
    found = await checked(folder, key)
    assert found.updates == 12
    assert found.drawn[-1] == 12
    assert 1 < len(found.drawn) <= 4
    assert len(found.drawn) <= found.recomputed < 12 or found.recomputed == 12
    assert found.machine_differs == ()
    assert found.chances == chances(11, len(found.drawn) - 1)
    other = await checked(folder, key, seed=2)
    assert other.drawn != found.drawn


def test_the_chance_is_that_of_drawing_without_replacement() -> None:
    assert chances(100, 5) == {1: pytest.approx(0.05), 10: pytest.approx(0.4162, abs=1e-4)}
    assert chances(4, 4) == {1: 1.0}


async def test_the_machine_of_every_update_counts_not_that_of_the_last_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = write_tiny_policy(tmp_path / "policy")
    run = small_run(tmp_path, policy, name="moved", overrides=["learner.checkpoint_every=1"])
    story = Story(policy)
    facts = [story.start(run.blobs, run.settings)]
    for _ in range(4):
        facts += story.group(*informative())
    own = loop.fingerprint_of
    async with run.connect_log("admin"):
        await record(run, facts)
        with monkeypatch.context() as patch:
            patch.setattr(
                loop,
                "fingerprint_of",
                lambda settings: msgspec.structs.replace(own(settings), torch="2.9.0"),
            )
            await learn(run, until=2)
        await learn(run, until=4)
        proof = await prove(open_run("moved", home=tmp_path), tmp_path / "proof", key=tmp_path / "key")
    assert proof.machine == own(run.settings.learner)
    found = await checked(tmp_path / "proof", proof.key)
    assert [one.split()[:2] for one in found.machine_differs] == [["torch", "2.9.0"]]
    assert (found.tolerance, found.chances) == (1e-4, {})


async def test_another_machine_compares_within_a_tolerance_and_gives_no_chance(
    made: tuple[Path, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    here = proving.fingerprint_of
    monkeypatch.setattr(
        proving, "fingerprint_of", lambda settings: msgspec.structs.replace(here(settings), torch="1.0")
    )
    found = await checked(*made)
    assert [one.split()[0] for one in found.machine_differs] == ["torch"]
    assert found.tolerance == 1e-4
    assert found.chances == {}


async def test_a_public_key_may_be_in_a_file_and_no_message_shows_a_private_one(
    made: tuple[Path, str], tmp_path: Path
) -> None:
    file = tmp_path / ("long" * 20)
    file.write_text(f"{made[1]}\n")
    assert (await checked(made[0], str(file))).updates == 12
    file.write_text("secret-words")
    with pytest.raises(SettingsError, match="found 12 characters") as refused:
        private_key(file)
    assert "secret" not in str(refused.value)


async def test_another_s_signature_is_refused(copied: Path, made: tuple[Path, str], tmp_path: Path) -> None:
    other = private_key(tmp_path / "other")
    with pytest.raises(ProofInvalid, match="not signed by the owner of this key"):
        await checked(copied, public_hex(other))
    (copied / SIGNATURE).write_text(other.sign((copied / PROOF).read_bytes()).hex())
    with pytest.raises(ProofInvalid, match="not signed by the owner of this key"):
        await checked(copied, made[1])
    with pytest.raises(SettingsError, match="--key holds no key"):
        await checked(copied, "abc")


async def test_an_altered_policy_is_refused(copied: Path, made: tuple[Path, str]) -> None:
    file = copied / "policy" / "model.safetensors"
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    with pytest.raises(ProofInvalid, match=r"the policy's file model\.safetensors was altered"):
        await checked(copied, made[1])
    file.unlink()
    with pytest.raises(ProofInvalid, match=r"the policy's file model\.safetensors is not there"):
        await checked(copied, made[1])


async def test_a_log_that_was_cut_is_refused(
    copied: Path, made: tuple[Path, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async with ArchiveSource(copied / "log").connect_log() as log:
        last = (await log.identity()).last
    own = ArchiveLog.read

    async def shorter(self: ArchiveLog, *, after: int, limit: int) -> list[Stored]:
        return [one for one in await own(self, after=after, limit=limit) if one.position <= last - 3]

    monkeypatch.setattr(ArchiveLog, "read", shorter)
    with pytest.raises(ProofInvalid, match=rf"the log has {last - 3} events, and {last} were signed"):
        await checked(copied, made[1])


def resigned(folder: Path, home_key: Path, events: list[bytes]) -> None:
    """The prover signs a log with other events: only recomputing shows it."""
    proof = json.loads((folder / PROOF).read_text())
    proof["root"] = root_of(leaf_of(one) for one in events).hex()
    content = json.dumps(proof).encode()
    (folder / PROOF).write_bytes(content)
    (folder / SIGNATURE).write_text(private_key(home_key).sign(content).hex())


def altered(recordeds: list[Recorded], kind: type, number: int, change: Any) -> list[bytes]:
    """The stored bytes with one fact changed, and the hash chain of its producer mended."""
    found = [one for one in recordeds if isinstance(one.fact, kind)][number]
    latest: dict[str, bytes] = {}
    contents = []
    for one in recordeds:
        fact = change(one.fact) if one is found else one.fact
        envelope = msgspec.structs.replace(
            one.envelope,
            prev_hash=latest.get(one.envelope.incarnation, one.envelope.prev_hash),
            payload=encode_fact(fact),
        )
        content = encode(envelope)
        latest[one.envelope.incarnation] = sha256(content).digest()
        contents.append(content)
    return contents


async def forged(
    folder: Path, key: Path, monkeypatch: pytest.MonkeyPatch, kind: type, number: int, change: Any
) -> None:
    """Let a signed proof hold a log in which one fact is another."""
    async with ArchiveSource(folder / "log").connect_log() as log:
        stored = await log.read(after=0, limit=10_000)
    recordeds = [one for one in map(decode, stored) if one is not None]
    contents = altered(recordeds, kind, number, change)
    events = [
        msgspec.structs.replace(one, data=content) for one, content in zip(stored, contents, strict=True)
    ]

    async def read(_self: ArchiveLog, *, after: int, limit: int) -> list[Stored]:
        return events[after : after + limit]

    async def tail(_self: ArchiveLog, *, after: int, headers: bool = True) -> Any:
        yield events[after:]

    monkeypatch.setattr(ArchiveLog, "read", read)
    monkeypatch.setattr(ArchiveLog, "tail", tail)
    resigned(folder, key, contents)


async def test_an_altered_update_is_found_when_it_is_drawn(
    copied: Path, made: tuple[Path, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def worse(fact: UpdateApplied) -> UpdateApplied:
        return msgspec.structs.replace(fact, metrics={**fact.metrics, "loss": 7.0})

    await forged(copied, made[0].parent / "key", monkeypatch, UpdateApplied, 5, worse)
    with pytest.raises(
        ProofInvalid, match=r"position \d+ \((update\.applied|batch\.planned)\) is not what its rules give"
    ):
        await checked(copied, made[1], updates=12)


async def test_an_update_that_begins_elsewhere_is_found_without_recomputing(
    copied: Path, made: tuple[Path, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def jumps(fact: UpdateApplied) -> UpdateApplied:
        return msgspec.structs.replace(fact, after="0" * 64)

    await forged(copied, made[0].parent / "key", monkeypatch, UpdateApplied, 5, jumps)
    with pytest.raises(ProofInvalid, match="does not begin where the one before it ended"):
        await checked(copied, made[1], updates=1)


async def test_a_swapped_checkpoint_is_found(
    copied: Path, made: tuple[Path, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The event of the second checkpoint names the blob of the first."""
    async with ArchiveSource(copied / "log").connect_log() as log:
        stored = await log.read(after=0, limit=10_000)
    first = next(one.fact for one in map(decode, stored) if one and isinstance(one.fact, CheckpointSaved))
    assert isinstance(first, CheckpointSaved)

    def swapped(fact: CheckpointSaved) -> CheckpointSaved:
        return msgspec.structs.replace(fact, blob=first.blob)

    await forged(copied, made[0].parent / "key", monkeypatch, CheckpointSaved, 1, swapped)
    with pytest.raises(ProofInvalid, match="is not what its rules give"):
        await checked(copied, made[1], updates=12)


def test_stretches_begin_at_the_checkpoint_before_each_update() -> None:
    seams = [surveying.RecomputationStart(position=one, update=0) for one in (10, 20, 30)]
    found = surveying.leading_to([(25, 25), (22, 22), (5, 5), (31, 40)], seams)
    assert [(one.begin.position, one.until) for one in found] == [(0, 5), (20, 25), (30, 40)]


def test_the_commands_prove_and_check(
    made: tuple[Path, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = shutil.copytree(
        made[0].parent, tmp_path / "home", ignore=shutil.ignore_patterns("broker.json", "proof")
    )
    monkeypatch.setenv("HINDCAST_HOME", str(home))
    out = tmp_path / "out"
    done = CliRunner().invoke(app, ["prove", "proven", "--out", str(out), "--json"])
    assert done.exit_code == 0, done.output
    key = json.loads(done.stdout)["key"]
    assert (home / "secrets" / "proof.key").stat().st_mode & 0o777 == 0o600
    monkeypatch.setenv("HINDCAST_HOME", str(tmp_path / "elsewhere"))
    held = CliRunner().invoke(app, ["check-proof", str(out), "--key", key, "--updates", "2", "--seed", "3"])
    assert held.exit_code == 0, held.output
    assert "follows from its log" in held.output
    assert "with probability" in held.output
    monkeypatch.setenv("HINDCAST_HOME", str(home))
    again = CliRunner().invoke(app, ["prove", "proven", "--out", str(out)])
    assert "is not empty" in str(again.exception)
    absent = CliRunner().invoke(app, ["check-proof", str(tmp_path), "--key", key])
    assert "holds no proof" in str(absent.exception)
