"""A person who demonstrates in the browser: their acts become actions on numbered elements.

    page ── person.js intercepts and reports acts ──> acts ── Person.next ──> action ──> the world executes it

No act takes effect by itself, except the browser's own buttons and the address bar. So the page sees exactly the
recorded action, and a replay does the same. The exceptions are recorded afterwards, from the tab's history.

It waits for the person, as long as the caller lets it, and for the page, with a limit on every evaluation.
"""

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec
from playwright.async_api import Error as PlaywrightError
from playwright.async_api import Page as BrowserPage

from hindcast.actors.environments.base import EpisodeWorld, ResetResult, Site, StepOutcome, WindowImage
from hindcast.actors.environments.snapshot import page_digest, script_beside, take_snapshot
from hindcast.actors.environments.window import Window
from hindcast.actors.environments.world import Windows
from hindcast.core.domain.action import Action, ParseFailure
from hindcast.core.domain.evidence import Evidence
from hindcast.core.domain.observation import Observation
from hindcast.core.domain.task import Task
from hindcast.core.errors import EnvironmentFailed, HindcastError

BINDING = "hindcastPerson"
POLL_S = 0.1
"""How often the tab is checked while the person does nothing that pages report."""
ASK_S = 10.0
"""Time limit of one evaluation in the page."""
_PERSON = 'window[Symbol.for("hindcast.person")]'
_ID_JS = f"(place) => {_PERSON} ? {_PERSON}.idOf(place) : -1"
_SCROLLS_JS = f"(down) => {_PERSON} ? {_PERSON}.scrolls(down) : false"
_OPEN_JS = f"() => {{ if ({_PERSON}) {_PERSON}.open = true; }}"
_CLOSE_JS = f"() => {{ if ({_PERSON}) {_PERSON}.close(); }}"
_FLUSH_JS = f"() => {_PERSON} ? {_PERSON}.flush() : 0"


class RecordingStopped(HindcastError):
    """The recording cannot continue, and nothing of it is kept."""


class RecordedAct(msgspec.Struct, frozen=True, kw_only=True):
    """An act reported by a page."""

    kind: str
    """`click`, `type`, `password`, `select`, `press`, `scroll`."""
    page: BrowserPage
    place: int
    """The page's key of the element; 0: the act concerns none."""
    text: str = ""
    enter: bool = False
    """Whether Enter followed the typed text."""


class WatchedWindows(Windows):
    """Passes windows on and remembers the one in use."""

    def __init__(self, windows: Windows) -> None:
        self._windows = windows
        self.window: Window | None = None

    async def acquire(self, site: Site, task: Task) -> Window:
        """See `Windows`."""
        self.window = await self._windows.acquire(site, task)
        return self.window

    async def release(self, window: Window) -> None:
        """See `Windows`."""
        window.spoiled = "a person was heard in it"
        await self._windows.release(window)

    async def discard(self, window: Window) -> None:
        """See `Windows`."""
        await self._windows.discard(window)


