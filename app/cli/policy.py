"""`hindcast policy list`."""

import typer

from hindcast.app.cli.options import AsOf, Json, SourceName
from hindcast.app.cli.output import print_json, print_table, rate, shorten
from hindcast.app.cli.read_model import asking, position_at
from hindcast.storage.readmodel.queries import list_policies

app = typer.Typer(name="policy", help="Policy versions: exact weights.", no_args_is_help=True)

DIGEST_WIDTH = 13


@app.command("list")
def list_all(run: SourceName = None, as_of: AsOf = None, as_json: Json = False) -> None:
    """List policy versions, newest first, with the success of the online episodes that each began.

    Example: hindcast policy list --json
    """
    with asking(run) as connection:
        found = list_policies(connection, as_of=position_at(connection, as_of))
    if as_json:
        print_json({"policies": found})
        return
    print_table(
        ("version", "update", "success", "sampled by", "position", "weights", "kept"),
        [
            (
                p.version,
                p.at_update,
                rate(p.success),
                ", ".join(p.adopted_by),
                p.published_position,
                shorten(p.sha256, DIGEST_WIDTH),
                not p.released,
            )
            for p in found
        ],
        empty="No policy version is published yet.",
    )
