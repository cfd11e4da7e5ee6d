"""What a web site must offer to be an environment."""

from typing import Any, Protocol, runtime_checkable

import msgspec
from playwright.async_api import Page as BrowserPage

from hindcast.actors.environments.base import EpisodeWorld
from hindcast.core.domain.task import Task


class SiteTraits(msgspec.Struct, frozen=True, kw_only=True):
    """What a site promises and asks for; the attribute `traits` of a site, which it may leave out."""

    reusable: bool = False
    """An episode leaves nothing in the browser but cookies and storage of the allowed origins: after wiping those, the
    same context may serve another episode of this site. Saves 600 ms of CPU an episode with full Chromium."""
    init_script: str = ""
    """Runs in every document before the page's own scripts: fixes the date, seeds randomness."""
    ended: str = ""
    """Expression in JavaScript that is true once the page has ended the episode; empty: no page ever does."""
    viewport: tuple[int, int] = (1280, 1024)
    """Width and height of the window in pixels."""
    probes_active: bool = False
    """At the end the site is asked about the page that the episode ended on; else about the one that entered it."""
    patience_s: float = 0.0
    """How long entering may take, and probing, where that is more than loading one page; 0: `actors.page_timeout_s`."""


class Site(Protocol):
    """A web site on which episodes take place."""

    @property
    def name(self) -> str:
        """`store`, `miniwob`."""
        ...

    def origins(self, task: Task) -> tuple[str, ...]:
        """Where an episode of the task may navigate, as `scheme://host:port` or a folder as `file:///…`."""
        ...

    async def enter(self, page: BrowserPage, task: Task) -> str:
        """Bring the page into the task's start state and return the instruction the page gives, or an empty text."""
        ...

    async def probe(self, page: BrowserPage, task: Task) -> dict[str, Any]:
        """What evaluators need to know at the end, in plain values."""
        ...

    async def leave(self, task: Task) -> None:
        """Release what the site holds for the episode."""
        ...


@runtime_checkable
class Browserless(Protocol):
    """An environment that needs no browser: it opens its worlds itself."""

    @property
    def name(self) -> str:
        """As a `Site`'s."""
        ...

    def open_world(self) -> EpisodeWorld:
        """A world, isolated from all others."""
        ...


Venue = Site | Browserless
"""Where episodes take place."""


def traits_of(site: Site) -> SiteTraits:
    """The site's traits, or the careful default: a fresh context for every episode."""
    traits = getattr(site, "traits", None)
    return traits if isinstance(traits, SiteTraits) else SiteTraits()
