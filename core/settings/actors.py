"""Settings of actors: browsers, episodes and screenshots."""

from typing import Annotated, Literal

from pydantic import Field

from hindcast.core.settings.section import Count, NetworkName, Seconds, Section, Tokens


class ScreenshotSettings(Section):
    """Settings of the screenshots that are stored with an episode."""

    screenshots: Literal["off", "ends", "all"] = "ends"
    """Which screenshots of an episode are stored: `off`: none; `ends`: those of the first and last page and of the pages
    after failed steps; `all`: those of every page."""
    screenshot_rate: Annotated[float, Field(gt=0, le=100)] = 0.5
    """Average screenshots per second of one actor; each takes about 30 ms of CPU. An episode that starts while the budget is
    used up gets none; any other episode gets all of its screenshots."""
    screenshot_width: Annotated[int, Field(ge=64, le=1920)] = 640
    """Width of a screenshot in pixels; a narrower window is not enlarged."""
    screenshot_quality: Annotated[int, Field(ge=1, le=100)] = 60
    """JPEG quality of a screenshot; at 60 and 640 pixels it takes about 35 kB."""
    screenshot_observation: Literal["off", "newest"] = "off"
    """Screenshots that the policy sees (docs/vision.md): `off`: none; `newest`: that of the current page, in addition to its
    text, for a vision-language policy. With `newest` every step is photographed, whatever the rate."""
    screenshot_timeout_s: Annotated[float, Field(gt=0, le=30)] = 2.0
    """Time limit of one screenshot; a page that is not drawn by then gets none, and the step continues."""


class ActorSettings(ScreenshotSettings):
    """Settings of browsers and episodes."""

    contexts: Annotated[int, Field(ge=1, le=1024)] = 8
    """Episodes that one actor drives at the same time."""
    renderer: str = "lines/2"
    """Renderer of pages (`core.prompts.rendering`): `lines/2` for small models, `webrl/3` for WebRL's published checkpoints;
    or a plugin of another package, by its name or as `module:object` (docs/plugins.md)."""
    framing: Literal["chat/1", "webrl/1", "webrl/2"] = "chat/1"
    """How a prompt separates turns: `chat/1`: by the chat template of the policy's folder; `webrl/1` and `webrl/2`: in the form
    that WebRL's published checkpoints expect; the chat template is ignored (docs/models.md)."""
    history: Literal["webrl/1", "compressed/1"] = "webrl/1"
    """How a prompt shows past rounds: `webrl/1`: the latest `history_answers` answers, the earliest of which are dropped if
    the page needs the room; `compressed/1`: all answers, as long as an eighth of the prompt is left for the page
    (WebAgent-R1). A short placeholder replaces the pages of past rounds."""
    history_answers: Annotated[int, Field(ge=0)] = 12
    """Number of latest earlier answers shown in a prompt (`webrl/1`)."""
    history_pages: Annotated[int, Field(ge=0)] = 0
    """Number of latest past rounds whose pages are shown in full while the current page fits."""
    answer_format: Literal["plain", "thinking", "text"] = "plain"
    """Form of an answer: `plain`: the action; `thinking`: `<think>…</think><answer>…</answer>` with the action in the latter
    (WebAgent-R1); `text`: the whole answer is what a text environment gets (docs/python.md). A thought takes tokens: raise
    `max_answer_tokens`."""
    dialect: Literal["webrl", "browsergym"] = "webrl"
    """Dialect of demonstrations and of a scaffold's choices; answers are read in both. The shipped policy speaks `webrl`."""
    demonstration_reasoning: bool = False
    """Whether demonstrations contain a thought (`thinking`): short sentences on what the page shows and the task names.
    Otherwise the thought is empty."""
    ends_unparsable: Annotated[int, Field(ge=0)] = 0
    """Number of consecutive unparsable answers that ends an episode of the policy: 1 in the released ARPO, 5 in the released
    WebRL, 3 in WebArena; 0: no limit."""
    ends_repeated: Annotated[int, Field(ge=0)] = 0
    """Number of consecutive equal steps that ends an episode of the policy: 5 in the released WebRL, 3 in WebArena; 0: no
    limit."""
    repeated_by: Literal["answer", "action"] = "answer"
    """What makes steps equal for `ends_repeated`: the whole answer (released WebRL), or the action (WebArena: kind and
    element; typing into one element counts over the whole episode)."""
    scroll_share: Annotated[float, Field(gt=0, le=1)] = 0.8
    """Share of the window's height that one scroll moves: 0.6667 in the released WebRL, 1 in WebArena."""
    temperature: Annotated[float, Field(ge=0)] = 1.0
    """Sampling temperature of training episodes."""
    max_prompt_tokens: Tokens = 1024
    """Maximum tokens of a prompt; the page is truncated to fit, never the instruction."""
    max_answer_tokens: Tokens = 64
    """Maximum tokens of an answer."""
    page_timeout_s: Seconds = 15.0
    """Time limit for loading a page, and for taking its snapshot."""
    page_latency_ms: Annotated[float, Field(ge=0, le=10_000)] = 0.0
    """Delay of every page that a tab loads, to rehearse a slow site; a task that starts in the page already open loads none."""
    action_timeout_s: Seconds = 5.0
    """Time limit of one browser action."""
    generate_timeout_s: Seconds = 60.0
    """Time limit of one policy call."""
    episode_timeout_s: Seconds = 150.0
    """Time limit of one episode; must be shorter than `curriculum.lease_s`, if that is set."""
    agent: str = ""
    """Command of an agent of your own, which plays episodes and asks the policy by an OpenAI-compatible address
    (docs/agents.md); or `NAME:ARGUMENTS` of an environment of another project, such as `verifiers:ENVIRONMENT`
    (docs/protocols.md); empty: actors act themselves."""
    agent_python: str = ""
    """Python interpreter for `NAME:ARGUMENTS`, in which that project's package is installed; empty: Hindcast's own."""
    agent_folder: str = ""
    """Folder that the agent is started in; `hindcast start --agent` sets the one that it is called in. Empty: the home."""
    agent_episodes: Count = 1
    """Episodes that one process of the agent plays, one after the other. Above 1 the process reads each episode's variables as
    a line of JSON from its standard input and ends it by `POST …/end` (docs/agents.md): an agent whose imports take seconds
    pays for them once."""
    agent_reward_range: tuple[float, float] = (0.0, 1.0)
    """Lowest and highest reward that the agent may send. The verdict's reward is the place between the two, from 0 to 1; a
    reward outside is refused."""
    agent_steps: Count = 30
    """Calls of the policy after which an episode of an agent's own task is ended. In a Python class `max_steps` holds instead."""
    agent_wait_s: Seconds = 60.0
    """Longest time between an agent's calls, and before its first."""
    browser_episodes: Count = 1000
    """Number of episodes after which a browser is replaced."""
    browser_memory_mib: Count = 3000
    """Memory of all processes of a browser, in MiB, above which it is replaced."""
    browser_path: str = ""
    """Path of Chromium; empty: the one on the path, else Playwright's own."""
    private_networks: tuple[NetworkName, ...] = ()
    """Networks such as `10.1.0.0/16` to which host names of sites may resolve; other host names must resolve to public
    addresses. A site given by its literal address or as `localhost` needs none."""
