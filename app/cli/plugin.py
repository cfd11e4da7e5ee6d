"""`hindcast plugin list` and `hindcast plugin check`."""

from typing import Annotated

import typer

from hindcast.app.cli.options import Json
from hindcast.app.cli.output import print_json, print_table, print_text
from hindcast.app.plugins import find_plugins

app = typer.Typer(name="plugin", help="Plugins: algorithms that any package may bring.", no_args_is_help=True)

Kind = Annotated[str | None, typer.Option(help="Plugins of this kind alone, such as algorithms.")]


@app.command("list")
def list_plugins(kind: Kind = None, as_json: Json = False) -> None:
    """List the plugins that installed packages declare, Hindcast's own included.

    Example: hindcast plugin list --kind algorithms --json
    """
    found = find_plugins(kind)
    if as_json:
        print_json({"plugins": found})
        return
    rows = [
        (finding.kind, finding.name, "cannot be loaded", "", "", None)
        if (one := finding.identity) is None
        else (one.kind, one.name, one.distribution, one.version, one.module, one.state_version)
        for finding in found
    ]
    print_table(("kind", "name", "distribution", "version", "module", "state"), rows, empty="no plugins")


@app.command("check")
def check_plugins(
    name: Annotated[
        str | None, typer.Argument(help="A plugin's name, or module:object; default: every plugin.")
    ] = None,
    kind: Kind = None,
    as_json: Json = False,
) -> None:
    """Load plugins and say whether a run can use them. Exit code 1 where one cannot be used.

    Example: hindcast plugin check grpo --json
    """
    found = find_plugins(kind, name)
    if as_json:
        print_json({"plugins": found})
    for finding in () if as_json else found:
        print_text(f"{'FAILED' if finding.problems else 'ok    '}  {finding.kind} {finding.name}")
        for problem in finding.problems:
            print_text(f"        -> {problem}")
    if any(finding.problems for finding in found):
        raise typer.Exit(1)
