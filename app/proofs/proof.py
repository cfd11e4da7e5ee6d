"""What a proof says, how it is written, and how a stranger checks it.

    FOLDER/log/           the run's archive: every event, and the blobs that its updates need
    FOLDER/policy/        the policy as a model folder
    FOLDER/proof.json     root of the hash tree over the events, digests of the policy's files, settings, machine
    FOLDER/proof.sig      the signature of that file

The check reads everything once and recomputes some updates. What it shows: these weights follow from this log by these rules.
What it does not show: that the log's episodes took place.
"""

import random
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from hashlib import sha256
from math import comb
from pathlib import Path
from typing import Any

import msgspec

from hindcast.app.exports.policy_folder import find_version, write_policy_folder
from hindcast.app.proofs.signature import ProofInvalid, private_key, public_hex, require_signed
from hindcast.app.runs.archive import archive_source
from hindcast.app.runs.archive_source import ArchiveSource
from hindcast.app.runs.sources import Source
from hindcast.core.errors import SettingsError
from hindcast.core.hash_tree import leaf_of, root_of
from hindcast.core.models.folders import policy_folder
from hindcast.core.rl.combined_state import POLICY
from hindcast.core.structs import decode_json
from hindcast.events.archive.manifest import is_archive
from hindcast.events.catalogue import UpdateApplied, UpdateSkipped, WeightsPublished
from hindcast.events.catalogue.run import Fingerprint
from hindcast.events.envelope import Recorded
from hindcast.events.log.port import EventLog
from hindcast.events.log.reader import skim
from hindcast.learner.numerics import differences, fingerprint_of
from hindcast.learner.verify.machines import MachineHistory
from hindcast.learner.verify.verify import VerifyReport, verify

PROOF, SIGNATURE, LOG, POLICY_FOLDER = "proof.json", "proof.sig", "log", "policy"
EVENTS_AT_ONCE = 500


class Proof(msgspec.Struct, frozen=True, kw_only=True):
    """What is signed."""

    format: int = 1
    run: str
    recipe: str
    events: int
    """Number of events; positions 1 to `events`."""
    root: str
    """Root of the hash tree over their stored bytes (`core.hash_tree`)."""
    version: int
    """Policy version in the folder `policy`."""
    weights: str
    """SHA-256 of its published weights, as the log has it."""
    policy: dict[str, str]
    """SHA-256 of the files of the folder `policy`."""
    settings: dict[str, Any]
    machine: Fingerprint
    """Where the updates were computed last."""
    code_rev: str
    key: str
    """Public key of who signed, 64 hexadecimal characters. A stranger gets it on another way."""


class Checked(msgspec.Struct, frozen=True, kw_only=True):
    """Result of a check that found nothing wrong."""

    run: str
    version: int
    events: int
    updates: int
    """Updates of the run."""
    drawn: tuple[int, ...]
    """Updates that were drawn, by their place in the log from 1 on, and the last one."""
    recomputed: int
    """Updates recomputed: those drawn, and those since the checkpoints before them."""
    machine_differs: tuple[str, ...]
    """In what this machine differs from the recorded one; not empty: compared within the tolerance only."""
    tolerance: float | None
    chances: dict[int, float]
    """Number of altered updates -> probability that this check would have met one. Empty on another machine."""


