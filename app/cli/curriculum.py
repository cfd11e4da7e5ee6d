"""`hindcast curriculum show`."""

import typer

from hindcast.app.cli.options import AsOf, Json, SourceName
from hindcast.app.cli.output import print_json, print_table, rate, show
from hindcast.app.cli.read_model import asking, position_at
from hindcast.storage.readmodel.phases import list_phases
from hindcast.storage.readmodel.results import PhaseRow

app = typer.Typer(
    name="curriculum", help="The curriculum: phases and their generated tasks.", no_args_is_help=True
)


@app.command("show")
def show_phases(run: SourceName = None, as_of: AsOf = None, as_json: Json = False) -> None:
    """Show the phases: tasks proposed, admitted and rejected, the critic's values, and the success on the phase's tasks.

    For single tasks with values and reasons: hindcast task list --phase N.

    Example: hindcast curriculum show
    """
    with asking(run) as connection:
        found = list_phases(connection, as_of=position_at(connection, as_of))
    if as_json:
        print_json({"phases": found})
        return
    print_table(
        ("phase", "policy", "proposed", "admitted", "rejected", "values", "episodes", "success", "revisits"),
        [
            (
                p.phase,
                p.reference_version,
                p.proposed,
                p.admitted,
                p.rejected,
                _values(p),
                p.episodes,
                rate(p.success),
                rate(p.revisits),
            )
            for p in found
        ],
        empty="No phase has begun yet.",
    )


def _values(phase: PhaseRow) -> str:
    """Lowest, median and highest value, and their number."""
    if not phase.valued:
        return show(None)
    low, middle, high = map(show, (phase.value_low, phase.value_median, phase.value_high))
    return f"{low} / {middle} / {high} n={phase.valued}"
