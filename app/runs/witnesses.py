"""What a home knows of a run's log besides the log: how far it went, and what stood there.

A broker that lost the end of a stream gives the same positions out again, and nothing in the log shows it (one flipped
bit in a block file can do it). These can tell: the read model and attached consumers, which note with their own state how
far they have read, and `witness.json`, where every start and every audit without defects leaves what it saw.

    runs/RUN/witness.json    {"start": {position, digest, first_digest}, "audit": {…, rolling}}

One that is there and cannot be read is no witness that is not there: a start refuses, and an audit has a defect.
"""

from collections.abc import Sequence
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec

from hindcast.app.attach.attachment import AttachmentStatus, consumers_folder
from hindcast.app.attach.store import ConsumerStore
from hindcast.app.runs.runs import RunHandle
from hindcast.app.system.processes import read_json, write_json
from hindcast.core.errors import ForeignLog, HindcastError
from hindcast.events.log.port import EventLog
from hindcast.storage.audit.witnesses import Witness
from hindcast.storage.readmodel.fold import read_cursor

FILE = "witness.json"
WHO = {"start": "the last start of the run", "audit": "the last audit without defects"}


class WitnessUnreadable(HindcastError):
    """What starts and audits noted of the log is there and cannot be read."""


def known_witnesses(handle: RunHandle) -> list[Witness]:
    """Everybody of the home who has read the run's log; a database that does not answer is left out. Blocking.

    Raises:
        WitnessUnreadable: `witness.json` is empty or damaged.

    """
    found = [*_noted(handle.folder), *_read_model(handle), *_attached(handle)]
    return [witness for witness in found if witness.position > 0]


def note(handle: RunHandle, who: str, witness: Witness) -> None:
    """Write down what a start or an audit saw. A full disk keeps nobody from work: then it stays unsaid."""
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
    """Drop what starts and audits noted: the log was made anew, and may lack events that they saw."""
    (handle.folder / FILE).unlink(missing_ok=True)


async def require_witnessed(log: EventLog, witnesses: Sequence[Witness], *, folder: Path) -> None:
    """Assert that the log still holds what others have read of it.

    Raises:
        ForeignLog: it goes less far, or holds another event there.

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
            f"the log of run {log.run} {what}: the broker lost events, or its folder was replaced. Nothing was begun, since "
            f"new events would be given positions that others had. Run: hindcast audit {log.run}    Then restore the "
            f"broker's folder, or hindcast repair {log.run} --from ARCHIVE. To go on without what is lost: hindcast rebuild "
            f"{log.run} --replace, hindcast consumer forget NAME for each that is ahead, and delete {folder / FILE}"
        )


async def witness_of(log: EventLog, position: int) -> Witness:
    """What a start sees: the event at the log's end, and its first."""
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
        f"{path} cannot be read: {what}. It says how far the log of run {path.parent.name} went; without it nobody may notice "
        f"that the broker lost the log's end. Run: hindcast audit {path.parent.name}    If the rest of it is as it should be, "
        f"delete the file: the next start writes it again"
    )


def _read_model(handle: RunHandle) -> list[Witness]:
    """Its rolling digest leaves out what its Hindcast did not know, so that it is no witness of that."""
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
    return [msgspec.convert(content, AttachmentStatus) for content in contents if content is not None]