async def prove(
    source: Source,
    folder: Path,
    *,
    key: Path,
    version: str = "last",
    on_event: Callable[[int, int | None], None] = lambda _done, _all: None,
    on_blob: Callable[[int], None] = lambda _count: None,
) -> Proof:
    """Write and sign the proof of a policy version into a new folder.

    Raises:
        SettingsError: the folder exists, the key is none, or blobs of the run are missing.
        ExportRefused: there is no such version.
    """
    if folder.exists() and any(folder.iterdir()):
        raise SettingsError(f"{folder} exists and is not empty: name a new folder with --out")
    signing = private_key(key)
    found = await find_version(source, version)
    report = await archive_source(
        source, folder / LOG, follow=False, pages=False, on_event=on_event, on_blob=on_blob
    )
    if report.missing:
        raise SettingsError(
            f"{len(report.missing)} blobs that the log of {source.name} names are missing: a stranger could not recompute it. "
            f"Run: hindcast audit {source.name}"
        )
    write_policy_folder(found, folder / POLICY_FOLDER)
    archived = ArchiveSource(folder / LOG)
    async with archived.connect_log() as log:
        count, root = await _digest(log)
        machine = (await _machines(log, until=count))[-1]
    proof = Proof(
        run=source.name,
        recipe=found.recipe,
        events=count,
        root=root,
        version=found.version,
        weights=found.sha256,
        policy=_digests(folder / POLICY_FOLDER),
        settings=found.settings.model_dump(mode="json"),
        machine=machine,
        code_rev=source.code_rev,
        key=public_hex(signing),
    )
    content = msgspec.json.format(msgspec.json.encode(proof, order="sorted"), indent=1)
    (folder / PROOF).write_bytes(content)
    (folder / SIGNATURE).write_text(f"{signing.sign(content).hex()}\n")
    return proof


async def check_proof(
    folder: Path,
    *,
    public: str,
    updates: int,
    seed: int | None = None,
    tolerance: float = 1e-4,
    progress: Callable[[int, int], None] = lambda _done, _all: None,
) -> Checked:
    """Check signature, policy files and log, and recompute `updates` of the run's updates, drawn at random, and its last.

    `tolerance` holds on another machine than the recorded one, whose last bits differ.

    Raises:
        ProofInvalid: a part does not hold; the message says which.
        SettingsError: the folder holds no proof, or the key is none.
    """
    proof = _read(folder, public)
    _require_files(folder / POLICY_FOLDER, proof)
    source = ArchiveSource(folder / LOG)
    async with source.connect_log() as log:
        count, root = await _digest(log)
        if count != proof.events:
            raise ProofInvalid(
                f"the log has {count} events, and {proof.events} were signed: it was cut or continued"
            )
        if root != proof.root:
            raise ProofInvalid(
                f"the root over the log's {count} events is {root[:16]}…, and {proof.root[:16]}… was signed"
            )
        places = await _updates(log)
        published = await _require_weights(log, proof)
        drawn = sorted(
            {*random.Random(seed).sample(range(len(places)), min(updates, len(places))), len(places) - 1}
        )
        here = fingerprint_of(source.settings.learner)
        apart = tuple(
            dict.fromkeys(
                difference
                for machine in await _machines(log, until=count)
                for difference in differences(machine, here)
            )
        )
        report = await verify(
            log,
            source.blobs,
            policy=policy_folder(source.settings.policy.base),
            code_rev=source.code_rev,
            tolerance=tolerance if apart else None,
            only=[(places[index], places[index]) for index in drawn[:-1]]
            + [(places[-1], max(places[-1], published))],
            progress=progress,
        )
    _require_recomputed(report)
    others = len(drawn) - (len(places) - 1 in drawn)
    return Checked(
        run=proof.run,
        version=proof.version,
        events=count,
        updates=len(places),
        drawn=tuple(index + 1 for index in drawn),
        recomputed=report.updates,
        machine_differs=apart,
        tolerance=report.tolerance,
        chances={} if apart else chances(len(places) - 1, others),
    )


