"""A learner or a verification as a process of its own: `python learner_process.py ROLE HOME URL RUN BLOBS POLICY
[UPDATES]`."""

import asyncio
import sys
from pathlib import Path

import msgspec

from hindcast.core.settings.schema import LogSettings
from hindcast.events.jetstream.connection import connect
from hindcast.events.jetstream.stream_log import JetStreamLog
from hindcast.events.log.publisher import Publisher
from hindcast.learner.loop import run_learner
from hindcast.learner.verify.verify import verify
from hindcast.storage.blobs.store import BlobStore

SETTINGS = LogSettings(linger_ms=1)


async def work(
    role: str, home: Path, url: str, run: str, blobs: BlobStore, policy: Path, updates: int
) -> msgspec.Struct:
    """Do the role's work; its report goes to standard output."""
    connection = await connect(url, role=role, home=home, timeout_s=20)
    try:
        log = await JetStreamLog.open(connection, run, SETTINGS)
        if role == "reader":
            return await verify(log, blobs, policy=policy, code_rev="test")
        async with Publisher(log, producer="learner.1", code_rev="test", settings=SETTINGS) as publisher:
            return await run_learner(log, blobs, publisher=publisher, policy=policy, until_updates=updates)
    finally:
        await connection.close()


if __name__ == "__main__":
    role_, home_, url_, run_, blobs_, policy_, *goal = sys.argv[1:]
    report = asyncio.run(
        work(
            role_,
            Path(home_),
            url_,
            run_,
            BlobStore(Path(blobs_)),
            Path(policy_),
            int(goal[0]) if goal else 0,
        )
    )
    sys.stdout.write(msgspec.json.encode(report).decode())
