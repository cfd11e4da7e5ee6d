"""MiniWoB++ as a site: pages from disk, started with the task's seed, asked for their reward.

The pages keep their whole state in themselves and start a new problem in place. So a window that served the same family
before only starts again. It loads the page for another family, and for pages that keep something of the last problem
(`MiniwobFamily.reload`). The procedure is that of the package's own environment.
"""

from pathlib import Path
from typing import Any

import miniwob
from playwright.async_api import Page as BrowserPage

from hindcast.actors.environments.base import Site, SiteTraits
from hindcast.actors.environments.miniwob.families import FAMILIES, why_not
from hindcast.actors.environments.snapshot import plain_address
from hindcast.core.domain.task import Task
from hindcast.core.errors import EnvironmentFailed

_FOLDER = Path(miniwob.__file__).parent / "html"
_SCRIPTS = Path(__file__).parent


class MiniwobSite(Site):
    """The `Site` of MiniWoB++."""

    name = "miniwob"

    def __init__(self) -> None:
        self.traits = SiteTraits(
            reusable=True,
            viewport=(400, 400),
            ended="window.WOB_DONE_GLOBAL",
            init_script=(_SCRIPTS / "prepare.js").read_text(encoding="utf-8"),
        )
        self._begin = (_SCRIPTS / "begin.js").read_text(encoding="utf-8")

    def origins(self, task: Task) -> tuple[str, ...]:
        """The folder of the package's pages."""
        return (_FOLDER.as_uri(),)

    async def enter(self, page: BrowserPage, task: Task) -> str:
        """Load the family's page unless it is there already, and start the problem of the seed."""
        family = FAMILIES.get(task.family)
        if family is None:
            raise EnvironmentFailed(why_not(task.family))
        address = (_FOLDER / "miniwob" / f"{task.family}.html").as_uri()
        if family.reload or page.url.split("#")[0] != address:
            await page.goto(address, wait_until="load")
        instruction = await page.evaluate(self._begin, task.seed)
        if not isinstance(instruction, str) or not instruction:
            raise EnvironmentFailed(f"{plain_address(address)} started without an instruction.")
        return instruction

    async def probe(self, page: BrowserPage, task: Task) -> dict[str, Any]:
        """Raw reward (without the time penalty), whether the problem is done, and the page's reason."""
        page_state = await page.evaluate(
            "() => ({ raw_reward: window.WOB_RAW_REWARD_GLOBAL, done: window.WOB_DONE_GLOBAL, "
            "reason: window.WOB_REWARD_REASON })"
        )
        return {
            "raw_reward": float(page_state.get("raw_reward") or 0),
            "done": bool(page_state.get("done")),
            "reason": str(page_state.get("reason") or ""),
        }
