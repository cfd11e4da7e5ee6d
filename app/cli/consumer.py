"""`hindcast consumer list / show / forget`."""

import asyncio
from typing import Annotated, Any

import msgspec
import typer

from hindcast.app.attach.attachment import consumers_folder, detached, store_url
from hindcast.app.attach.consumers import list_consumers
from hindcast.app.attach.store import ConsumerStore
from hindcast.app.cli.options import Json, Limit, RunName
from hindcast.app.cli.output import print_fields, print_json, print_table, print_text, shorten
from hindcast.app.runs.runs import RunHandle, open_run
from hindcast.app.system.processes import read_json
from hindcast.app.watch.rendering import seconds
from hindcast.core.errors import HindcastError
from hindcast.core.text.nearest import advice

app = typer.Typer(name="consumer", help="List consumers of a run's log and their lag.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(help="Name of an attached consumer.")]
StoreUrl = Annotated[
    str,
    typer.Option("--store", metavar="URL", help="Database with its position, if not its own file."),
]
DETAIL_WIDTH = 70


class NoSuchConsumer(HindcastError):
    """No consumer of this name was ever attached to the run."""


@app.command("list")
def list_all(
    run: RunName = None,
    store: Annotated[
        list[str] | None,
        typer.Option(metavar="URL", help="Also consumers with their position in this database; repeatable."),
    ] = None,
    as_json: Json = False,
) -> None:
    """List every consumer with its lag in time and in events: the roles, work queues, and attached consumers.

    Example: hindcast consumer list run-1 --json
    """
    handle = open_run(run)
    rows = asyncio.run(list_consumers(handle, stores=tuple(store or ())))
    if as_json:
        print_json({"run": handle.name, "consumers": rows})
        return
    print_table(
        ("consumer", "kind", "state", "lag", "events", "position", "set aside", "detail"),
        [
            (
                row.name,
                row.kind,
                row.state,
                seconds(row.lag_s),
                row.lag_events,
                row.position,
                row.dead_letters,
                shorten(row.detail or row.target, DETAIL_WIDTH),
            )
            for row in rows
        ],
        empty="No consumer reads this run.",
    )


@app.command("show")
def show_one(
    name: Name, run: RunName = None, store: StoreUrl = "", limit: Limit = 20, as_json: Json = False
) -> None:
    """Show an attached consumer's position, its state if it is a fold, and the events it set aside.

    Example: hindcast consumer show success_watcher --json
    """
    handle = open_run(run)
    opened = _store(handle, name, store)
    try:
        standing = next((one for one in opened.standings(handle.name) if one.name == name), None)
        if standing is None:
            raise _unknown(handle, name, opened)
        number, letters = opened.dead_letters(handle.name, name, limit=limit)
    finally:
        opened.close()
    state: Any = None if standing.state is None else msgspec.msgpack.decode(standing.state)
    if as_json:
        print_json(
            {
                "name": name,
                "run": handle.name,
                "target": standing.target,
                "host": standing.host,
                "store": opened.shown_url,
                "position": standing.position,
                "state": state,
                "dead_letters": {"number": number, "newest": letters},
            }
        )
        return
    print_fields(
        [
            ("consumer", name),
            ("run", handle.name),
            ("target", standing.target),
            ("position", standing.position),
            ("store", opened.shown_url),
            ("state", None if state is None else msgspec.json.encode(state).decode()),
            ("set aside", number),
        ]
    )
    if letters:
        print_text("")
        print_table(
            ("position", "type", "error"),
            [(one.position, one.type, shorten(one.error, DETAIL_WIDTH)) for one in letters],
            empty="",
        )


@app.command("forget")
def forget(name: Name, run: RunName = None, store: StoreUrl = "", as_json: Json = False) -> None:
    """Delete an attached consumer's position, state and SQLite file; the next attach starts anew.

    Example: hindcast consumer forget success_watcher
    """
    handle = open_run(run)
    with detached(handle, name):
        opened = _store(handle, name, store)
        try:
            if not any(one.name == name for one in opened.standings(handle.name)):
                raise _unknown(handle, name, opened)
            opened.forget(handle.name, name)
        finally:
            opened.close()
        if opened.shown_url == store_url(handle, name) and opened.file is not None:
            for ending in ("", "-wal", "-shm"):
                opened.file.with_name(opened.file.name + ending).unlink(missing_ok=True)
        (consumers_folder(handle.folder) / f"{name}.json").unlink(missing_ok=True)
    if as_json:
        print_json({"forgotten": name, "run": handle.name})
    else:
        print_text(f"{name} is forgotten; attached again, it starts anew")


def _store(handle: RunHandle, name: str, url: str) -> ConsumerStore:
    """The given store, else the one that the consumer last used."""
    told = read_json(consumers_folder(handle.folder) / f"{name}.json") or {}
    return ConsumerStore(url or told.get("store") or store_url(handle, name))


def _unknown(handle: RunHandle, name: str, store: ConsumerStore) -> NoSuchConsumer:
    names = sorted(path.stem for path in consumers_folder(handle.folder).glob("*.json"))
    return NoSuchConsumer(
        f"no consumer called {name!r} has a position for run {handle.name} in {store.shown_url}; among those attached "
        f"here {advice(name, names)}. Run: hindcast consumer list"
    )
