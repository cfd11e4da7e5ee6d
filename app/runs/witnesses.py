"""Witnesses of a run's log outside the log: records of a position and the event there.

A broker that lost the end of a stream hands out the same positions again, and the log does not show it (one flipped bit in
a block file can cause it). Witnesses show it: the read model and attached consumers, which store their position with their
own state, and `witness.json`, where every start and every audit without defects records the end of the log.

    runs/RUN/witness.json    {"start": {position, digest, first_digest}, "audit": {…, rolling}}

An unreadable witness differs from a missing one: a start refuses it, and an audit reports a defect.
"""

from collections.abc import Sequence
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any

from hindcast.app.attach.attachment import AttachmentStatus, consumers_folder
from hindcast.app.attach.store import ConsumerStore
from hindcast.app.runs.runs import RunHandle
from hindcast.app.system.processes import read_json, write_json
from hindcast.core.errors import ForeignLog, HindcastError
from hindcast.core.structs import convert
from hindcast.events.log.port import EventLog
from hindcast.storage.audit.witnesses import Witness
from hindcast.storage.readmodel.fold import read_cursor

FILE = "witness.json"
WHO = {"start": "the last start of the run", "audit": "the last audit without defects"}


class WitnessUnreadable(HindcastError):
    """`witness.json` exists and cannot be read."""


def known_witnesses(handle: RunHandle) -> list[Witness]:
    """Everything in the home that has read the run's log, except databases that do not answer. Blocking.

    Raises:
        WitnessUnreadable: `witness.json` is empty or damaged.

    """
    found = [*_noted(handle.folder), *_read_model(handle), *_attached(handle)]
    return [witness for witness in found if witness.position > 0]


def note(handle: RunHandle, who: str, witness: Witness) -> None:
    """Record what a start or an audit saw. A full disk does not stop the caller; the record is then skipped."""
    path = handle.folder / FILE
    content = read_json(path)
    noted = content if isinstance(content, dict) else {}
    noted[who] = {
        "position": witness.position,
        "digest": witness.digest.hex(),
        "rolling": witness.rolling.hex(),
        "first_digest": witness.first_digest.hex(),
    }
    with suppress(OSError):
        write_json(path, noted)


def forget_noted(handle: RunHandle) -> None:
    """Delete `witness.json`, after the log was restored and may lack events that starts and audits saw."""
    (handle.folder / FILE).unlink(missing_ok=True)


async def require_witnessed(log: EventLog, witnesses: Sequence[Witness], *, folder: Path) -> None:
    """Check that the log still holds what its witnesses have read.

    Raises:
        ForeignLog: it ends earlier, or holds another event at a witness's position.

    """
    last = (await log.identity()).last
    for witness in sorted(witnesses, key=lambda each: each.position, reverse=True):
        if witness.position > last:
            what = (
                f"ends at position {last}, but {witness.name} had read it up to position {witness.position}"
            )
        else:
            stored = await log.read(after=witness.position - 1, limit=1)
            same = bool(stored) and stored[0].position == witness.position
            if same and witness.digest in (b"", sha256(stored[0].data).digest()):
                continue
            what = f"holds another event at position {witness.position} than {witness.name} had read there"
        raise ForeignLog(
            f"the log of run {log.run} {what}: the broker lost events, or its folder was replaced. Nothing was started, because "
            f"new events would get positions that others had. Run: hindcast audit {log.run}    Then restore the "
            f"broker's folder, or hindcast repair {log.run} --from ARCHIVE. To continue without the lost events: hindcast rebuild "
            f"{log.run} --replace, hindcast consumer forget NAME for each that is ahead, and delete {folder / FILE}"
        )


async def witness_of(log: EventLog, position: int) -> Witness:
    """Witness of a start: the log's last event and its first."""
    stored = await log.read(after=position - 1, limit=1)
    identity = await log.identity()
    return Witness(
        name=WHO["start"],
        position=position,
        digest=sha256(stored[0].data).digest() if stored else b"",
        first_digest=identity.first_digest if identity.first == 1 else b"",
    )


def _noted(folder: Path) -> list[Witness]:
    path = folder / FILE
    if not path.exists():
        return []
    content: Any = read_json(path)
    if not isinstance(content, dict) or not content.keys() & WHO.keys():
        raise _unreadable(path, "it is empty, or no JSON object with what a start or an audit noted")
    found = []
    for who in WHO.keys() & content.keys():
        said = content[who]
        try:
            witness = Witness(
                name=WHO[who],
                position=int(said["position"]),
                digest=bytes.fromhex(said["digest"]),
                rolling=bytes.fromhex(said["rolling"]),
                first_digest=bytes.fromhex(said["first_digest"]),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise _unreadable(path, f"what it says under {who!r} is damaged ({error})") from error
        found.append(witness)
    return found


def _unreadable(path: Path, what: str) -> WitnessUnreadable:
    return WitnessUnreadable(
        f"{path} cannot be read: {what}. It records how far the log of run {path.parent.name} went; without it, a lost end of "
        f"the log may stay unnoticed. Run: hindcast audit {path.parent.name}    If the audit finds nothing else, "
        f"delete the file: the next start writes it again"
    )


def _read_model(handle: RunHandle) -> list[Witness]:
    """Witness of the read model. Its rolling digest omits events that its Hindcast did not know, so it is left out."""
    try:
        model = handle.read_model()
        try:
            with model.reading() as connection:
                cursor = read_cursor(connection)
        finally:
            model.close()
    except HindcastError:
        return []
    if cursor is None:
        return []
    return [
        Witness(
            name="the read model",
            position=cursor.last_position,
            digest=bytes.fromhex(cursor.last_digest),
            first_digest=bytes.fromhex(cursor.first_digest),
        )
    ]


def _attached(handle: RunHandle) -> list[Witness]:
    found = []
    for url in sorted({word.store for word in _words(handle)}):
        with suppress(HindcastError):
            store = ConsumerStore(url)
            try:
                standings = store.standings(handle.name)
            finally:
                store.close()
            found += [
                Witness(
                    name=f"the consumer {standing.name}",
                    position=standing.last_position,
                    digest=standing.last_digest,
                    first_digest=standing.first_digest,
                )
                for standing in standings
            ]
    return found


def _words(handle: RunHandle) -> list[AttachmentStatus]:
    contents = (read_json(path) for path in consumers_folder(handle.folder).glob("*.json"))
    return [convert(content, AttachmentStatus) for content in contents if content is not None]
