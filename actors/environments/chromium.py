"""One Chromium with its own Playwright driver: found, started, measured, closed, or killed by process group.

Driver and browser run in their own sessions, so that a signal to our process group reaches us first. When our process
dies, their pipes close and they end by themselves. Their files (profile, artifacts) are in a scratch folder. A killed
browser leaves them, and the next start removes them (`core.scratch`).
"""

import asyncio
import os
import shlex
import shutil
import signal
import sys
from collections.abc import Awaitable, Iterator
from contextlib import AsyncExitStack, contextmanager, suppress
from pathlib import Path
from uuid import uuid4

import playwright
import psutil
import structlog
from playwright.async_api import Browser, BrowserContext, Playwright, async_playwright
from playwright.async_api import Error as PlaywrightError

from hindcast.actors.environments.navigation import DIRECT, bypass_list
from hindcast.actors.environments.proxy import FilteringProxy
from hindcast.core.errors import BrowserUnavailable
from hindcast.core.scratch import remove_abandoned, scratch_folder

LAUNCH_TIMEOUT_S = 60.0
"""Time limit for starting driver and browser; a loaded machine with a cold disk takes 20 s."""
CLOSE_TIMEOUT_S = 5.0
"""Time limit for closing a context or a browser before it is killed."""

COMMANDS = (
    "chromium-headless-shell",
    "chromium",
    "chromium-browser",
    "google-chrome",
    "google-chrome-stable",
)
"""Searched on PATH, in this order. The headless shell manages no windows: a fresh context costs it about 100 ms of CPU
where full Chromium needs 600.
"""

FLAGS = (
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    # the proxy resolves names; without this a prefetched name would still be resolved
    f"--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE {DIRECT}",
    # a proxy handles TCP alone: datagrams that would bypass it are not sent
    "--force-webrtc-ip-handling-policy=disable_non_proxied_udp",
)

_log = structlog.get_logger(__name__)


def find_browser(configured: str, *, headed: bool = False) -> str | None:
    """Path of the browser to start, or None for Playwright's own; `headed`: one that has windows.

    Raises BrowserUnavailable for a wrong setting.
    """
    if configured:
        if not (Path(configured).is_file() and os.access(configured, os.X_OK)):
            raise BrowserUnavailable(
                f"actors.browser_path is {configured!r}, which is no executable file. "
                "Set it to a Chromium, or leave it empty to search the path."
            )
        return configured
    names = [name for name in COMMANDS if not (headed and name.endswith("headless-shell"))]
    return next((path for name in names if (path := shutil.which(name))), None)


class Chromium:
    """A running browser. `start` makes one; `close` or `kill` ends it."""

    def __init__(self, driver: Playwright, browser: Browser, resources: AsyncExitStack, token: str) -> None:
        self._driver = driver
        self.browser = browser
        self._resources = resources
        self._leaders = _group_leaders(token)
        self._proxies: set[FilteringProxy] = set()
        self._killed = False
        self.episodes = 0
        """Episodes begun since the start; the host counts them."""

    @classmethod
    async def start(cls, configured_path: str, *, headed: bool = False) -> "Chromium":
        """Start driver and browser; `headed`: in a window. Raises BrowserUnavailable, which says what to install."""
        path = find_browser(configured_path, headed=headed)
        token = f"--hindcast-browser={uuid4().hex}"
        resources = AsyncExitStack()
        try:
            async with asyncio.timeout(LAUNCH_TIMEOUT_S):
                driver = await _start_driver(resources, token)
                browser = await driver.chromium.launch(
                    executable_path=path,
                    headless=not headed,
                    args=[*FLAGS, token],
                    chromium_sandbox=os.geteuid() != 0,
                    handle_sigint=False,
                    handle_sigterm=False,
                    handle_sighup=False,
                    timeout=LAUNCH_TIMEOUT_S * 1000,
                )
        except (PlaywrightError, OSError, TimeoutError) as error:
            _kill_groups(_group_leaders(token))
            await _quietly(resources.aclose())
            raise BrowserUnavailable(_why_not_started(path, error)) from error
        except asyncio.CancelledError:
            _kill_groups(_group_leaders(token))
            await _quietly(resources.aclose())
            raise
        except BaseException:
            _kill_groups(_group_leaders(token))
            raise
        _log.info("browser_started", path=path or "playwright", version=browser.version)
        return cls(driver, browser, resources, token)

    @property
    def alive(self) -> bool:
        """Whether the browser still responds."""
        return not self._killed and self.browser.is_connected() and all(map(_runs, self._leaders))

    async def new_context(
        self, *, origins: tuple[str, ...], viewport: tuple[int, int], proxy: FilteringProxy
    ) -> BrowserContext:
        """A fresh, isolated context that reaches only the allowed origins, through a proxy that it closes as it ends.

        Raises Playwright's errors, and OSError when the proxy cannot listen.
        """
        self._proxies.add(await proxy.start())
        try:
            context = await self.browser.new_context(
                viewport={"width": viewport[0], "height": viewport[1]},
                service_workers="block",
                accept_downloads=False,
                locale="en-US",
                timezone_id="UTC",
                color_scheme="light",
                reduced_motion="reduce",
                proxy={"server": proxy.url, "bypass": bypass_list(origins)},
            )
        except BaseException:
            self._close_proxy(proxy)
            raise
        context.on("close", lambda _: self._close_proxy(proxy))
        await context.grant_permissions([])  # which denies every one that is not named
        return context

    def _close_proxy(self, proxy: FilteringProxy) -> None:
        self._proxies.discard(proxy)
        proxy.close()

    def memory_mib(self) -> float:
        """Memory that only the browser's processes hold, in MiB."""
        total = 0
        for leader in self._leaders:
            with suppress(psutil.Error):
                for process in (leader, *leader.children(recursive=True)):
                    with suppress(psutil.Error):
                        memory = process.memory_info()
                        total += memory.rss - getattr(memory, "shared", 0)
        return total / 2**20

    async def close(self) -> None:
        """Close the browser, or kill it when it does not end in time. Never raises."""
        if not self._killed:
            await _quietly(self.browser.close())
        await self.kill()

    async def kill(self) -> None:
        """Kill driver and browser by process group. Pending calls fail; `alive` is False from here on."""
        self._killed = True
        for proxy in tuple(self._proxies):
            self._close_proxy(proxy)
        _kill_groups(self._leaders)
        await _quietly(self._resources.aclose())


