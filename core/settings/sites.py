"""Settings of the sites that tasks are played on: the sections `sites` and `web`."""

from typing import Annotated, Any, Literal

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


class WebshopSettings(Section):
    """WebShop's data or server."""

    webshop_items: str = ""
    """File of WebShop's products, `items_….json` or `.json.gz`; empty: the environment `webshop` does not
    use data files (docs/webshop.md)."""
    webshop_instructions: str = ""
    """File of the products' attributes and generated instructions, `items_ins_v2_….json` or `.json.gz`."""
    webshop_human: str = ""
    """File of instructions written by people, `items_human_ins.json` or `.json.gz`; empty: only generated ones."""
    webshop_mode: Literal["pages", "text"] = "pages"
    """`pages`: WebShop in a browser; `text`: the same pages as text without a browser, for text agents."""
    webshop_option_match: Literal["released", "values"] = "released"
    """How the reward compares the options of synthetic goals: `released` compares the chosen value with the text of
    WebShop's (name, value) pair, as the released code does; `values` compares values, reduced to their color. Goals
    written by people always compare values."""
    webshop_show_attributes: bool = False
    """Whether a product's page links to its attributes (upstream's `--attrs`)."""
    webshop_url: str = ""
    """Address of an original WebShop server to use instead of data files, as `http://127.0.0.1:3000`."""
    webshop_url_goals: Count = 12_087
    """Number of goals of that server; the default is that of the released human goals."""


class BrowsergymSettings(Section):
    """BrowserGym's tasks, and the Python environment that runs them."""

    browsergym_python: str = ""
    """Python of the virtual environment with BrowserGym and the tasks' packages; empty: the environment
    `browsergym` is not available. It runs BrowserGym's own browser without Hindcast's isolation: use only tasks that you trust."""
    browsergym_tasks: tuple[str, ...] = ()
    """Gym ids of the tasks, such as `browsergym/miniwob.click-test`."""
    browsergym_max_steps: Count = 20
    """Maximum steps of an episode."""


class SiteSettings(WebArenaSettings, WebshopSettings, BrowsergymSettings):
    """The embedded store, WebArena, WebShop and BrowserGym."""

    products: Annotated[int, Field(ge=20, le=100_000)] = 400
    """Number of products in the store's catalogue."""
    catalogue_seed: int = 7
    """Seed of the store's catalogue."""
    port: Annotated[int, Field(ge=0, le=65535)] = 0
    """Port of the store on loopback; 0: any free one, kept across restarts."""
    options: dict[str, dict[str, Any]] = Field(default={})
    """Options of environment plugins: a table for each plugin, under its name in `curriculum.environments`
    (docs/plugins.md)."""


class WebSettings(Section):
    """The user's own sites (environment `web`, docs/your-site.md)."""

    file: str = ""
    """Task file, TOML or JSONL, that fills `tasks`. It is read once: the run keeps its content, and resumes and forks do not
    read it again."""
    tasks: tuple[dict[str, Any], ...] = ()
    """Complete tasks, as in the task file."""
