"""The settings of WebArena's sites, part of the section `sites`."""

from typing import Annotated, Literal

from pydantic import Field

from hindcast.core.settings.section import Count, Seconds, Section

WindowSide = Annotated[int, Field(ge=200, le=4000)]


class WebArenaSettings(Section):
    """Where WebArena's tasks and sites are."""

    webarena_tasks: str = ""
    """Task file as released, WebArena's test.raw.json or WebArena-Lite's; empty: there is no environment `webarena`."""
    webarena_sites: dict[str, str] = Field(default={})
    """Addresses by site (shopping, shopping_admin, reddit, gitlab, wikipedia, map, homepage), as `{reddit =
    "http://localhost:9999"}`. Tasks on a site without one are left out."""
    webarena_origins: tuple[str, ...] = ()
    """Further origins that the sites' pages load from, such as the map's tile and routing servers."""
    webarena_accounts: dict[str, tuple[str, ...]] = Field(default={})
    """The two environment variables that hold user and password, by site and for shopping_site_admin, whom helper
    functions ask as; `[]`: nobody logs in there."""
    webarena_window: tuple[WindowSide, WindowSide] = (1280, 1024)
    """Width and height of the window in pixels; 1280 and 720 as released."""
    webarena_steps: Count = 30
    """Steps of an episode, at most."""
    webarena_concurrency: Annotated[int, Field(ge=0)] = 0
    """Episodes on one site at the same time, at most, by all actors of a machine; 0: no limit."""
    webarena_resets: Literal["per_episode", "per_batch", "none"] = "none"
    """When `webarena_reset` is done: before every episode, which needs a concurrency of 1, before the first one of a process,
    or never. All episodes share a site's data base in between."""
    webarena_reset: dict[str, str] = Field(default={})
    """What brings a site back to its first state, by site: an address that is sent a POST, or a command without a shell."""
    webarena_shared_groups: bool = False
    """Whether episodes of a group are compared although each begins where others left the sites."""
    webarena_settle_s: Annotated[float, Field(ge=0)] = 3.0
    """How long a page that is looked at after an episode may go on building itself (3 s in the released evaluators)."""
    webarena_patience_s: Seconds = 120.0
    """Getting a place on the sites, resetting, logging in and loading the first pages; and once more for looking at the end.
    Shorter than `actors.episode_timeout_s`."""
