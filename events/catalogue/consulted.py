"""What was asked of an endpoint's model, and what that cost: part of the facts that rest on it."""

import msgspec


class Consulted(msgspec.Struct, frozen=True, kw_only=True):
    """One question to a model behind an endpoint, with what was asked again because an answer had not its form."""

    model: str
    """By its name in the answer; by the name that was asked for where none came."""
    request: str
    """sha256 of address and request, prompt included: equal questions have equal digests."""
    answer: str
    """The last answer, word for word; empty: none came."""
    prompt_tokens: int
    """As the server counted, of all requests that were answered."""
    answer_tokens: int
    cost_usd: float
    """By `endpoint.price_prompt` and `endpoint.price_answer`; 0 for a remembered answer."""
    tries: int
    """Requests sent; 0: the answer to an equal question was remembered."""
