"""Settings of WebArena's sites, part of the section `sites`."""

from typing import Annotated, Literal

from pydantic import Field

from hindcast.core.settings.section import Count, Seconds, Section

WindowSide = Annotated[int, Field(ge=200, le=4000)]


class WebArenaSettings(Section):
    """WebArena's tasks and sites."""

    webarena_tasks: str = ""
    """Task file as released, WebArena's test.raw.json or WebArena-Lite's; empty: the environment `webarena` is not
    available."""
    webarena_sites: dict[str, str] = Field(default={})
    """Addresses by site (shopping, shopping_admin, reddit, gitlab, wikipedia, map, homepage), as `{reddit =
    "http://localhost:9999"}`. Tasks on a site without an address are left out."""
    webarena_origins: tuple[str, ...] = ()
    """Further origins from which the sites' pages load, such as the map's tile and routing servers."""
    webarena_accounts: dict[str, tuple[str, ...]] = Field(default={})
    """Environment variables of user and password, by site; those of shopping_site_admin serve the evaluators' helper
    functions. `[]`: no login on this site."""
    webarena_window: tuple[WindowSide, WindowSide] = (1280, 1024)
    """Width and height of the window in pixels; 1280 and 720 as released."""
    webarena_steps: Count = 30
    """Maximum steps of an episode."""
    webarena_concurrency: Annotated[int, Field(ge=0)] = 0
    """Maximum concurrent episodes on one site, over all actors of a machine; 0: no limit."""
    webarena_resets: Literal["per_episode", "per_batch", "none"] = "none"
    """When sites are reset by `webarena_reset`: before every episode, which needs a concurrency of 1; before the first
    episode of a process; or never. Between resets all episodes share a site's database."""
    webarena_reset: dict[str, str] = Field(default={})
    """How to reset a site, by site: an address to which a POST is sent, or a command without a shell."""
    webarena_shared_groups: bool = False
    """Whether to compare episodes of a group although each starts in the state in which others left the sites."""
    webarena_settle_s: Annotated[float, Field(ge=0)] = 3.0
    """How long a page that an evaluator opens after an episode may settle (3 s in the released evaluators)."""
    webarena_patience_s: Seconds = 120.0
    """Time limit for getting a place on the sites, reset, login and first pages together, and again for the evaluation at the
    end. Shorter than `actors.episode_timeout_s`."""
