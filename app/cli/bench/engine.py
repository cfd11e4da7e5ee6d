"""`hindcast bench engine`."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer

from app.bench.comparison import Comparison, compare
from app.cli.bench.printing import print_comparisons
from app.cli.options import Json
from app.cli.output import say

GOAL = 5.0
LENGTHS = (12, 24, 40)
"""Answers of the base policy are 6 to 16 tokens long, of policies that explain themselves longer."""

app = typer.Typer()


@app.command("engine")
def engine(
    repeats: Annotated[int, typer.Option(min=1, help="Pairs of measurements.")] = 5,
    contexts: Annotated[int, typer.Option(min=1, help="Calls under way at the same time.")] = 16,
    episodes: Annotated[int, typer.Option(min=1, help="Recorded episodes to ask.")] = 48,
    steps: Annotated[int, typer.Option(min=2, help="Calls of each made-up episode.")] = 4,
    threads: Annotated[int, typer.Option(min=1, help="Threads of both.")] = 1,
    policy: Annotated[
        str, typer.Option(help="`base`, or the folder of a Hugging Face causal model.")
    ] = "base",
    as_json: Json = False,
) -> None:
    """Output tokens per second of the policy engine, beside one `generate()` after the other.

    Example: hindcast bench engine --repeats 5
    """
    with TemporaryDirectory(prefix="hindcast-engine-") as scratch:
        found = asyncio.run(
            _measure(
                policy,
                Path(scratch),
                repeats=repeats,
                contexts=contexts,
                episodes=episodes,
                steps=steps,
                threads=threads,
            )
        )
    print_comparisons(found, as_json=as_json)


async def _measure(
    policy: str, scratch: Path, *, repeats: int, contexts: int, episodes: int, steps: int, threads: int
) -> Sequence[Comparison]:
    from app.bench.engine import Answering, write_endless
    from app.bench.engine_calls import Episode, describe, different_pages, groups, recorded_episodes
    from core.models.folders import policy_folder
    from core.models.policy import load_policy

    folder = write_endless(policy_folder(policy), scratch)
    tokenizer = load_policy(folder).tokenizer
    mixtures: dict[str, list[Episode]] = {"as actors ask (recorded)": recorded_episodes(episodes)}
    for length in LENGTHS:
        mixtures[f"groups of 8, answers of {length}"] = groups(
            tokenizer, contexts=contexts, steps=steps, answer_tokens=length
        )
        mixtures[f"no page twice, answers of {length}"] = different_pages(
            tokenizer, contexts=contexts, steps=steps, answer_tokens=length
        )
    answering = Answering(folder, contexts=contexts, threads=threads)
    found: list[Comparison] = []
    for figure, asked in mixtures.items():
        found.append(
            await compare(
                lambda asked=asked: answering.ours(asked),  # type: ignore[misc]
                lambda asked=asked: answering.one_at_a_time(asked),  # type: ignore[misc]
                figure=figure,
                unit="tokens/CPU s",
                peer_name="generate()",
                goal=GOAL,
                repeats=repeats,
                detail=f"{describe(asked)}; {contexts} contexts, {threads} thread",
                said=say,
            )
        )
    return found
