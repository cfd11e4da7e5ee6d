"""Samples as files and as token ids. A demonstration is recorded once, in a browser, and read here."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from core.errors import HindcastError
from core.grammar import format_answer
from core.prompt import build_prompt, encode_answer
from core.rendering import RENDERERS
from learner.base_policy.lookups import Sample

RENDERER = "lines/1"
MAX_PROMPT_TOKENS = 1024
HISTORY_ANSWERS = 12


class SampleFileError(HindcastError):
    """A file of demonstrations is missing or damaged."""


class Encoded(NamedTuple):
    """A sample as the policy reads and answers it."""

    prompt: list[int]
    answer: list[int]
    """The end token included."""


def encode(tokenizer: Any, sample: Sample) -> Encoded:
    """Exactly the ids that an actor would build for this step, and the answer it should sample."""
    prompt = build_prompt(
        tokenizer,
        instruction=sample.instruction,
        answers=sample.answers[-HISTORY_ANSWERS:],
        page_text=RENDERERS[RENDERER](sample.page),
        max_tokens=MAX_PROMPT_TOKENS,
    )
    return Encoded(prompt.ids, encode_answer(tokenizer, format_answer(sample.action, sample.page)))


def write_samples(path: Path, samples: Iterable[Sample]) -> int:
    """Write one sample a line, as JSON; returns how many."""
    encoder, count = msgspec.json.Encoder(), 0
    with path.open("wb") as file:
        for sample in samples:
            file.write(encoder.encode(sample) + b"\n")
            count += 1
    return count


def read_samples(path: Path) -> Iterator[Sample]:
    """Read what `write_samples` wrote. Raises SampleFileError with the line that does not parse."""
    decoder = msgspec.json.Decoder(Sample)
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
