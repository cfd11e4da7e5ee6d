"""`hindcast bench recompute`."""

from typing import Annotated

import typer

from bench.cli.printing import comparisons_report
from hindcast.app.cli.output import Report
from hindcast.core.errors import SettingsError

app = typer.Typer()


@app.command("recompute")
def recompute(
    run: Annotated[str, typer.Argument(help="A recorded run.")],
    overrides: Annotated[
        list[str],
        typer.Option("--set", metavar="learner.KEY=VALUE", help="What is changed; repeatable."),
    ],
    repeats: Annotated[int, typer.Option(min=1, help="Pairs of measurements.")] = 3,
) -> Report:
    """What a setting of the learner saves on the batches of a recorded run: its updates with the setting, and as recorded.

    Example: hindcast bench recompute run-1 --set learner.shared_prefixes=false
    """
    from bench.recompute import compare_settings
    from hindcast.app.settings.configuration import resolve

    own, named = resolve(overrides=overrides).settings.learner, [one.partition("=")[0] for one in overrides]
    names = [name.removeprefix("learner.") for name in named]
    for name, whole in zip(names, named, strict=True):
        if name == whole or not hasattr(own, name):
            raise SettingsError(
                f"--set {whole} is no setting of the learner itself; give one as learner.shared_prefixes=false"
            )
    changes = {name: getattr(own, name) for name in names}
    return comparisons_report([compare_settings(run, changes, repeats=repeats)])