class Person:
    """The person in the window. Call `begin` at the start page, then `next` for each step."""

    def __init__(self, watched: WatchedWindows, *, notify: Callable[[str], None]) -> None:
        """`notify` gets messages for the person: what was recorded, and what could not be."""
        self._watched = watched
        self._notify = notify
        self._acts: asyncio.Queue[RecordedAct] = asyncio.Queue()
        self._ending: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()
        self._waiting: list[RecordedAct] = []
        """Taken from the queue, to be examined again."""
        self._history = 0
        self._navigations = 0
        self.did_it = False
        """Whether the last returned action has already taken effect."""
        self.heard = 0
        """Acts that pages have reported so far."""
        self._act_reported = asyncio.Event()
        self.idle = asyncio.Event()
        """Set while no act waits to be examined or executed."""

    @property
    def window(self) -> Window:
        """The window in use."""
        assert self._watched.window is not None
        return self._watched.window

    async def begin(self) -> None:
        """Intercept the person's acts from now on, in every page of the window."""
        heard = script_beside(__file__, "person.js")
        context = self.window.context
        await context.expose_binding(BINDING, self._record_act)
        await context.add_init_script(heard)
        await self.window.tab.page.evaluate(f"() => {{ {heard} }}")
        await self.settle()

    def end(self, answer: str | None) -> None:
        """End the recording, with an answer if the task asks for one."""
        if not self._ending.done():
            self._ending.set_result(answer)

    async def has_told(self, acts: int) -> None:
        """Wait until pages have reported `acts` acts. The caller bounds the wait."""
        while self.heard < acts:
            self._act_reported.clear()
            await self._act_reported.wait()

    def drop(self, reason: str) -> None:
        """Give up the recording: `next` raises RecordingStopped."""
        if not self._ending.done():
            self._ending.set_exception(RecordingStopped(reason))

    async def settle(self) -> None:
        """Note the tab's position in its history: later differences are the person's acts."""
        self._history = await self._history_index()
        self._navigations = self.window.tab.navigations

    async def let_pass(self) -> None:
        """Intercept nothing in the pages, until `hold_back`."""
        await self._in_every_page(_OPEN_JS)

    async def hold_back(self) -> None:
        """Intercept the person's acts again."""
        await self._in_every_page(_CLOSE_JS)

    async def _in_every_page(self, script: str) -> None:
        for tab in self.window.tabs:
            try:
                async with asyncio.timeout(ASK_S):
                    await tab.page.evaluate(script)
            except (PlaywrightError, TimeoutError):
                continue  # its document went away, and the next one intercepts by itself

    async def next(self, observation: Observation) -> Action:
        """The person's next action on the observation.

        Raises:
            RecordingStopped: they gave up, closed the window, or typed a password.
        """
        while True:
            self.did_it = False
            act = self._waiting.pop() if self._waiting else await self._hear()
            if act is None:
                if self._ending.done() and self._ending.exception() is not None:
                    self._ending.result()
                if (action := await self._browsed()) is not None:
                    self.did_it = True
                    return self._announce(action)
                if self._ending.done() and not await self._left_in_fields():
                    return self._announce(Action(name="exit", argument=self._ending.result()))
                continue
            action = await self._action(act, observation)
            if action is not None:
                return self._announce(action)

    async def _hear(self) -> RecordedAct | None:
        """The next act; None: examine something else."""
        if not self.window.tabs:
            raise RecordingStopped("the window was closed before the recording was ended; nothing is kept")
        self.idle.set()
        try:
            async with asyncio.timeout(POLL_S):
                act = await self._acts.get()
        except TimeoutError:
            return None
        self.idle.clear()
        return act

    async def _left_in_fields(self) -> bool:
        """Whether acts remain to be examined before the end: text typed but not yet reported."""
        if not self._acts.empty():
            return True
        reported = self.heard
        try:
            async with asyncio.timeout(ASK_S):
                reported += int(await self.window.tab.page.evaluate(_FLUSH_JS))
                await self.has_told(reported)  # reported on another channel than the answer to the evaluation
        except (PlaywrightError, TimeoutError):
            return True  # its document is going away: check again once the next one is there
        return not self._acts.empty()

    def _record_act(self, source: dict[str, Any], report: dict[str, Any]) -> None:
        self.heard += 1
        self._act_reported.set()
        self.idle.clear()
        self._acts.put_nowait(
            RecordedAct(
                kind=str(report.get("kind", "")),
                page=source["page"],
                place=int(report.get("place", 0)),
                text=str(report.get("text", "")),
                enter=bool(report.get("enter", False)),
            )
        )

    async def _action(self, act: RecordedAct, observation: Observation) -> Action | None:
        if act.kind == "password":
            raise RecordingStopped(
                "a password was typed, and recordings are kept: nothing is. Log in beforehand: hindcast login, or login steps "
                "in a task file"
            )
        pages = [tab.page for tab in self.window.tabs]
        if act.page not in pages:
            return None
        if act.page is not self.window.tab.page:
            self._waiting.append(act)
            return Action(name="Tab_focus", argument=str(pages.index(act.page)))
        if act.kind == "scroll":
            down = act.text == "down"
            if not await self._ask(act, _SCROLLS_JS, down):
                return None
            return Action(name="Scroll Down" if down else "Scroll Up")
        if not act.place:
            return Action(name="Press", argument=act.text)
        element = await self._number(act)
        if element > 0:
            return _on_element(act, element)
        snapshot = await take_snapshot(act.page, outline=observation.page.outline is not msgspec.UNSET)
        if await self._number(act) > 0:
            # the element appeared after the observation: an agent would have had to wait for it
            self._waiting.append(act)
            return Action(name="Wait")
        self._notify("that cannot be acted upon by number, and was not taken down")
        changed = snapshot.page is not None and page_digest(snapshot.page) != observation.digest
        return Action(name="Wait") if changed else None

    async def _number(self, act: RecordedAct) -> int:
        return int(await self._ask(act, _ID_JS, act.place) or 0)

    async def _ask(self, act: RecordedAct, script: str, about: Any) -> Any:
        """Evaluate in the page of an act; None where its document is gone."""
        try:
            async with asyncio.timeout(ASK_S):
                return await act.page.evaluate(script, about)
        except (PlaywrightError, TimeoutError):
            return None

    async def _browsed(self) -> Action | None:
        """What the browser's own buttons or the address bar did since the last step."""
        window = self.window
        if not window.tabs or window.tab.navigations == self._navigations:
            return None
        self._navigations = window.tab.navigations
        index = await self._history_index()
        previous_index, self._history = self._history, index
        if index < previous_index:
            return Action(name="Go_backward")
        return Action(name="Goto", argument=window.tab.page.url)

    async def _history_index(self) -> int:
        """Index of the active tab's current entry in its history."""
        devtools = await self.window.context.new_cdp_session(self.window.tab.page)
        try:
            history = await devtools.send("Page.getNavigationHistory")
            return int(history["currentIndex"])
        finally:
            await devtools.detach()

    def _announce(self, action: Action) -> Action:
        words = (
            action.name,
            f"[{action.element}]" if action.element is not None else "",
            action.argument or "",
        )
        self._notify(" ".join(word for word in words if word))
        return action