async def _quietly(closing: Awaitable[None]) -> None:
    """Wait for something to close, at most `CLOSE_TIMEOUT_S`; ignore its errors."""
    try:
        async with asyncio.timeout(CLOSE_TIMEOUT_S):
            await closing
    except (PlaywrightError, OSError, TimeoutError) as error:
        _log.debug("browser_close_failed", error=str(error))


async def _start_driver(resources: AsyncExitStack, token: str) -> Playwright:
    """Start Playwright's driver in its own session, through a wrapper named by Playwright's own variable."""
    await asyncio.to_thread(remove_abandoned)  # a browser's files are many
    folder = resources.enter_context(scratch_folder())
    node = os.environ.get("PLAYWRIGHT_NODEJS_PATH") or str(
        Path(playwright.__file__).parent / "driver" / "node"
    )
    detach = "import os, sys; os.setsid(); os.execv(sys.argv[1], sys.argv[1:])"
    wrapper = folder / "node"
    # The token is visible in the driver's command line, and identifies its process.
    wrapper.write_text(
        f"#!/bin/sh\nTMPDIR={shlex.quote(str(folder))} exec {shlex.quote(sys.executable)} -I -S -c {shlex.quote(detach)} "
        f'{shlex.quote(node)} --title={token} "$@"\n'
    )
    wrapper.chmod(0o700)
    if not os.access(wrapper, os.X_OK):  # a temporary folder from which nothing may be executed
        with _variable("TMPDIR", str(folder)):
            return await resources.enter_async_context(async_playwright())
    with _variable("PLAYWRIGHT_NODEJS_PATH", str(wrapper)):
        return await resources.enter_async_context(async_playwright())


@contextmanager
def _variable(name: str, value: str) -> Iterator[None]:
    """Set an environment variable for child processes that start inside the context."""
    previous_value = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        if previous_value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = previous_value


def _group_leaders(token: str) -> list[psutil.Process]:
    """Descendants that carry the token and lead a process group: the driver and the browser."""
    leaders = []
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.Error, ProcessLookupError):
            if (
                any(token in argument for argument in process.cmdline())
                and os.getpgid(process.pid) == process.pid
            ):
                leaders.append(process)
    return leaders


def _runs(process: psutil.Process) -> bool:
    with suppress(psutil.Error):
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    return False


def _kill_groups(leaders: list[psutil.Process]) -> None:
    for leader in leaders:
        # is_running compares start times too: a process id that was reused is not killed.
        with suppress(psutil.Error, ProcessLookupError, PermissionError):
            if leader.is_running() and os.getpgrp() != leader.pid:
                os.killpg(leader.pid, signal.SIGKILL)


def _why_not_started(path: str | None, error: BaseException) -> str:
    if isinstance(error, TimeoutError):
        reason = f"it did not answer within {LAUNCH_TIMEOUT_S:.0f} s"
    else:
        reason = str(error).strip().splitlines()[0]
    if path is None:
        return (
            f"No Chromium was found: none of {', '.join(COMMANDS)} is on the path, and Playwright's own did not start "
            f"({reason}). Install one with `apt-get install chromium-headless-shell` (Debian), or "
            "`playwright install --only-shell chromium`, or set actors.browser_path."
        )
    if "sandbox" in str(error).lower() and os.geteuid() != 0:
        reason += " (its sandbox needs user namespaces, which this system may forbid)"
    return (
        f"The browser {path} did not start: {reason}. Try `{path} --headless --version` in a terminal; "
        "another browser can be named with actors.browser_path."
    )
