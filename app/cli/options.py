"""Options that several commands take, so that they are the same everywhere."""

from typing import Annotated, Literal

import typer

from core.errors import SettingsError

Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
RunName = Annotated[
    str | None, typer.Argument(metavar="[RUN]", help="Which run; by default the one started last.")
]
SourceName = Annotated[
    str | None,
    typer.Argument(
        metavar="[RUN]", help="Which run, or the folder of an archive; by default the run started last."
    ),
]
SourceOption = Annotated[
    str | None,
    typer.Option("--run", help="Which run, or the folder of an archive; by default the run started last."),
]
RunOption = Annotated[str | None, typer.Option("--run", help="Which run; by default the one started last.")]
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
        "--set", metavar="endpoint.KEY=VALUE", help="Another endpoint, or judge.timeout_s; repeatable."
    ),
]
EpisodeState = Literal["requested", "started", "ended", "abandoned", "cancelled"]
OfState = Annotated[EpisodeState | None, typer.Option("--state", help="Only episodes in this state.")]
OfOutcome = Annotated[
    Literal["success", "failure", "undecided"] | None,
    typer.Option("--outcome", help="Only what the training judge called so."),
]
OfOrigin = Annotated[
    Literal["online", "demonstration", "evaluation"] | None,
    typer.Option("--origin", help="Only episodes that were requested for this."),
]
PLACES = "a position, `end`, or update=N, batch=N, policy=N, checkpoint=N, where N may be `last`"
"""For the help of options that take a place in the log (see `events.places`)."""
AsOf = Annotated[
    str | None, typer.Option("--as-of", metavar="PLACE", help=f"Answer as of a place in the log: {PLACES}.")
]


def site_and_family(environment: str | None, family: str | None) -> tuple[str | None, str | None]:
    """What `--environment` and `--family` name together; a family may be written with its site, as lists print it.

    Raises:
        SettingsError: they name two sites, or half of one.

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
