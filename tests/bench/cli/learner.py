"""`hindcast bench learner`."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

import typer

from bench.cli.policies import UNTIED, measured_policy
from bench.cli.printing import comparisons_report
from bench.comparison import Comparison, compare
from hindcast.app.cli.output import Report, say
from hindcast.core.errors import SettingsError
from hindcast.core.scratch import scratch_folder

GOAL = 0.9

app = typer.Typer()


@app.command("learner")
def learner(
    against: Annotated[
        Literal["bare", "itself"],
        typer.Option(help="A bare PyTorch loop, or the learner without what `--set` says."),
    ] = "bare",
    overrides: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="learner.KEY=VALUE", help="With --against itself: what is changed; repeatable."
        ),
    ] = None,
    repeats: Annotated[int, typer.Option(min=1, help="Pairs of measurements.")] = 5,
    episodes: Annotated[int, typer.Option(min=4, help="Recorded episodes in the batch.")] = 32,
    threads: Annotated[int, typer.Option(min=1, help="Threads of both.")] = 1,
    policy: Annotated[
        str | None,
        typer.Option(
            help="`base`, `untied` (a Llama of the same size with random weights, whose samples may stand in one row), or the "
            "folder of a Hugging Face causal model. Default: base; with --against itself: untied."
        ),
    ] = None,
    recipe: Annotated[str, typer.Option(help="Whose learner settings.")] = "mgrpo",
) -> Report:
    """Trained tokens per second of the learner's update, compared with a bare PyTorch loop with the same passes.

    With --against itself: what a setting changes about that, and about the memory it takes.

    Example: hindcast bench learner --against itself --set learner.gradient_checkpointing=true
    """
    if (against == "itself") != bool(overrides):
        raise SettingsError(
            "--against itself and --set learner.KEY=VALUE go together: the learner with the settings is compared with the learner without them"
        )
    chosen = policy or (UNTIED if against == "itself" else "base")
    with scratch_folder() as scratch:
        if against == "itself":
            measured = _beside_itself(
                chosen,
                recipe,
                overrides or [],
                scratch,
                repeats=repeats,
                episodes=episodes,
                threads=threads,
            )
        else:
            measured = _beside_bare(
                chosen, recipe, scratch, repeats=repeats, episodes=episodes, threads=threads
            )
        found = asyncio.run(measured)
    return comparisons_report(found)


async def _beside_itself(
    policy: str,
    recipe: str,
    overrides: Sequence[str],
    scratch: Path,
    *,
    repeats: int,
    episodes: int,
    threads: int,
) -> list[Comparison]:
    from bench.learner_ways import Way, compare_ways
    from hindcast.app.settings.configuration import resolve

    folder, common = measured_policy(policy, scratch), f"learner.threads={threads}"
    changed, standing = (
        Way(folder, resolve(recipe=recipe, overrides=[common, *more]).settings.learner, episodes)
        for more in (overrides, ())
    )
    if changed.settings == standing.settings:
        raise SettingsError(f"{', '.join(overrides)} changes nothing about the learner of {recipe}")
    return await compare_ways(changed, standing, words=", ".join(overrides), repeats=repeats, said=say)


async def _beside_bare(
    policy: str, recipe: str, scratch: Path, *, repeats: int, episodes: int, threads: int
) -> list[Comparison]:
    from bench.engine_calls import describe, recorded_episodes
    from bench.learner import Bare, Ours, made_up_batch, prepare
    from hindcast.app.settings.configuration import resolve

    prepare(threads)
    folder = measured_policy(policy, scratch)
    settings = resolve(recipe=recipe).settings.learner
    asked = recorded_episodes(episodes)
    work = made_up_batch(folder, asked, settings)
    ours, bare = Ours(folder, work, blobs=scratch), Bare(folder, work)

    async def train_ours() -> float:
        return ours.train()

    async def train_bare() -> float:
        return bare.train()

    compared = await compare(
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
    return [compared]
