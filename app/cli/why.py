"""`hindcast why`: which steps moved the policy."""

import asyncio
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from hindcast.app.cli.bars import progress_bar
from hindcast.app.cli.options import SourceName
from hindcast.app.cli.output import Block, Fields, Report, Table, say, shorten
from hindcast.app.runs.explanations import largest_steps, parts_by_family, save_explanation
from hindcast.app.runs.runs import RunHandle, run_folder
from hindcast.app.runs.sources import open_source
from hindcast.core.errors import SettingsError
from hindcast.core.fast_import import loading
from hindcast.core.text.counts import count_of
from hindcast.events.log.places import parse_place

if TYPE_CHECKING:
    from hindcast.app.runs.explanations import Explanation, MovingEpisode

app = typer.Typer()

ANSWER_WIDTH = 34


@app.command("why")
def why(
    what: Annotated[
        str,
        typer.Argument(
            metavar="WHAT", help="update=N, batch=N or policy=N, where N may be `last`; or a task family."
        ),
    ],
    run: SourceName = None,
    since: Annotated[
        int | None, typer.Option("--since", min=0, help="Of a family: the policy version to begin with.")
    ] = None,
    until: Annotated[
        int | None, typer.Option("--until", min=1, help="Of a family: the policy version to end with.")
    ] = None,
    rows: Annotated[int, typer.Option("--rows", min=1, help="Rows of each table.")] = 8,
    tolerance: Annotated[
        float | None,
        typer.Option("--tolerance", min=0, help="Accepted difference on another machine than the recorded."),
    ] = None,
) -> Report:
    """Tell which recorded episodes, steps and tokens moved the policy in an update, or made a task family better or worse.

    Recomputes the updates, with a gradient of its own for each step: several times the work that they were. The page shows
    the answer, too, with the pictures of the steps.

    Example: hindcast why store/buy run-1 --since 3 --until 5
    """
    source = open_source(run)
    with loading():
        from hindcast.app.runs.why import FamilyQuestion, explain  # loads torch, so only now
    of_family = "=" not in what
    if not of_family and (since is not None or until is not None):
        raise SettingsError("--since and --until belong to a question about a task family: omit them")
    question = FamilyQuestion(family=what, since=since, until=until) if of_family else parse_place(what)
    with progress_bar() as bar:
        shown = bar.add_task(f"why {what}", total=None)
        found = asyncio.run(
            explain(
                source,
                question,
                tolerance=tolerance,
                progress=lambda done, total: bar.update(shown, completed=done, total=total),
                said=say,
            )
        )
    if isinstance(source, RunHandle):
        save_explanation(run_folder(source.home, source.name), found)
    return Report(found, [Fields(_fields(found)), *_tables(found, rows)])


def _fields(found: "Explanation") -> list[tuple[str, object]]:
    steps = sum(len(one.steps) for one in found.episodes)
    fields: list[tuple[str, object]] = [
        ("run", found.run),
        (
            "updates",
            f"{found.first_update} to {found.last_update}, from policy version {found.first_version} on",
        ),
        ("trained on", f"{count_of(len(found.episodes), 'episode')}, {count_of(steps, 'step')}"),
        ("recomputed", f"{count_of(found.recomputed, 'update')}, as recorded"),
    ]
    if found.family:
        success = ", ".join(f"v{one.version} {one.successes}/{one.episodes}" for one in found.success)
        fields += [
            (found.family, f"success by version: {success}"),
            (
                "judged by",
                f"{count_of(found.probe_episodes, 'episode')} of {found.family} ({found.probe_origin})",
            ),
        ]
    return fields


def _tables(found: "Explanation", rows: int) -> Iterator[Block]:
    yield ""
    yield _families(found.episodes)
    yield ""
    yield _steps(found, rows)
    yield ""
    yield _tokens(found, rows)
    yield ""
    first = found.episodes[0].episode if found.episodes else ""
    if not found.family:
        yield "Share: part of the updates' gradient; all shares sum to 100 %, and a negative one pulled against it."
        yield f"Next: hindcast episode show {first} {found.run}"
        return
    yield (
        f"Pull: what an episode's part of the updates did to the success of {found.family}, in points, to first order. Later "
        "episodes would have been others without it."
    )
    worst = parts_by_family(found.episodes)[:1]
    if worst and (worst[0].pull or 0.0) < 0:
        yield f"Confirm it: hindcast without {found.run} --family {worst[0].family} --effect"


def _families(episodes: "Sequence[MovingEpisode]") -> Table:
    parts = parts_by_family(episodes)
    pulls = any(one.pull is not None for one in parts)
    heads = ("trained family", "episodes", *(("pull",) if pulls else ()), "share")
    return Table(
        heads,
        [
            (one.family, one.episodes, *((_points(one.pull or 0.0),) if pulls else ()), f"{one.share:.1%}")
            for one in parts
        ],
    )


def _steps(found: "Explanation", rows: int) -> Table:
    """Steps with the largest part."""
    by_pull = bool(found.family)
    return Table(
        ("pull" if by_pull else "share", "advantage", "reward", "family", "episode", "step", "answer"),
        [
            (
                _points(step.pull or 0.0) if by_pull else f"{step.share:.1%}",
                "rehearsed" if episode.rehearsed else f"{episode.advantage:+.2f}",
                "-" if episode.reward is None else f"{episode.reward:g}",
                episode.family,
                episode.episode,
                step.step,
                shorten(step.answer, ANSWER_WIDTH),
            )
            for episode, step in largest_steps(found)[:rows]
        ],
    )


def _tokens(found: "Explanation", rows: int) -> Table:
    return Table(
        ("probability", "token", "answer before it", "episode", "step", "and"),
        [
            (
                f"{one.before:.2f} -> {one.after:.2f}",
                repr(one.token),
                shorten("…" + one.context[-ANSWER_WIDTH:], ANSWER_WIDTH + 1) if one.context else "-",
                one.episode,
                one.step,
                f"{one.others} alike" if one.others else "-",
            )
            for one in found.tokens[:rows]
        ],
    )


def _points(part: float) -> str:
    return f"{100 * part:+.2f}"
