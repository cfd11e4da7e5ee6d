"""Settings of actors: browsers and episodes, and the pictures that are kept of them."""

from typing import Annotated, Literal

from pydantic import Field

from hindcast.core.settings.section import Count, NetworkName, Seconds, Section, Tokens


class ScreenshotSettings(Section):
    """Pictures of what a person would have seen, kept beside the log."""

    screenshots: Literal["off", "ends", "all"] = "ends"
    """Pictures kept of an episode: none; of its first and last page and of what failed steps led to; of every page."""
    screenshot_rate: Annotated[float, Field(gt=0, le=100)] = 0.5
    """Pictures a second that one actor takes on average, each about 30 ms of a processor: an episode that begins while
    they are used up has none, every other one has all of its own."""
    screenshot_width: Annotated[int, Field(ge=64, le=1920)] = 640
    """Width of a picture in pixels; a window that is narrower is not enlarged."""
    screenshot_quality: Annotated[int, Field(ge=1, le=100)] = 60
    """Quality of its JPEG; about 35 kB at 60 and 640 pixels."""
    screenshot_observation: Literal["off", "newest"] = "off"
    """What the policy sees of them (docs/vision.md): nothing, or that of the page that it is to answer, beside its text, for a
    vision-language policy; pages of past rounds have none. Each step is then photographed, whatever the rate."""
    screenshot_timeout_s: Annotated[float, Field(gt=0, le=30)] = 2.0
    """One picture; a page that is not drawn by then has none, and the step goes on."""


class ActorSettings(ScreenshotSettings):
    """Browsers and episodes."""

    contexts: Annotated[int, Field(ge=1, le=1024)] = 8
    """Episodes that one actor drives at the same time."""
    renderer: str = "lines/2"
    """How a page becomes text (`core.prompts.rendering`): `lines/2` for small models, `webrl/3` for WebRL's published checkpoints."""
    framing: Literal["chat/1", "webrl/1", "webrl/2"] = "chat/1"
    """How turns stand in a prompt: by the chat template of the policy's folder, or as WebRL's published checkpoints read
    them, whatever their template says (docs/models.md)."""
    history: Literal["webrl/1", "compressed/1"] = "webrl/1"
    """How past rounds are shown: the latest `history_answers`, early ones giving way to the page, or all of them while the
    page keeps an eighth of the prompt (WebAgent-R1). Pages of past rounds have a short stand-in."""
    history_answers: Annotated[int, Field(ge=0)] = 12
    """Earlier answers shown in a prompt, the latest ones (`webrl/1`)."""
    history_pages: Annotated[int, Field(ge=0)] = 0
    """Pages of the latest past rounds that are shown in full while the page itself fits."""
    answer_format: Literal["plain", "thinking"] = "plain"
    """What an answer is: the action, or `<think>…</think><answer>…</answer>` with the action in the latter (WebAgent-R1).
    A thought takes tokens: give `max_answer_tokens` room."""
    dialect: Literal["webrl", "browsergym"] = "webrl"
    """In whose calls demonstrations and a scaffold's choices are written; answers are read in both. The shipped policy
    speaks `webrl`."""
    demonstration_reasoning: bool = False
    """Whether demonstrations think: short sentences on what the page shows and the task names (`thinking`); else their
    thought is empty."""
    ends_unparsable: Annotated[int, Field(ge=0)] = 0
    """Answers in a row that are no action and end an episode of the policy: 1 in the released ARPO, 5 in the released WebRL, 3
    in WebArena; 0: the next round follows each."""
    ends_repeated: Annotated[int, Field(ge=0)] = 0
    """Equal steps in a row that end an episode of the policy: 5 in the released WebRL, 3 in WebArena; 0: none do."""
    repeated_by: Literal["answer", "action"] = "answer"
    """What makes steps equal there: the whole answer (released WebRL), or the action (WebArena: kind and element; typing into
    one element counts over the whole episode)."""
    scroll_share: Annotated[float, Field(gt=0, le=1)] = 0.8
    """Part of the window's height that one scroll moves: 0.6667 in the released WebRL, 1 in WebArena."""
    temperature: Annotated[float, Field(ge=0)] = 1.0
    """Sampling temperature of training episodes."""
    max_prompt_tokens: Tokens = 1024
    """Prompt length; the page is truncated to fit, never the instruction."""
    max_answer_tokens: Tokens = 64
    """Answer length."""
    page_timeout_s: Seconds = 15.0
    """Loading a page, taking a snapshot."""
    page_latency_ms: Annotated[float, Field(ge=0, le=10_000)] = 0.0
    """Delay of every page that a tab loads, to rehearse a slow site; a problem begun in the page as it stands loads
    nothing."""
    action_timeout_s: Seconds = 5.0
    """One browser action."""
    generate_timeout_s: Seconds = 60.0
    """One policy call."""
    episode_timeout_s: Seconds = 150.0
    """One whole episode; shorter than the lease."""
    browser_episodes: Count = 1000
    """A browser is replaced after this many episodes."""
    browser_memory_mib: Count = 3000
    """A browser whose processes together hold more than this is replaced."""
    browser_path: str = ""
    """Chromium to use; empty: found on the path, else Playwright's own."""
    private_networks: tuple[NetworkName, ...] = ()
    """Networks such as `10.1.0.0/16` in which sites that are named by a host name may lie; else a name leads to public
    addresses only. A site named by its literal address or as `localhost` needs none."""
