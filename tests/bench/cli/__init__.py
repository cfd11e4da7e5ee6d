"""`hindcast bench …`: our figures beside those of peers or limits, measured in one run.

Each benchmark is a module here with an `app` of one command; what it measures is in `bench`.
"""

import typer

from bench.cli import (
    actor,
    asynchrony,
    branch,
    engine,
    learner,
    leave_out,
    log,
    memory,
    page,
    profile,
    ranks,
    recipes,
    recompute,
    replay,
    starts,
)
from bench.cli.stopping import taking_children_along

PARTS: tuple[typer.Typer, ...] = (
    actor.app,
    engine.app,
    log.app,
    learner.app,
    ranks.app,
    recompute.app,
    asynchrony.app,
    starts.app,
    memory.app,
    profile.app,
    replay.app,
    page.app,
    recipes.app,
    branch.app,
    leave_out.app,
)
"""In the order of the help."""

app = typer.Typer(
    name="bench",
    no_args_is_help=True,
)
for part in PARTS:
    app.add_typer(part)


@app.callback()
def bench(context: typer.Context) -> None:
    """Our figures beside those of peers, measured side by side in one run."""
    context.with_resource(taking_children_along())
