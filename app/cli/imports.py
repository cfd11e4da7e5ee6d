"""`hindcast import`: brings a run into this home, from an archive or from the log of another system."""

import asyncio
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hindcast.app.cli.archive import Bars
from hindcast.app.cli.bars import progress_bar
from hindcast.app.cli.output import Block, Report
from hindcast.app.imports import IMPORTERS
from hindcast.app.imports.importer import find_importer
from hindcast.app.runs.import_archive import ImportedRun, carry_out, plan_import
from hindcast.app.runs.runs import RunHandle, list_runs
from hindcast.app.runs.selection import select_run
from hindcast.app.settings.configuration import resolve
from hindcast.app.system.home import home_folder
from hindcast.app.system.system import holding
from hindcast.core.errors import SettingsError
from hindcast.core.plugins import plugin_names
from hindcast.core.text.counts import count_of
from hindcast.core.text.nearest import advice

if TYPE_CHECKING:
    from hindcast.app.imports.import_documents import ImportedEpisodes

ARCHIVE = "archive"
"""Format of Hindcast's own archives."""

app = typer.Typer()


def _known_format(name: str) -> str:
    names = (ARCHIVE, *plugin_names(IMPORTERS))
    if ":" not in name and name not in names:
        raise typer.BadParameter(f"{name!r} is not a format; {advice(name, names)}")
    return name


@app.command("import")
def import_run(
    source: Annotated[
        Path, typer.Argument(metavar="SOURCE", help="Folder of an archive, or another system's log.")
    ],
    run: Annotated[
        str | None,
        typer.Argument(metavar="RUN", help="Run that gets another system's episodes; created if new."),
    ] = None,
    format_name: Annotated[
        str,
        typer.Option(
            "--format",
            metavar="FORMAT",
            callback=_known_format,
            help=f"Format of the source: {', '.join((ARCHIVE, *plugin_names(IMPORTERS)))}, or module:object.",
        ),
    ] = ARCHIVE,
    overrides: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="A setting of a new run; repeatable."),
    ] = None,
) -> Report:
    """Import a run into this home: an archive, or the log of another system.

    An archive keeps its name, positions, ids and bytes, and can be resumed. It is checked before, and read back after.
    Another system's log becomes text episodes with its groups, versions and rewards, which are never trained on.
    The same command resumes an interrupted import. For the formats, see docs/exports.md.

    Example: hindcast import /backup/run-1
    """
    if format_name == ARCHIVE:
        if run is not None or overrides:
            raise SettingsError(
                "an archive keeps its run's name and settings: omit RUN and --set, or name another system's format with --format"
            )
        return _import_archive(source)
    judge = find_importer(format_name).judge
    needed = ('actors.answer_format="text"', f'judge.judges=["{judge}"]')
    done = import_file_into(source, run, format_name=format_name, overrides=overrides or (), needed=needed)
    return Report(
        done,
        [
            imported_text(done, "episodes"),
            f"To see them: hindcast episode list {done.run} · hindcast audit {done.run} · hindcast rejudge {done.run} · "
            "hindcast page",
        ],
    )


def import_file_into(
    file: Path,
    run: str | None,
    *,
    format_name: str,
    recipe: str | None = None,
    overrides: Sequence[str] = (),
    needed: Sequence[str] = (),
) -> "ImportedEpisodes":
    """Check a file, then append its episodes to a run, which is created if it does not exist.

    `needed`: settings of a new run that the format needs, unless `overrides` has others.

    Raises:
        ImportRefused: an episode is invalid; nothing was appended.
        SettingsError: the run's system is running, or a setting is wrong.

    """
    from hindcast.app.imports.import_documents import import_documents, try_out  # loads transformers

    home = home_folder()
    with holding(home):  # actors of a system that starts meanwhile would play the appended requests
        names, making = list_runs(home), bool(recipe or overrides or needed)
        exists = run in names or (run is None and bool(names) and not making)
        given = overrides if exists else (*needed, *overrides)

        def chosen() -> RunHandle:
            return select_run(home, name=run, recipe=recipe, overrides=given)

        settings = chosen().settings if exists else resolve(recipe=recipe, overrides=given).settings
        with progress_bar() as bar:
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
            return asyncio.run(
                import_documents(
                    handle, file, format_name=format_name, said=lambda at: bar.update(writing, completed=at)
                )
            )


def imported_text(done: "ImportedEpisodes", noun: str) -> str:
    """What was appended, in one line."""
    said = ", ".join(f"{count} {outcome}" for outcome, count in done.outcomes.items())
    by = "the rules" if done.judge == "rules" else done.judge
    return (
        f"run {done.run}: {done.episodes} {noun} of {count_of(done.steps, 'step')} appended"
        + (f" (by {by}: {said})" if said else "")
        + (f", {done.abandoned} of them abandoned" if done.abandoned else "")
        + (f", {done.present} were there" if done.present else "")
    )


def _import_archive(folder: Path) -> Report:
    with progress_bar() as bar:
        bars = Bars(bar)
        plan = plan_import(folder, on_event=lambda at: bars.events(at, None))
        last = plan.run.last
        done = asyncio.run(carry_out(plan, on_event=lambda at: bars.events(at, last), on_blob=bars.blobs))
    return Report(done, _archive_text(done))


def _archive_text(done: ImportedRun) -> Iterator[Block]:
    ancestors = f", with its ancestors {', '.join(done.ancestors)}" if done.ancestors else ""
    yield (
        f"run {done.run}{ancestors}: {count_of(done.events, 'event')} and {count_of(done.blobs, 'blob')} imported into "
        f"{done.home}; positions "
        f"{done.first} to {done.last} read back as archived"
    )
    for key, value in done.changed.items():
        yield f"setting {key} = {value} replaces the location on the former machine"
    if done.missing_blobs:
        yield f"{done.missing_blobs} blobs that its events name were not in the archive"
    yield f"To look at it: hindcast rebuild {done.run}. To resume it: hindcast start {done.run}"
