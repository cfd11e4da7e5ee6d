"""How the base policy that ships with Hindcast is made: record, build, measure, ship.

From a checkout: `PYTHONPATH=tests .venv/bin/python -m tools.base_policy make FOLDER`.
"""

import asyncio
from pathlib import Path
from random import Random
from typing import Annotated

import typer

from hindcast.app.settings.configuration import resolve
from hindcast.core.models.folders import base_policy_folder
from tools.base_policy.building import PHASES, build
from tools.base_policy.folder import export
from tools.base_policy.lookups import lookup
from tools.base_policy.measuring import exactness
from tools.base_policy.recording import record_all, train_base
from tools.base_policy.samples import read_samples

app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False)

Folder = Annotated[Path, typer.Argument(help="Folder of the policy.")]
Demonstrations = Annotated[Path, typer.Option(help="Recorded demonstrations, a JSON object a line.")]


@app.command("make")
def make_command(
    folder: Folder,
    seed: Annotated[int, typer.Option(help="Fixes pages, order and the first weights.")] = 11,
    minutes: Annotated[
        float, typer.Option(min=1.0, help="Training time, on two cores that do nothing else.")
    ] = 137.0,
) -> None:
    """Record demonstrations in a browser, then train from nothing."""
    recorded = asyncio.run(record_all(folder, settings=resolve().settings))
    typer.echo(f"{recorded} steps of demonstrations recorded in {folder}; training for {minutes:g} minutes")
    train_base(folder, minutes=minutes, seed=seed)
    typer.echo(f"the policy lies in {folder}. Try it: hindcast eval --policy {folder} --suite store")


@app.command("build")
def build_command(
    folder: Folder,
    demonstrations: Demonstrations,
    words: Annotated[Path, typer.Option(help="Words of the sites, one a line.")],
    seed: Annotated[int, typer.Option(help="Fixes fresh weights and samples.")] = 11,
    minutes: Annotated[float, typer.Option(help="All phases together; they shrink in proportion.")] = 137.0,
) -> None:
    """Train from nothing."""
    scale = minutes / sum(phase.minutes for phase in PHASES)
    phases = [phase._replace(minutes=phase.minutes * scale) for phase in PHASES]
    build(folder, demonstrations=demonstrations, words=words.read_text().split(), seed=seed, phases=phases)


@app.command("measure")
def measure_command(
    folder: Folder,
    demonstrations: Annotated[Path | None, typer.Option(help="Recorded demonstrations.")] = None,
    lookups: Annotated[int, typer.Option(help="Generated look-ups.")] = 1000,
    seed: Annotated[int, typer.Option(help="Of the look-ups; training never uses negative seeds.")] = -1,
) -> None:
    """Print the share of exact greedy answers by kind."""
    random = Random(seed)
    samples = [lookup(random) for _ in range(lookups)]
    samples += read_samples(demonstrations) if demonstrations else ()
    for source, found in exactness(folder, samples).items():
        typer.echo(f"{source:32} {found.exact:5} of {found.samples:5}  {found.exact / found.samples:6.1%}")


@app.command("ship")
def ship_command(folder: Folder) -> None:
    """Copy a trained policy to where the base policy ships from."""
    export(folder, base_policy_folder())


if __name__ == "__main__":
    app()
