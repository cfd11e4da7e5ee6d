"""Build the site: `PYTHONPATH=tests python -m tools.docs_site [--to FOLDER] [--home HOME]`, as `make docs` does."""

import asyncio
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Annotated

import typer

from hindcast.app.cli import exit_with_error
from hindcast.core.errors import HindcastError
from hindcast.core.scratch import scratch_folder
from tools.docs_site.pictures import make_run, take_pictures
from tools.docs_site.site import configuration, write_pages

BUILT_S = 300.0
"""Building takes seconds."""


def build(
    to: Annotated[Path, typer.Option(help="Folder of the site; what stood in it goes.")] = Path("build/site"),
    home: Annotated[
        Path | None, typer.Option(help="Home whose newest run is shown, instead of training one.")
    ] = None,
) -> None:
    """Train a small run, take pictures of its pages, write the references, build the site."""
    with scratch_folder() as work:
        if home is None:
            home = work / "home"
            typer.echo("training a small run to show (about a minute)")
            make_run(home)
        typer.echo("taking pictures of its pages")
        pictures = asyncio.run(take_pictures(home, work / "pictures"))
        (work / "zensical.toml").write_text(configuration(write_pages(work / "pages", pictures)))
        subprocess.run(
            [sys.executable, "-m", "zensical", "build", "--clean"], cwd=work, check=True, timeout=BUILT_S
        )
        shutil.rmtree(to, ignore_errors=True)
        shutil.copytree(work / "site", to)
    typer.echo(f"the site is in {to}: python -m http.server -d {to}")


if __name__ == "__main__":
    try:
        typer.run(build)
    except HindcastError as error:
        exit_with_error(error)