def chances(updates: int, drawn: int) -> dict[int, float]:
    """Probability of meeting one of k altered updates among n when m are drawn: 1 - C(n - k, m) / C(n, m)."""
    altered = sorted({1, max(1, updates // 100), max(1, updates // 10)})
    return {k: 1 - comb(updates - k, drawn) / comb(updates, drawn) for k in altered if k <= updates}


def _read(folder: Path, public: str) -> Proof:
    try:
        content, signed = (folder / PROOF).read_bytes(), (folder / SIGNATURE).read_text()
    except OSError as error:
        raise SettingsError(f"{folder} holds no proof: {error.filename}: {error.strerror}") from error
    if not is_archive(folder / LOG):
        raise SettingsError(f"{folder} holds no proof: {folder / LOG} is no archive")
    try:
        signature = bytes.fromhex(signed.strip())
    except ValueError as error:
        raise ProofInvalid(f"{folder / SIGNATURE} is no signature: {error}") from error
    require_signed(content, signature, public=public)
    try:
        return decode_json(content, Proof)
    except msgspec.DecodeError as error:
        raise ProofInvalid(f"{folder / PROOF} is no proof that this Hindcast reads: {error}") from error


def _require_files(folder: Path, proof: Proof) -> None:
    found = _digests(folder)
    for name in sorted(found.keys() | proof.policy.keys()):
        if found.get(name) != proof.policy.get(name):
            state = (
                "is not there"
                if name not in found
                else "was not signed"
                if name not in proof.policy
                else "was altered"
            )
            raise ProofInvalid(f"the policy's file {name} {state}")


async def _require_weights(log: EventLog, proof: Proof) -> int:
    """Position at which the log publishes the weights that were signed."""
    async with aclosing(skim(log, family="learner", until=proof.events)) as recordeds:
        async for recorded in recordeds:
            fact = recorded.fact
            if isinstance(fact, WeightsPublished) and fact.model == POLICY and fact.version == proof.version:
                if fact.weights.sha256 != proof.weights:
                    raise ProofInvalid(
                        f"the log publishes version {proof.version} with other weights than were signed"
                    )
                return recorded.position
    raise ProofInvalid(f"the log publishes no version {proof.version}, which was signed")


def _require_recomputed(report: VerifyReport) -> None:
    if report.first_divergence is not None:
        found = report.first_divergence
        raise ProofInvalid(
            f"position {found.position} ({found.event}) is not what its rules give: expected {found.expected}, found {found.found}"
        )


async def _updates(log: EventLog) -> list[int]:
    """Positions of the updates. Raises ProofInvalid where one does not begin with the state that the one before it left."""
    places: list[int] = []
    reached: dict[str, str] = {}
    async with aclosing(skim(log, family="learner", until=(await log.identity()).last)) as recordeds:
        async for recorded in recordeds:
            fact = recorded.fact
            if not isinstance(fact, UpdateApplied | UpdateSkipped):
                continue
            before, after = (
                (fact.before, fact.after) if isinstance(fact, UpdateApplied) else (fact.state, fact.state)
            )
            if reached.get(fact.model, before) != before:
                raise ProofInvalid(
                    f"the update at position {recorded.position} does not begin where the one before it ended"
                )
            reached[fact.model] = after
            places.append(recorded.position)
    if not places:
        raise ProofInvalid("the log holds no update")
    return places


async def _digest(log: EventLog) -> tuple[int, str]:
    """Number of events, and root of their hash tree."""
    leaves = [leaf_of(content) async for content in _contents(log)]
    return len(leaves), root_of(leaves).hex()


async def _machines(log: EventLog, *, until: int) -> list[Fingerprint]:
    """The machines that the learner's updates were computed on, in order; without an update the one that the run began on."""
    facts: list[Recorded] = []
    for family in ("run", "learner"):
        async with aclosing(skim(log, family=family, until=until)) as recordeds:
            facts += [recorded async for recorded in recordeds]
    history = MachineHistory()
    for recorded in sorted(facts, key=lambda recorded: recorded.position):
        history.take(recorded.position, recorded.fact)
    if history.machine is None:
        raise ProofInvalid("the log does not begin with run.started")
    return [part.machine for part in history.ranges()] or [history.machine]


async def _contents(log: EventLog) -> AsyncIterator[bytes]:
    position = 0
    while found := await log.read(after=position, limit=EVENTS_AT_ONCE):
        for stored in found:
            if stored.position != position + 1:
                raise ProofInvalid(f"the log lacks position {position + 1}")
            position = stored.position
            yield stored.data


def _digests(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }
