"""Settings of an OpenAI-compatible server, which may judge, relabel, generate tasks or act."""

from typing import Annotated, Literal

from pydantic import Field

from hindcast.core.settings.section import Count, Seconds, Section

ENDPOINT = "endpoint"
"""Name of the judge, relabeler, task generator and policy behind an endpoint, in settings and events."""
FUZZY = "fuzzy"
"""Name of the judge that applies the rules and asks the endpoint only for fuzzy matches."""


class EndpointSettings(Section):
    """An OpenAI-compatible server; only roles whose settings name `endpoint` use it."""

    base_url: str = ""
    """Address of the server, as `http://127.0.0.1:8000/v1`; empty: no server."""
    model: str = ""
    """Name of the model on the server."""
    key_variable: str = "HINDCAST_ENDPOINT_KEY"
    """Environment variable that holds the API key. The key itself is never a setting; if unset, requests carry none."""
    temperature: Annotated[float, Field(ge=0, le=2)] = 0.0
    """Sampling temperature of judges, relabelers and generators; episodes have their own."""
    max_tokens: Count = 1024
    """Maximum tokens of one answer."""
    limit_field: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    """The server's name for that limit; hosted reasoning models require the latter."""
    prompt_characters: Annotated[int, Field(ge=1000)] = 40_000
    """Maximum characters of one page in a prompt; the rest is cut off."""
    structured: Literal["json_schema", "json_object", "none"] = "json_schema"
    """How a request asks for a structured answer, if it needs one; the answer is validated in any case."""
    system_prompt: bool = True
    """Whether a policy gets a system prompt that names the actions. `false` for one that was trained by a run, such as
    `hindcast policy serve` serves: it then reads the prompts of its training."""
    timeout_s: Seconds = 20.0
    """Time limit of one request."""
    retries: Annotated[int, Field(ge=0, le=100)] = 4
    """Retries if the server is out of reach, overloaded or broken."""
    backoff_s: Seconds = 0.5
    """Wait before the first retry; it doubles with each further one. The server may ask for longer."""
    at_once: Annotated[int, Field(ge=1, le=65_536)] = 4
    """Concurrent requests of one process."""
    requests_per_minute: Annotated[float, Field(ge=0)] = 0.0
    """Maximum requests per minute of one process; 0: no limit."""
    price_prompt: Annotated[float, Field(ge=0)] = 0.0
    """Price of a million prompt tokens in dollars, for the cost in the log."""
    price_answer: Annotated[float, Field(ge=0)] = 0.0
    """Price of a million answer tokens in dollars."""
    remembered: bool = True
    """Whether answers are cached in the home folder, so that an equal request is not sent again."""
    batch: bool = False
    """Whether requests go through the server's Batch API, which is cheaper and answers within a day. It does not apply to a
    policy that acts."""
    batch_questions: Annotated[int, Field(ge=1, le=50_000)] = 1000
    """Maximum requests of one batch."""
    batch_gather_s: Seconds = 10.0
    """How long requests are gathered for one batch, from the first one on."""
    batch_poll_s: Seconds = 30.0
    """How often the server is asked whether a batch has ended."""
    batch_wait_s: Seconds = 90_000.0
    """Time limit of waiting for a batch; servers promise a day. The batch is kept, and an equal request waits for it again."""
    batch_share: Annotated[float, Field(ge=0)] = 0.5
    """Price of a batch's tokens, as a share of the prices above."""
