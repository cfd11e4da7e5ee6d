"""What actors ask a policy engine: which prompts, how much of them is shared, how long the answers are.

`recorded_episodes` is what a real actor asked: episodes of groups of eight with the shipped policy at temperature 1, half
of them in the store and half in MiniWoB++, of families of the default recipe, in the order they were played.
`engine_calls.json` keeps of each prompt its length and how much of it an earlier prompt had already: speed depends on
nothing else. The other mixtures are made up of generated pages, in the actor's own prompts.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import msgspec

from hindcast.core.prompts.prompt import build_prompt
from hindcast.core.prompts.rendering import RENDERERS
from hindcast.core.settings.schema import ActorSettings
from tools.base_policy.lookups import lookup

SHAPES = Path(__file__).with_name("engine_calls.json")
GROUP = 8
"""Members of a group: they begin with the same page."""
WORDS = (50, 2000)
"""Token ids that stand for the texts of recorded prompts."""


class Call(NamedTuple):
    """One question to the policy."""

    prompt_ids: tuple[int, ...]
    answer_tokens: int


Episode = tuple[Call, ...]
"""The calls of one episode; each waits for the answer to the one before."""


class Shapes(msgspec.Struct, frozen=True):
    """The calls of recorded episodes without their texts."""

    prompts: list[tuple[int, int, int]]
    """Distinct prompts: an earlier one, how many leading tokens are the same, length."""
    episodes: list[list[tuple[int, int]]]
    """Per call: index of the prompt, tokens of the answer."""


def shapes_of(episodes: Iterable[Episode]) -> Shapes:
    """Keep nothing but lengths and what is shared."""
    index: dict[tuple[int, ...], int] = {}
    prompts: list[tuple[int, int, int]] = []
    calls: list[list[tuple[int, int]]] = []
    for episode in episodes:
        calls.append([])
        for call in episode:
            ids = call.prompt_ids
            if ids not in index:
                best = max(index, key=lambda other: shared(other, ids), default=())
                prompts.append((index.get(best, 0), shared(best, ids), len(ids)))
                index[ids] = len(index)
            calls[-1].append((index[ids], call.answer_tokens))
    return Shapes(prompts, calls)


def episodes_of(shapes: Shapes) -> list[Episode]:
    """Episodes with these lengths and shared beginnings, of made-up tokens."""
    random = Random(0)
    prompts: list[tuple[int, ...]] = []
    for other, same, length in shapes.prompts:
        beginning = prompts[other][:same] if prompts else ()
        rest = tuple(random.randrange(*WORDS) for _ in range(length - len(beginning)))
        prompts.append(beginning + rest)
    return [tuple(Call(prompts[prompt], tokens) for prompt, tokens in calls) for calls in shapes.episodes]


def recorded_episodes(count: int) -> list[Episode]:
    """The first `count` recorded episodes; all, when there are fewer."""
    return episodes_of(msgspec.json.decode(SHAPES.read_bytes(), type=Shapes))[:count]


def different_pages(tokenizer: Any, *, contexts: int, steps: int, answer_tokens: int) -> list[Episode]:
    """An episode per context, and no two prompts have a page in common: nothing but the opening words are shared."""
    random = Random(1)
    return [
        tuple(Call(_prompt(tokenizer, random), answer_tokens) for _ in range(steps)) for _ in range(contexts)
    ]


def groups(tokenizer: Any, *, contexts: int, steps: int, answer_tokens: int) -> list[Episode]:
    """Groups of eight whose members begin with the same page and then go ways of their own."""
    random = Random(2)
    found: list[Episode] = []
    for member in range(contexts):
        if member % GROUP == 0:
            first = Call(_prompt(tokenizer, random), answer_tokens)
        own = tuple(Call(_prompt(tokenizer, random), answer_tokens) for _ in range(steps - 1))
        found.append((first, *own))
    return found


def describe(episodes: Sequence[Episode]) -> str:
    """Counts and mean lengths, in words."""
    calls = [call for episode in episodes for call in episode]
    distinct = {call.prompt_ids for call in calls}
    prompt = sum(len(call.prompt_ids) for call in calls) / len(calls)
    answer = sum(call.answer_tokens for call in calls) / len(calls)
    return (
        f"{len(episodes)} episodes, {len(calls)} calls, {len(distinct)} distinct prompts of {prompt:.0f} tokens, "
        f"answers of {answer:.0f}"
    )


def shared(one: Sequence[int], other: Sequence[int]) -> int:
    """Leading tokens that two prompts have in common."""
    for place, (left, right) in enumerate(zip(one, other, strict=False)):
        if left != right:
            return place
    return min(len(one), len(other))


def _prompt(tokenizer: Any, random: Random) -> tuple[int, ...]:
    settings = ActorSettings()
    sample = lookup(random)
    prompt = build_prompt(
        tokenizer,
        instruction=sample.instruction,
        answers=sample.answers,
        page_text=RENDERERS[settings.renderer](sample.page),
        max_tokens=settings.max_prompt_tokens,
    )
    return tuple(prompt.ids)
