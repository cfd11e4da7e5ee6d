"""Endless batches of samples, encoded in a process of its own so that the trainer only computes."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import torch
from torch.utils.data import DataLoader, IterableDataset
from transformers import PreTrainedTokenizerFast

from hindcast.actors.environments.base import DemonstratedStep
from hindcast.core.seeds import derive_seed
from tools.base_policy.lookups import lookup
from tools.base_policy.mix import Mix
from tools.base_policy.questions import questions
from tools.base_policy.samples import Encoded, encode

POOL = 768
"""Samples sorted by length together: batches hold little padding and yet differ."""
MOST_QUESTIONS = 8
"""Further questions about one page."""
STRIDE = 32
"""Lengths are padded to a multiple, which bounds the number of shapes that are compiled."""


class Batch(NamedTuple):
    """Right-padded samples."""

    ids: torch.Tensor  # [samples, length] int64
    answer: torch.Tensor  # [samples, length - 1] bool: the next token belongs to the answer
    prompt: torch.Tensor  # [samples, length - 1] bool: the next token belongs to the prompt


def batches(folder: Path, mix: Mix, *, seed: int, tokens: int) -> Iterator[Batch]:
    """Batches of at most `tokens` padded tokens, for ever."""
    loader: Any = DataLoader(
        _Batches(folder, mix, seed, tokens), batch_size=None, num_workers=1, prefetch_factor=16
    )
    yield from loader


class _Batches(IterableDataset[Batch]):
    def __init__(self, folder: Path, mix: Mix, seed: int, tokens: int) -> None:
        self._folder, self._mix, self._seed, self._tokens = folder, mix, seed, tokens

    def __iter__(self) -> Iterator[Batch]:
        torch.set_num_threads(1)
        tokenizer = PreTrainedTokenizerFast.from_pretrained(self._folder)
        random = Random(derive_seed(self._seed, "samples"))
        families: dict[str, list[DemonstratedStep]] = {}
        for sample in self._mix.demonstrations:
            families.setdefault(sample.source, []).append(sample)
        names = sorted(families)
        while True:
            pool = []
            for _ in range(POOL):
                sample, least = self._draw(random, families, names)
                further = questions(random, sample.page, random.randint(least, MOST_QUESTIONS))
                pool.append(encode(tokenizer, sample, further))
            cut = list(_cut(sorted(pool, key=_length), self._tokens))
            random.shuffle(cut)
            for part in cut:
                yield collate(part, pad=int(tokenizer.pad_token_id))

    def _draw(
        self, random: Random, families: dict[str, list[DemonstratedStep]], names: Sequence[str]
    ) -> tuple[DemonstratedStep, int]:
        """A sample of some kind, and how many further questions about its page it needs at least."""
        draw = random.random()
        if names and draw < self._mix.share:
            return random.choice(families[random.choice(names)]), 0
        if self._mix.pages and draw < self._mix.share + self._mix.page_share:
            page = random.choice(self._mix.pages)
            asked = questions(random, page, 1)
            if asked:
                return DemonstratedStep(asked[0][0], (), page, asked[0][1], "reading"), 2
        return lookup(random, self._mix.vocabulary), 0


def _length(sample: Encoded) -> int:
    return len(sample.ids)


def _cut(samples: Sequence[Encoded], tokens: int) -> Iterator[list[Encoded]]:
    """Consecutive parts whose padded size fits; `samples` are sorted by length."""
    part: list[Encoded] = []
    for sample in samples:
        if part and _padded(sample) * (len(part) + 1) > tokens:
            yield part
            part = []
        part.append(sample)
    if part:
        yield part


def _padded(sample: Encoded) -> int:
    return -(-_length(sample) // STRIDE) * STRIDE


def collate(samples: Sequence[Encoded], *, pad: int) -> Batch:
    """Pad on the right and mark which targets belong to answer and prompt."""
    length = max(map(_padded, samples))
    ids = torch.full((len(samples), length), pad, dtype=torch.long)
    answer = torch.zeros((len(samples), length - 1), dtype=torch.bool)
    prompt = torch.zeros((len(samples), length - 1), dtype=torch.bool)
    for row, sample in enumerate(samples):
        end = len(sample.ids)
        ids[row, :end] = torch.tensor(sample.ids)
        answer[row, : end - 1] = torch.tensor(sample.answered[1:])
        prompt[row, : end - 1] = ~answer[row, : end - 1]
    return Batch(ids, answer, prompt)
