"""Interface of a web site that serves as an environment."""

from typing import Any, Protocol, runtime_checkable

import msgspec
from playwright.async_api import Page as BrowserPage

from hindcast.actors.environments.base import EpisodeWorld
from hindcast.core.domain.task import Task


class SiteTraits(msgspec.Struct, frozen=True, kw_only=True):
    """Properties of a site; its optional attribute `traits`."""

    reusable: bool = False
    """An episode leaves nothing in the browser but cookies and storage of the allowed origins. After wiping those, the same
    context may serve another episode of this site. Saves 600 ms of CPU per episode with full Chromium.
    """
    init_script: str = ""
    """Runs in every document before the page's own scripts: fixes the date, seeds randomness."""
    ended: str = ""
    """JavaScript expression that is true once the page has ended the episode; empty: no page ever does."""
    viewport: tuple[int, int] = (1280, 1024)
    """Width and height of the window in pixels."""
    probes_active: bool = False
    """Whether `probe` gets the final page of the episode; else the page that entered the site."""
    patience_s: float = 0.0
    """Time limit for entering and for probing where they take longer than one page; 0: `actors.page_timeout_s`."""


class Site(Protocol):
    """A web site on which episodes take place."""

    @property
    def name(self) -> str:
        """Name of the site, such as `store` or `miniwob`."""
        ...

    def origins(self, task: Task) -> tuple[str, ...]:
        """Where an episode of the task may navigate, as `scheme://host:port` or a folder such as `file:///…`."""
        ...

    async def enter(self, page: BrowserPage, task: Task) -> str:
        """Bring the page into the task's start state; return the page's instruction, or an empty text."""
        ...

    async def probe(self, page: BrowserPage, task: Task) -> dict[str, Any]:
        """Collect the evidence for evaluators at the end, in plain values."""
        ...

    async def leave(self, task: Task) -> None:
        """Release what the site holds for the episode."""
        ...


@runtime_checkable
class Browserless(Protocol):
    """An environment without a browser: it opens its worlds itself."""

    @property
    def name(self) -> str:
        """Name of the environment, as of a `Site`."""
        ...

    def open_world(self) -> EpisodeWorld:
        """Open a world, isolated from all others."""
        ...


Venue = Site | Browserless
"""Where episodes take place."""


def traits_of(site: Site) -> SiteTraits:
    """The site's traits, or the careful default: a fresh context for every episode."""
    traits = getattr(site, "traits", None)
    return traits if isinstance(traits, SiteTraits) else SiteTraits()
