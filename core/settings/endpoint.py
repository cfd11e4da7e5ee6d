"""Settings of an OpenAI-compatible server: whoever judges, relabels, invents tasks or acts through one."""

from typing import Annotated, Literal

from pydantic import Field

from hindcast.core.settings.section import Count, Seconds, Section

ENDPOINT = "endpoint"
"""What the judge, the relabeler, the generator and the policy behind an endpoint are called in settings and facts."""
FUZZY = "fuzzy"
"""The judge that asks it only what the rules leave open."""


class EndpointSettings(Section):
    """An OpenAI-compatible server that the run may ask; used by those parts alone that name it (`endpoint`)."""

    base_url: str = ""
    """Its address, as `http://127.0.0.1:8000/v1`; empty: there is none."""
    model: str = ""
    """The model asked for, by the server's name for it."""
    key_variable: str = "HINDCAST_ENDPOINT_KEY"
    """Environment variable that holds the API key, which stands in no setting; where it is unset, none is needed."""
    temperature: Annotated[float, Field(ge=0, le=2)] = 0.0
    """Sampling temperature of judges, relabelers and generators; episodes have their own."""
    max_tokens: Count = 1024
    """Length of one answer."""
    limit_field: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    """What the server calls that limit; hosted models that think want the latter."""
    prompt_characters: Annotated[int, Field(ge=1000)] = 40_000
    """Length of one page in a question; the rest of it is cut off."""
    structured: Literal["json_schema", "json_object", "none"] = "json_schema"
    """How the server is told the form of an answer, where it has one; it is checked in any case."""
    timeout_s: Seconds = 20.0
    """One request."""
    retries: Annotated[int, Field(ge=0, le=100)] = 4
    """Further requests where the server is out of reach, overloaded or broken."""
    backoff_s: Seconds = 0.5
    """Wait before the first of them, twice as long before each that follows; the server may ask for longer."""
    at_once: Annotated[int, Field(ge=1, le=65_536)] = 4
    """Requests of one process under way at the same time."""
    requests_per_minute: Annotated[float, Field(ge=0)] = 0.0
    """Requests of one process, at most; 0: no limit."""
    price_prompt: Annotated[float, Field(ge=0)] = 0.0
    """Price of a million prompt tokens, for the cost in the log; in dollars."""
    price_answer: Annotated[float, Field(ge=0)] = 0.0
    """Price of a million answer tokens."""
    remembered: bool = True
    """Whether an answer is kept in the home folder, and an equal question not asked again."""
    batch: bool = False
    """Whether questions go through the server's Batch API: cheaper, and answered within a day. Not those of a policy
    that acts."""
    batch_questions: Annotated[int, Field(ge=1, le=50_000)] = 1000
    """Questions of one batch, at most."""
    batch_gather_s: Seconds = 10.0
    """How long questions are gathered for one batch, from the first of them."""
    batch_poll_s: Seconds = 30.0
    """How often the server is asked whether a batch has ended."""
    batch_wait_s: Seconds = 90_000.0
    """How long a batch is waited for; servers promise a day. It stays kept, and is waited for again when it is asked
    for again."""
    batch_share: Annotated[float, Field(ge=0)] = 0.5
    """What a batch's tokens cost, as a share of the prices above."""
