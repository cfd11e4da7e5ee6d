"""`hindcast bench ranks`."""

from typing import Annotated

import typer

from bench.cli.policies import UNTIED, measured_policy
from bench.cli.printing import comparisons_report
from hindcast.app.cli.output import Report
from hindcast.core.scratch import scratch_folder

app = typer.Typer()


@app.command("ranks")
def ranks(
    processes: Annotated[int, typer.Option(min=2, max=64, help="Data-parallel ranks.")] = 2,
    repeats: Annotated[int, typer.Option(min=1, help="Pairs of measurements.")] = 5,
    episodes: Annotated[int, typer.Option(min=4, help="Recorded episodes in the batch.")] = 32,
    policy: Annotated[
        str, typer.Option(help="`base`, `untied`, or the folder of a Hugging Face causal model.")
    ] = UNTIED,
    overrides: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="learner.KEY=VALUE", help="A setting of both; repeatable."),
    ] = None,
) -> Report:
    """What `learner.exact_ranks` costs: time of an update with gradients added in rank order, and with bare collectives.

    Example: hindcast bench ranks --processes 2
    """
    from bench.learner_ranks import compare_sums
    from bench.learner_ways import Way
    from hindcast.app.settings.configuration import resolve

    chosen = ["learner.threads=1", *(overrides or []), f"learner.processes={processes}"]
    settings = resolve(recipe="mgrpo", overrides=chosen).settings.learner
    with scratch_folder() as scratch:
        way = Way(measured_policy(policy, scratch), settings, episodes)
        return comparisons_report(compare_sums(way, repeats=repeats))
