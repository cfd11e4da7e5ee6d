"""`hindcast train`: the offline parts."""

import asyncio
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from hindcast.app.cli.bars import progress_bar
from hindcast.app.cli.options import Json
from hindcast.app.cli.output import print_json, print_text
from hindcast.app.settings.configuration import resolve
from hindcast.app.system.private_home import users_umask
from hindcast.app.system.supervisor import home_folder

app = typer.Typer(name="train", help="Offline training.", no_args_is_help=True)


class TrainedPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """What a training left."""

    folder: str
    demonstrations: int
    """Recorded steps it learned from."""


@app.callback()
def group() -> None:
    """Offline training."""


@app.command("base")
def base(
    folder: Annotated[Path, typer.Option(help="Where demonstrations and the policy are written.")] = Path(
        "base-policy"
    ),
    minutes: Annotated[
        float, typer.Option(min=1.0, help="Training time, on two cores that do nothing else.")
    ] = 137.0,
    seed: Annotated[int, typer.Option(help="Fixes pages, order and the first weights.")] = 11,
    as_json: Json = False,
) -> None:
    """Make the base policy again: record demonstrations in a browser, then train from nothing.

    Its reading is measured by `python -m hindcast.learner.base_policy measure FOLDER`; `hindcast eval --policy FOLDER` plays.

    Example: hindcast train base --folder base-policy --minutes 137
    """
    from hindcast.app.demonstrations.base_policy import record_all, train_base  # loads torch

    with progress_bar(as_json=as_json) as bar:
        bar.add_task("recording demonstrations", total=None)
        with users_umask(folder, home_folder()):
            recorded = asyncio.run(record_all(folder, settings=resolve().settings))
    if not as_json:
        print_text(f"{recorded} steps of demonstrations recorded in {folder}")
    with progress_bar(as_json=as_json) as bar:
        bar.add_task(f"training for {minutes:g} minutes", total=None)
        with users_umask(folder, home_folder()):
            train_base(folder, minutes=minutes, seed=seed)
    if as_json:
        print_json(TrainedPolicy(folder=str(folder), demonstrations=recorded))
    else:
        print_text(f"the policy lies in {folder}. Try it: hindcast eval --policy {folder} --suite store")
