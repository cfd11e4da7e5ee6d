"""Arguments and options that several commands share.

A run is the last argument of a command, `[RUN]`. `--run NAME` means the same; it is accepted but not shown.
"""

import functools
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from typer.models import OptionInfo

from hindcast.core.errors import SettingsError
from hindcast.core.text.plain_values import find_unkeepable

Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
RunName = Annotated[
    str | None, typer.Argument(metavar="RUN", help="The run; by default the one started last.")
]
SourceName = Annotated[
    str | None,
    typer.Argument(
        metavar="RUN", help="The run, or the folder of an archive; by default the run started last."
    ),
]
Limit = Annotated[int, typer.Option("--limit", "-n", min=1, help="Most entries to print.")]
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
        help="Another endpoint, judge.timeout_s or judge.webrl_orm; repeatable.",
    ),
]
EpisodeState = Literal["requested", "started", "ended", "abandoned", "cancelled"]
OfState = Annotated[EpisodeState | None, typer.Option("--state", help="Only episodes in this state.")]
OfOutcome = Annotated[
    Literal["success", "failure", "undecided"] | None,
    typer.Option("--outcome", help="Only episodes with this outcome by the training judge."),
]
OfOrigin = Annotated[
    Literal["online", "demonstration", "evaluation"] | None,
    typer.Option("--origin", help="Only episodes of this origin."),
]
PLACES = "a position, `end`, or update=N, batch=N, policy=N, checkpoint=N, where N may be `last`"
"""Help of options that take a place in the log (see `events.log.places`)."""
AsOf = Annotated[
    str | None, typer.Option("--as-of", metavar="PLACE", help=f"Answer as of a place in the log: {PLACES}.")
]


def with_checked_values(command: Callable[..., None]) -> Callable[..., None]:
    """Wrap a command to refuse values that cannot be stored: numbers beyond 64 bits or not finite, text not in UTF-8.

    Raises (when it is called):
        SettingsError: names the option or the argument.

    """
    signature = inspect.signature(command, eval_str=True)

    @functools.wraps(command)
    def checked(**given: Any) -> None:
        for name, value in given.items():
            why = find_unkeepable(str(value) if isinstance(value, Path) else value)
            if why:
                raise SettingsError(f"{_shown_name(signature.parameters[name])} {why}")
        command(**given)

    return checked


def _shown_name(parameter: inspect.Parameter) -> str:
    """A parameter as it is written on the command line."""
    described = next(iter(getattr(parameter.annotation, "__metadata__", ())), None)
    if isinstance(described, OptionInfo):
        # in an annotation typer keeps the first name of an option as its default
        written = [one for one in (described.default, *(described.param_decls or ())) if isinstance(one, str)]
        return next((one for one in written if one.startswith("--")), f"--{parameter.name.replace('_', '-')}")
    metavar = getattr(described, "metavar", None)
    return metavar or parameter.name.upper()


def with_run_option(command: Callable[..., None]) -> Callable[..., None]:
    """Add to a command the hidden option `--run` for its argument `[RUN]`; a command without that argument is unchanged.

    Raises (when it is called):
        SettingsError: argument and option name two runs.

    """
    signature = inspect.signature(command, eval_str=True)
    own = signature.parameters.get("run")
    if own is None or own.default is not None or "run_option" in signature.parameters:
        return command

    @functools.wraps(command)
    def either(*, run: str | None, run_option: str | None, **given: Any) -> None:
        command(run=one_run(run, run_option), **given)

    hidden = inspect.Parameter(
        "run_option",
        inspect.Parameter.KEYWORD_ONLY,
        default=None,
        annotation=Annotated[str | None, typer.Option("--run", hidden=True)],
    )
    either.__signature__ = signature.replace(  # type: ignore[attr-defined]
        parameters=[*signature.parameters.values(), hidden]
    )
    either.__annotations__ = {
        **inspect.get_annotations(command, eval_str=True),
        hidden.name: hidden.annotation,
    }
    return either


def one_run(argument: str | None, option: str | None) -> str | None:
    """The run that is named as an argument, by `--run`, or by both.

    Raises:
        SettingsError: they name two runs.

    """
    if argument is not None and option is not None and argument != option:
        raise SettingsError(f"two runs are named, {argument} and --run {option}: omit one")
    return option if argument is None else argument


def site_and_family(environment: str | None, family: str | None) -> tuple[str | None, str | None]:
    """Site and family from `--environment` and `--family`; a family may be written with its site, as lists print it.

    Raises:
        SettingsError: they name two sites, or the family lacks a part.

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
