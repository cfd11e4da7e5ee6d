"""`hindcast bench branch`."""

import asyncio
import os
from typing import Annotated

import typer

from hindcast.app.cli.output import Report, Table, say
from hindcast.core.fast_import import loading
from hindcast.core.scratch import scratch_folder

app = typer.Typer()


@app.command("branch")
def branch(
    episodes: Annotated[int, typer.Option(min=1, max=100, help="Demonstrations that err once.")] = 10,
    each: Annotated[
        int, typer.Option("-n", "--each", min=1, max=256, help="Continuations from each step.")
    ] = 16,
) -> Report:
    """How often `hindcast branch` names the step that lost an episode, where that step is known by construction.

    A demonstrator fills in a form of five pages and errs once, for good. The shipped policy continues from each page.

    Example: hindcast bench branch --episodes 10 -n 16
    """
    with loading():
        from bench.wrong_step import measure_naming, value_rows  # loads torch, so only now
    with scratch_folder() as home:
        os.environ["HINDCAST_HOME"] = str(home)
        naming = asyncio.run(measure_naming(home, episodes=episodes, each=each, said=say))
    right = naming.right
    count = sum(case.is_right for case in naming.cases)
    not_last = [case for case in naming.cases if case.wrong_step < case.last_step]
    return Report(
        naming,
        [
            Table(
                ("episode", "wrong step", "named", "fall, 95 %", "successes from each step"),
                value_rows(naming),
            ),
            "",
            f"named right: {count} of {len(naming.cases)}, {right.rate:.0%} [{right.low:.0%}, {right.high:.0%}]",
            f"where the wrong step is not the last: {sum(case.is_right for case in not_last)} of {len(not_last)}",
            f"too large a fall for chance: {len(naming.sure)}, {sum(case.is_right for case in naming.sure)} of them right",
        ],
    )
