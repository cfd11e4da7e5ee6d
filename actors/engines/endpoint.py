"""A policy behind an OpenAI-compatible server: the prompting baseline. It can be evaluated, never trained.

The actor builds its prompt as for any policy (`core.prompts.prompt`, WebRL's turns). This engine's tokenizer has one
token per character, so that the turns can be decoded without loss and sent as chat messages, after a versioned system
prompt that describes the answer format (`endpoint.system_prompt`). So lengths are counted in characters.

Invariant "What was sampled is what is trained" holds by refusal: a chat completion lacks the token ids and log-
probabilities of its sampling. Its tokens have version -1, as a demonstrator's have, and `policy.base` cannot name it. It
cannot adopt weights, and its answers cannot be constrained.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hindcast.actors.endpoint.client import Endpoint
from hindcast.actors.endpoint.completion import Answered, Message
from hindcast.actors.endpoint.prompts import prompt_text, said_by
from hindcast.actors.engines.base import Constraint, Generation
from hindcast.core.domain.sampling import Sampling
from hindcast.core.errors import EngineFailed, ModelFileError

PROMPT = prompt_text("act-1")
NO_VERSION = -1
"""Version of tokens that no version of a run's policy sampled."""
SEEDS = 2**31
"""Servers take seeds below this."""


class TextTokenizer:
    """Characters as tokens, with the part of a Hugging Face tokenizer that `core.prompts.prompt` needs."""

    USER, ANSWER, END = "\ue000", "\ue001", "\ue002"
    """Marks of turns: private-use characters, which text never keeps."""
    eos_token_id = ord(END)
    added_tokens_decoder: Mapping[int, Any] = {}
    """Empty: text loses its marks before it is encoded."""
    _marks: Mapping[int, str] = {ord(mark): "\ufffd" for mark in (USER, ANSWER, END)}

    def __call__(
        self, text: str, *, add_special_tokens: bool, split_special_tokens: bool = False
    ) -> dict[str, list[int]]:
        """Encode text; `split_special_tokens`: it is plain text, whose marks are removed."""
        return {
            "input_ids": [
                ord(letter) for letter in (text.translate(self._marks) if split_special_tokens else text)
            ]
        }

    def apply_chat_template(
        self,
        messages: Sequence[Mapping[str, str]],
        *,
        tokenize: bool,
        add_generation_prompt: bool,
        **variables: object,
    ) -> str:
        """Format turns as marked text; template variables are ignored."""
        turns = [
            (self.USER if message["role"] == "user" else self.ANSWER) + message["content"]
            for message in messages
        ]
        return "".join([*turns, self.ANSWER if add_generation_prompt else ""])

    def decode(self, ids: Sequence[int], *, skip_special_tokens: bool = False) -> str:
        """Decode token ids."""
        text = "".join(map(chr, ids))
        return text.translate(dict.fromkeys(self._marks)) if skip_special_tokens else text

    def messages(self, ids: Sequence[int]) -> list[Message]:
        """Split a prompt into its turns, without the empty turn for the answer."""
        chat: list[Message] = []
        for turn in self.decode(ids).replace(self.ANSWER, self.USER + self.ANSWER).split(self.USER):
            if turn.startswith(self.ANSWER):
                chat.append(Message("assistant", turn[1:]))
            elif turn:
                chat.append(Message("user", turn))
        return chat[:-1] if chat and chat[-1] == Message("assistant", "") else chat


class EndpointEngine:
    """A `PolicyEngine` that asks a server for chat completions."""

    version = 0

    def __init__(self, endpoint: Endpoint, *, keep_thoughts: bool, system_prompt: bool = True) -> None:
        """`endpoint`: open. `keep_thoughts`: a model's visible thinking is part of its answer (`thinking`). `system_prompt`: it
        gets one that describes the answer format; see `EndpointSettings`.
        """
        self.tokenizer: Any = TextTokenizer()
        self.prompt_tokens = self.answer_tokens = 0
        """Tokens counted by the server so far."""
        self.cost_usd = 0.0
        self._endpoint = endpoint
        self._keep_thoughts = keep_thoughts
        self._opening = PROMPT.filled({}) if system_prompt else ()

    async def generate(
        self, prompt_ids: Sequence[int], sampling: Sampling, constraint: Constraint | None = None
    ) -> Generation:
        """Ask for one answer; a refusal is an answer that contains no action. Raises EngineFailed, ModelFileError."""
        if constraint is not None:
            raise ModelFileError(
                "a model behind an endpoint cannot be constrained: set scaffold.constrained to false"
            )
        answer = await self._endpoint.ask(
            [*self._opening, *self.tokenizer.messages(prompt_ids)],
            self._without_thoughts,
            temperature=sampling.temperature,
            seed=sampling.seed % SEEDS,
        )
        consulted = answer.consulted
        self.prompt_tokens += consulted.prompt_tokens
        self.answer_tokens += consulted.answer_tokens
        self.cost_usd += consulted.cost_usd
        if not isinstance(answer, Answered) and answer.trouble in ("outage", "rejected"):
            raise EngineFailed(answer.reason)
        text = answer.value if isinstance(answer, Answered) else consulted.answer
        ids = [*self.tokenizer(text, add_special_tokens=False, split_special_tokens=True)["input_ids"]]
        ids.append(self.tokenizer.eos_token_id)
        return Generation(
            token_ids=ids, logprobs=[0.0] * len(ids), versions=[NO_VERSION] * len(ids), finish="stop"
        )

    def _without_thoughts(self, text: str) -> str:
        return text if self._keep_thoughts else said_by(text)

    async def adopt(self, version: int, weights: Path) -> None:
        """Always raises ModelFileError: the server has its own weights."""
        raise ModelFileError(f"a model behind an endpoint cannot be given the weights of version {version}")

    async def close(self) -> None:
        """Do nothing: the caller owns the endpoint."""
