"""Arguments and options that several commands share.

A run is the last argument of a command, `[RUN]`. `--run NAME` means the same; it is accepted but not shown.
"""

import functools
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from typer.models import OptionInfo

from hindcast.app.cli.output import Output, Report
from hindcast.core.errors import SettingsError
from hindcast.core.text.plain_values import find_unkeepable

if TYPE_CHECKING:
    from hindcast.actors.replay.recorded import EpisodeSelection

Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
HiddenRun = Annotated[str | None, typer.Option("--run", hidden=True)]
RunName = Annotated[
    str | None, typer.Argument(metavar="RUN", help="The run; by default the one started last.")
]
SourceName = Annotated[
    str | None,
    typer.Argument(
        metavar="RUN", help="The run, or the folder of an archive; by default the run started last."
    ),
]
Limit = Annotated[int, typer.Option("--limit", "-n", min=1, help="Maximum number of entries.")]
Environment = Annotated[str | None, typer.Option("--environment", help="Only this site: store, miniwob.")]
Family = Annotated[
    str | None,
    typer.Option("--family", help="Only this task family, such as find_price or store/find_price."),
]
TaskState = Literal["proposed", "admitted", "rejected", "unlisted"]
OfTaskState = Annotated[TaskState | None, typer.Option("--state", help="Only tasks in this state.")]
EndpointValues = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="endpoint.KEY=VALUE",
        help="Replace a setting of the endpoint, judge.timeout_s or judge.webrl_orm; repeatable.",
    ),
]
EpisodeState = Literal["requested", "started", "ended", "abandoned", "cancelled"]
OfState = Annotated[EpisodeState | None, typer.Option("--state", help="Only episodes in this state.")]
OfOutcome = Annotated[
    Literal["success", "failure", "undecided"] | None,
    typer.Option("--outcome", help="Only episodes with this outcome by the training judge."),
]
Origin = Annotated[
    Literal["online", "demonstration", "evaluation", "branch", "imported"] | None,
    typer.Option("--origin", help="Only episodes of this origin."),
]
PluginOptions = Annotated[
    list[str] | None,
    typer.Option("--option", metavar="NAME=VALUE", help="An option of the plugin; repeatable."),
]
PLACES = "a position, `end`, or update=N, batch=N, policy=N, checkpoint=N, where N may be `last`"
"""Help of options that take a place in the log (see `events.log.places`)."""
AsOf = Annotated[
    str | None, typer.Option("--as-of", metavar="PLACE", help=f"Answer as of a place in the log: {PLACES}.")
]
Episode = Annotated[list[str] | None, typer.Option("--episode", help="Only this episode; repeatable.")]
Episodes = Annotated[int | None, typer.Option("--episodes", min=1, help="Size of a seeded sample.")]
All = Annotated[bool, typer.Option("--all", help="Every episode.")]
Families = Annotated[
    list[str] | None,
    typer.Option("--family", help="Only this family, as find_price or store/find_price; repeatable."),
]
Seed = Annotated[int, typer.Option("--seed", help="Seed of the sample.")]


def with_common_options(command: Callable[..., Report | None]) -> Callable[..., None]:
    """Add the options that all commands share, and print the report that the command returns.

    Adds `--json`, and the hidden option `--run` where the command has the argument `[RUN]`. Refuses values that cannot be
    stored: numbers beyond 64 bits or not finite, text not in UTF-8. A parameter `output` receives the `Output`.

    Raises (when it is called):
        SettingsError: names the option or the argument; or argument and option name two runs.
        typer.Exit: the report has an exit code.

    """
    signature = inspect.signature(command, eval_str=True)
    parameters = dict(signature.parameters)
    prints_itself = parameters.pop("output", None) is not None
    run = parameters.get("run")
    optional_run = run is not None and run.default is None and "run_option" not in parameters

    @functools.wraps(command)
    def complete(*, as_json: bool, **given: Any) -> None:
        if optional_run:
            given["run"] = one_run(given["run"], given.pop("run_option"))
        for name, value in given.items():
            why = find_unkeepable(str(value) if isinstance(value, Path) else value)
            if why:
                raise SettingsError(f"{_shown_name(parameters[name])} {why}")
        output = Output(as_json=as_json)
        report = command(**given, **({"output": output} if prints_itself else {}))
        if report is not None:
            output.print(report)
            if report.exit_code:
                raise typer.Exit(report.exit_code)

    added = {"as_json": (False, Json)} | ({"run_option": (None, HiddenRun)} if optional_run else {})
    every = [
        *parameters.values(),
        *(
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)
            for name, (default, kind) in added.items()
        ),
    ]
    complete.__signature__ = inspect.Signature(every)  # type: ignore[attr-defined]
    complete.__annotations__ = {one.name: one.annotation for one in every}
    return complete


def _shown_name(parameter: inspect.Parameter) -> str:
    """Name of a parameter on the command line."""
    described = next(iter(getattr(parameter.annotation, "__metadata__", ())), None)
    if isinstance(described, OptionInfo):
        # in an annotation typer keeps the first name of an option as its default
        written = [one for one in (described.default, *(described.param_decls or ())) if isinstance(one, str)]
        return next((one for one in written if one.startswith("--")), f"--{parameter.name.replace('_', '-')}")
    metavar = getattr(described, "metavar", None)
    return metavar or parameter.name.upper()


def one_run(argument: str | None, option: str | None) -> str | None:
    """Return the run named as an argument, by `--run`, or by both.

    Raises:
        SettingsError: argument and option name different runs.

    """
    if argument is not None and option is not None and argument != option:
        raise SettingsError(f"two runs are named, {argument} and --run {option}: omit one")
    return option if argument is None else argument


def site_and_family(environment: str | None, family: str | None) -> tuple[str | None, str | None]:
    """Return site and family from `--environment` and `--family`, which may be written as SITE/FAMILY.

    Raises:
        SettingsError: the options name different sites, or a part of SITE/FAMILY is empty.

    """
    site, slash, name = (family or "").partition("/")
    if not slash:
        return environment, family
    if not (site and name):
        raise SettingsError(
            f"--family {family} lacks its {'family' if site else 'site'}: write FAMILY, or SITE/FAMILY"
        )
    if environment not in (None, site):
        raise SettingsError(f"--environment {environment} and --family {family} name two sites: give one")
    return site, name


def option_values(given: list[str] | None) -> dict[str, str]:
    """Parse the values of `--option NAME=VALUE`, by name. Raises SettingsError if one is not NAME=VALUE."""
    pairs = [one.partition("=") for one in given or []]
    for name, equals, value in pairs:
        if not name or not equals:
            raise SettingsError(f"--option {name + value!r} is not NAME=VALUE")
    return {name: value for name, _, value in pairs}


def select_episodes(
    episode: list[str] | None,
    episodes: int | None,
    *,
    every: bool,
    family: list[str] | None,
    origin: str | None,
    seed: int,
    usual: int | None,
) -> "EpisodeSelection":
    """Build the selection that the options describe. `usual`: size of the sample if no option sets it; None: all.

    Raises:
        SettingsError: the options contradict each other.

    """
    from hindcast.actors.replay.recorded import EpisodeSelection  # loads every event, which few commands need

    if sum(map(bool, (episode, episodes, every))) > 1:
        raise SettingsError("--episode, --episodes and --all contradict each other: give one")
    named = frozenset(episode or ())
    return EpisodeSelection(
        episodes=named,
        families=frozenset(family or ()),
        origin=origin,
        sample=None if named or every else episodes or usual,
        seed=seed,
    )
