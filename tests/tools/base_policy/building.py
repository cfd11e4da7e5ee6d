"""The whole way from words and demonstrations to a policy folder: tokenizer, look-ups, then look-ups mixed with both.

Nothing here opens a browser: demonstrations and the sites' words come as files (`hindcast train base` records them).
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random
from typing import NamedTuple

from hindcast.actors.environments.base import DemonstratedStep
from hindcast.core.grammar.answer_parser import format_answer
from hindcast.core.prompts.rendering import RENDERERS
from hindcast.core.seeds import derive_seed
from tools.base_policy.folder import create
from tools.base_policy.lookups import lookup
from tools.base_policy.mix import CLONED, GLIMPSED, HASTY, choose
from tools.base_policy.samples import RENDERER, read_samples
from tools.base_policy.tokenizer import train_tokenizer
from tools.base_policy.training import Plan, train

TOKENIZER_LOOKUPS = 12_000
"""Generated pages that the tokenizer learns its merges from."""
WORD_REPEATS = 40
"""How often each word of the sites counts: enough to become one token."""


class Phase(NamedTuple):
    """One stretch of training and its data."""

    minutes: float
    rate: float
    share: float
    """Of demonstrations."""
    page_share: float
    """Of recorded pages that are only asked about."""
    glimpses: bool = False
    """Whether the glimpsed families are imitated too."""
    haste: bool = False
    """Whether the demonstrators of some families are in haste."""


PHASES = (
    Phase(minutes=15, rate=2e-3, share=0.0, page_share=0.0),
    Phase(minutes=20, rate=2e-3, share=0.25, page_share=0.2),
    Phase(minutes=25, rate=1.6e-3, share=0.28, page_share=0.2),
    Phase(minutes=22, rate=1.2e-3, share=0.35, page_share=0.15, glimpses=True),
    Phase(minutes=45, rate=1.2e-3, share=0.3, page_share=0.15, glimpses=True),
    Phase(minutes=10, rate=8e-4, share=0.45, page_share=0.15, glimpses=True, haste=True),
)
"""Look-ups until copying has emerged, then everything; the rate is started anew each time."""


def build(
    folder: Path,
    *,
    demonstrations: Path,
    words: Sequence[str],
    seed: int = 11,
    phases: Sequence[Phase] = PHASES,
) -> None:
    """Create the folder and run every phase. Raises SampleFileError when the demonstrations cannot be read."""
    recorded = list(read_samples(demonstrations))
    vocabulary = tuple(words)
    create(folder, train_tokenizer(_texts(recorded, vocabulary, seed)), seed=seed)
    for number, phase in enumerate(phases):
        mix = choose(
            recorded,
            imitated=CLONED | GLIMPSED if phase.glimpses else CLONED,
            share=phase.share,
            page_share=phase.page_share,
            vocabulary=vocabulary,
            hasty=HASTY if phase.haste else (),
        )
        plan = Plan(minutes=phase.minutes, rate=phase.rate, seed=derive_seed(seed, "phase", number))
        train(folder, mix, plan)


def _texts(recorded: Sequence[DemonstratedStep], vocabulary: tuple[str, ...], seed: int) -> Iterator[str]:
    """Texts as prompts and answers hold them."""
    random = Random(derive_seed(seed, "tokenizer"))
    for sample in recorded:
        yield from _parts(sample)
    for _ in range(TOKENIZER_LOOKUPS):
        yield from _parts(lookup(random, vocabulary))
    for word in vocabulary:
        yield from [f" {word}"] * WORD_REPEATS


def _parts(sample: DemonstratedStep) -> Iterator[str]:
    yield f"Task Instruction: {sample.instruction}"
    yield RENDERERS[RENDERER](sample.page)
    yield format_answer(sample.action, sample.page)
