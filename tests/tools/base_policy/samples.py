"""Samples as files and as token ids. A demonstration is recorded once, in a browser, and read here."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from hindcast.actors.environments.base import DemonstratedStep
from hindcast.core.domain.action import Action
from hindcast.core.errors import HindcastError
from hindcast.core.grammar.answer_parser import format_answer
from hindcast.core.prompts.chat_frame import STAND_IN, encode_text
from hindcast.core.prompts.prompt import build_prompt, encode_answer
from hindcast.core.prompts.rendering import RENDERERS
from tools.base_policy.tokenizer import ASSISTANT, END, USER

RENDERER = "lines/1"
MAX_PROMPT_TOKENS = 1024
HISTORY_ANSWERS = 12


class SampleFileError(HindcastError):
    """A file of demonstrations is missing or damaged."""


class Encoded(NamedTuple):
    """Token ids as the policy reads them, and which of them it should have answered."""

    ids: list[int]
    answered: list[bool]
    """Per id: it belongs to an answer; end tokens included."""


def encode(tokenizer: Any, sample: DemonstratedStep, further: Sequence[tuple[str, Action]] = ()) -> Encoded:
    """Exactly the ids that an actor would build for this step, the answer, and further questions about the page."""
    prompt = build_prompt(
        tokenizer,
        instruction=sample.instruction,
        answers=sample.answers[-HISTORY_ANSWERS:],
        page_text=RENDERERS[RENDERER](sample.page),
        max_tokens=MAX_PROMPT_TOKENS,
    )
    ids, answered = list(prompt.ids), [False] * len(prompt.ids)
    for instruction, action in (("", sample.action), *further):
        if instruction:
            question = _question(tokenizer, instruction)
            ids += question
            answered += [False] * len(question)
        answer = encode_answer(tokenizer, format_answer(action, sample.page))
        ids += answer
        answered += [True] * len(answer)
    return Encoded(ids, answered)


def _question(tokenizer: Any, instruction: str) -> list[int]:
    """A user turn that refers to the page shown before."""
    text = encode_text(tokenizer, f"Task Instruction: {instruction}\n\nRound 0\n\n{STAND_IN}")
    user, assistant, end = tokenizer.convert_tokens_to_ids([USER, ASSISTANT, END])
    return [user, *text, end, assistant]


def append_samples(path: Path, samples: Iterable[DemonstratedStep]) -> int:
    """Append one sample a line, as JSON; returns how many."""
    encoder, count = msgspec.json.Encoder(), 0
    with path.open("ab") as file:
        for sample in samples:
            file.write(encoder.encode(sample) + b"\n")
            count += 1
    return count


def read_samples(path: Path) -> Iterator[DemonstratedStep]:
    """Read what `append_samples` wrote. Raises SampleFileError with the line that does not parse."""
    decoder = msgspec.json.Decoder(DemonstratedStep)
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, start=1):
                try:
                    yield decoder.decode(line)
                except msgspec.MsgspecError as error:
                    raise SampleFileError(
                        f"{path}, line {number} is no demonstration: {error}. Record them again: hindcast demonstrations"
                    ) from None
    except OSError as error:
        raise SampleFileError(
            f"demonstrations cannot be read from {path}: {error.strerror}. Record them: hindcast demonstrations"
        ) from None