def _on_element(act: RecordedAct, element: int) -> Action:
    match act.kind:
        case "click":
            return Action(name="Click", element=element)
        case "type":
            return Action(name="Search" if act.enter else "Type", element=element, argument=act.text)
        case "select":
            return Action(name="Select Dropdown Option", element=element, argument=act.text)
        case "press":
            return Action(name="Press", element=element, argument=act.text)
    raise EnvironmentFailed(f"a page reported {act.kind!r}, which is no known act")


class PersonWorld:
    """An `EpisodeWorld` in which a person acts: acts that already took effect are only observed."""

    def __init__(self, world: EpisodeWorld, person: Person) -> None:
        self._world = world
        self._person = person

    async def reset(self, task: Task) -> ResetResult:
        """See `EpisodeWorld`."""
        start = await self._world.reset(task)
        await self._person.begin()
        return start

    async def step(self, action: Action | ParseFailure) -> StepOutcome:
        """Execute the person's action, or observe the effect of one that they did."""
        if self._person.did_it:
            observed = await self._world.step(ParseFailure(reason="the person has done it"))
            outcome = msgspec.structs.replace(observed, result="ok", detail="")
        else:
            await self._person.let_pass()
            outcome = await self._world.step(action)
            await self._person.hold_back()
        await self._person.settle()
        return outcome

    async def picture(self) -> WindowImage:
        """See `EpisodeWorld`."""
        return await self._world.picture()

    async def finish(self, answer: str | None) -> Evidence:
        """See `EpisodeWorld`."""
        return await self._world.finish(answer)

    async def close(self) -> None:
        """See `EpisodeWorld`."""
        await self._world.close()
