"""`hindcast bench learner`."""

import asyncio
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer

from app.bench.comparison import Comparison, compare
from app.cli.bench.printing import print_comparisons
from app.cli.options import Json
from app.cli.output import say

GOAL = 0.9

app = typer.Typer()


@app.command("learner")
def learner(
    repeats: Annotated[int, typer.Option(min=1, help="Pairs of measurements.")] = 5,
    episodes: Annotated[int, typer.Option(min=4, help="Recorded episodes in the batch.")] = 32,
    threads: Annotated[int, typer.Option(min=1, help="Threads of both.")] = 1,
    policy: Annotated[
        str, typer.Option(help="`base`, or the folder of a Hugging Face causal model.")
    ] = "base",
    recipe: Annotated[str, typer.Option(help="Whose learner settings.")] = "mgrpo",
    as_json: Json = False,
) -> None:
    """Trained tokens per second of the learner's update, beside a bare PyTorch loop with the same passes.

    Example: hindcast bench learner --repeats 5
    """
    with TemporaryDirectory(prefix="hindcast-learner-") as scratch:
        found = asyncio.run(
            _measure(policy, recipe, Path(scratch), repeats=repeats, episodes=episodes, threads=threads)
        )
    print_comparisons([found], as_json=as_json)


async def _measure(
    policy: str, recipe: str, scratch: Path, *, repeats: int, episodes: int, threads: int
) -> Comparison:
    from app.bench.engine_calls import describe, recorded_episodes
    from app.bench.learner import Bare, Ours, made_up_batch, prepare
    from app.configuration import resolve
    from core.models.folders import policy_folder

    prepare(threads)
    folder = policy_folder(policy)
    settings = resolve(recipe=recipe).settings.learner
    asked = recorded_episodes(episodes)
    work = made_up_batch(folder, asked, settings)
    ours, bare = Ours(folder, work, blobs=scratch), Bare(folder, work)

    async def train_ours() -> float:
        return ours.train()

    async def train_bare() -> float:
        return bare.train()

    return await compare(
        train_ours,
        train_bare,
        figure="update, from plan to fact",
        unit="tokens/CPU s",
        peer_name="bare PyTorch loop",
        goal=GOAL,
        repeats=repeats,
        detail=f"{describe(asked)}; {work.tokens} tokens in 2 mini-batches, {threads} thread",
        said=say,
    )
