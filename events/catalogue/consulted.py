"""Record of a question to an endpoint's model and its cost, part of the facts that depend on the answer."""

import msgspec


class Consulted(msgspec.Struct, frozen=True, kw_only=True):
    """One question to a model behind an endpoint, including repetitions after malformed answers."""

    model: str
    """Model name in the answer; the requested name if no answer came."""
    request: str
    """sha256 of address and request, including the prompt: equal questions have equal digests."""
    answer: str
    """Verbatim last answer; empty if none came."""
    prompt_tokens: int
    """The server's count, over all answered requests."""
    answer_tokens: int
    """The server's count, over all answered requests."""
    cost_usd: float
    """By `endpoint.price_prompt` and `endpoint.price_answer`; 0 for a cached answer."""
    tries: int
    """Requests sent; 0 if the answer was cached."""
