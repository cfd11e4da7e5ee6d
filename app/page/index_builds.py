"""Builds indexes of pages in the background of the page's server, one at a time for each run."""

import asyncio
from contextlib import aclosing
from typing import NamedTuple

from hindcast.app.runs.runs import RunHandle
from hindcast.core.errors import HindcastError
from hindcast.storage.page_index import PageIndex


class IndexBuild(NamedTuple):
    """How far the server is with a run's index."""

    position: int
    """Position reached by the build."""
    running: bool
    failure: str
    """Why the last build ended early; empty: it did not."""


IDLE = IndexBuild(0, False, "")


class IndexBuilds:
    """The builds that visitors have asked for. A stopped server continues none; the next request does."""

    def __init__(self) -> None:
        self._states: dict[str, IndexBuild] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def state(self, run: str) -> IndexBuild:
        """State of a run's build."""
        return self._states.get(run, IDLE)

    def start(self, run: RunHandle) -> None:
        """Build the run's index, or bring it up to date, unless that is under way."""
        if not self.state(run.name).running:
            self._states[run.name] = IndexBuild(0, True, "")
            self._tasks[run.name] = asyncio.create_task(self._build(run))

    async def delete(self, run: RunHandle) -> None:
        """Stop a build and delete the run's index."""
        task = self._tasks.pop(run.name, None)
        if task is not None:
            task.cancel()
            await asyncio.wait((task,))
        self._states.pop(run.name, None)
        await asyncio.to_thread(PageIndex(run.folder).delete)

    async def _build(self, run: RunHandle) -> None:
        failure = ""
        try:
            async with (
                run.connect_log() as log,
                aclosing(PageIndex(run.folder).extend(log, run.blobs)) as positions,
            ):
                async for position in positions:
                    self._states[run.name] = IndexBuild(position, True, "")
        except (HindcastError, OSError) as error:
            failure = str(error)
        finally:
            self._states[run.name] = IndexBuild(self.state(run.name).position, False, failure)
