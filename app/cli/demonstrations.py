"""`hindcast demonstrations import`."""

import asyncio
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from hindcast.app.cli.bars import progress_bar
from hindcast.app.cli.options import Json
from hindcast.app.cli.output import print_json, print_text
from hindcast.app.imports.documents import Format
from hindcast.app.runs.runs import RunHandle, list_runs
from hindcast.app.runs.selection import select_run
from hindcast.app.settings.configuration import resolve
from hindcast.app.system.home import home_folder
from hindcast.app.system.system import holding

app = typer.Typer(name="demonstrations", help="Import demonstrations from files.", no_args_is_help=True)


@app.callback()
def group() -> None:
    """Import demonstrations from files."""


@app.command("import")
def import_file(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="JSONL file; for atif a trajectory or a folder of them.")
    ],
    format_name: Annotated[Format, typer.Option("--format", help="Format of the file.")] = "jsonl",
    run: Annotated[
        str | None, typer.Argument(metavar="RUN", help="Run that takes them; created if it does not exist.")
    ] = None,
    recipe: Annotated[str | None, typer.Option(help="Recipe of a new run.")] = None,
    overrides: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="A setting of a new run; repeatable."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Import episodes from a file into a run's log as demonstrations for cloning. The run must not be running.

    It checks everything first: if one episode is invalid, it names file, line and key, and appends nothing. It skips episodes
    that the log has already, so the same command resumes an interrupted import. For the file formats, see docs/exports.md.

    Example: hindcast demonstrations import lines/episodes.jsonl taught --recipe sft
    """
    from hindcast.app.imports.import_documents import import_documents, try_out  # loads transformers

    home = home_folder()
    with holding(home):  # actors of a system started meanwhile would play the appended requests
        names, making = list_runs(home), bool(recipe or overrides)

        def chosen() -> RunHandle:
            return select_run(home, name=run, recipe=recipe, overrides=overrides or ())

        exists = run in names or (run is None and bool(names) and not making)
        settings = chosen().settings if exists else resolve(recipe=recipe, overrides=overrides or ()).settings
        with progress_bar(as_json=as_json) as bar:
            checking = bar.add_task("checking", total=None)
            number = asyncio.run(
                try_out(
                    file,
                    settings,
                    format_name=format_name,
                    said=lambda at: bar.update(checking, completed=at),
                )
            )
            handle = chosen()  # created only now that everything is valid
            writing = bar.add_task("appending", total=number)
            done = asyncio.run(
                import_documents(
                    handle, file, format_name=format_name, said=lambda at: bar.update(writing, completed=at)
                )
            )
    if as_json:
        print_json(msgspec.to_builtins(done))
        return
    said = ", ".join(f"{count} {outcome}" for outcome, count in done.outcomes.items())
    print_text(
        f"run {done.run}: {done.episodes} demonstrations of {done.steps} steps appended"
        + (f" (by the rules: {said})" if said else "")
        + (f", {done.present} were there" if done.present else "")
    )
    print_text(
        f"To judge and train on them: hindcast start {done.run} (it takes as many as its curriculum.demonstrations says)"
    )
