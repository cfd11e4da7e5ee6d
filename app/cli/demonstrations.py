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

app = typer.Typer(
    name="demonstrations", help="Demonstrations that were made elsewhere.", no_args_is_help=True
)


@app.callback()
def group() -> None:
    """Demonstrations that were made elsewhere."""


@app.command("import")
def import_file(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="JSONL, or of atif a trajectory or a folder of them.")
    ],
    format_name: Annotated[Format, typer.Option("--format", help="What the file holds.")] = "jsonl",
    run: Annotated[
        str | None, typer.Argument(metavar="RUN", help="Which run takes them; made if there is none.")
    ] = None,
    recipe: Annotated[str | None, typer.Option(help="Recipe of a new run.")] = None,
    overrides: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="A setting of a new run; repeatable."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Take episodes from a file into a run's log as demonstrations, which cloning trains on. Not while the run is worked on.

    Everything is checked first: one that does not fit is named with file, line and key, and nothing is appended. What the log
    has already is passed over, so an interrupted import goes on with the same command. docs/exports.md says what files hold.

    Example: hindcast demonstrations import lines/episodes.jsonl taught --recipe sft
    """
    from hindcast.app.imports.import_documents import import_documents, try_out  # loads transformers

    home = home_folder()
    with holding(home):  # a system that began meanwhile would have its actors play what is appended
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
            handle = chosen()  # made only now that everything fits
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
        f"They are judged and trained on by: hindcast start {done.run}, as many as its curriculum.demonstrations says"
    )
