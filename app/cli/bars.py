"""Progress bars of slow commands, on standard error and only on a terminal."""

import sys
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any, cast

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from hindcast.events.envelope import Stored
from hindcast.events.log.port import EventLog


def progress_bar(*, shown: bool = True) -> Progress:
    """A progress bar for `with`, removed when the block ends. Without a terminal it shows nothing."""
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        disable=not shown or not sys.stderr.isatty(),
        transient=True,
    )


class MeteredLog:
    """Wraps a log and shows on a bar how far it has been read."""

    def __init__(self, log: EventLog, bar: Progress, description: str) -> None:
        self._log = log
        self._bar = bar
        self._description = description

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)

    async def tail(self, *, after: int, headers: bool = True) -> AsyncGenerator[list[Stored], None]:
        """See `EventLog.tail`."""
        last = (await self._log.identity()).last
        reading = self._bar.add_task(self._description, total=last, completed=after)
        async with aclosing(self._log.tail(after=after, headers=headers)) as batches:
            async for batch in batches:
                yield batch
                self._bar.update(reading, completed=min(batch[-1].position, last))


def watched(log: EventLog, bar: Progress, description: str) -> EventLog:
    """Wrap a log so that each pass over it shows a bar."""
    return cast(EventLog, MeteredLog(log, bar, description))
