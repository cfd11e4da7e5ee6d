"""`hindcast branch`: continues a recorded episode from its steps."""

import asyncio
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from hindcast.app.cli.bars import progress_bar
from hindcast.app.cli.options import RunName
from hindcast.app.cli.output import Block, Fields, Report, Table, say, shorten
from hindcast.app.runs.runs import open_run
from hindcast.core.fast_import import loading

if TYPE_CHECKING:
    from hindcast.app.evaluation.branches import Branches

app = typer.Typer()

ANSWER_WIDTH = 44


@app.command("branch")
def branch_from(
    episode: Annotated[str, typer.Argument(metavar="EPISODE", help="The episode to continue.")],
    run: RunName = None,
    at: Annotated[
        list[int] | None,
        typer.Option(
            "--at", metavar="STEP", min=0, help="A step to continue from; repeatable. Default: all."
        ),
    ] = None,
    each: Annotated[
        int, typer.Option("-n", "--each", min=1, max=256, help="Continuations from each step.")
    ] = 16,
    policy: Annotated[
        int | None,
        typer.Option(help="Policy version that continues; by default the newest when it was judged."),
    ] = None,
    name: Annotated[
        str | None,
        typer.Option("--name", help="Name of the fork that holds them; default: the next free run-N."),
    ] = None,
) -> Report:
    """Continue an episode many times from each of its steps, to see where it went wrong.

    Brings a browser to a step by playing the recorded actions again, compares the pages, and lets the policy continue. The
    continuations are recorded in a fork and judged like any episode; nothing is trained on them.

    Example: hindcast branch ep_5c6736b90824 run-1 --at 3 --at 4 -n 32
    """
    parent = open_run(run)
    with loading():
        from hindcast.app.evaluation.branches import branch  # loads torch, so only now
    with progress_bar() as bar:
        shown = bar.add_task(f"continuing {episode}", total=None)
        found = asyncio.run(
            branch(
                parent,
                episode,
                steps=at or (),
                each=each,
                version=policy,
                name=name,
                said=say,
                progress=lambda done, total: bar.update(shown, completed=done, total=total),
            )
        )
    return Report(found, list(_text(found)))


def _text(found: "Branches") -> Iterator[Block]:
    yield Fields(
        [
            ("run", f"{found.run}, a fork of {found.parent}"),
            ("episode", f"{found.episode}, {found.family}: {found.outcome}"),
            ("continued by", f"policy version {found.version}"),
        ]
    )
    yield ""
    yield Table(
        ("step", "success from here", "95 %", "n", "the episode's answer"),
        [
            (
                one.step,
                f"{one.value:.0%}" if one.continuations else "-",
                f"[{one.low:.0%}, {one.high:.0%}]" if one.continuations else "-",
                one.continuations,
                shorten(one.answer, ANSWER_WIDTH),
            )
            for one in found.values
        ],
    )
    for one in found.values:
        for reason, count in one.lost.items():
            yield f"step {one.step}: {count} without a verdict: {reason}"
    yield ""
    yield fall_in_words(found)
    yield f"Next: hindcast episode list {found.run} --origin branch"


def fall_in_words(found: "Branches") -> str:
    """Which step lost the episode, or that none is known to have."""
    fall = found.fall
    if fall is None:
        return "No step lowers the success of the continuations."
    apart = f"[{100 * fall.low:+.0f}, {100 * fall.high:+.0f}] points"
    if fall.is_sure:
        return f"Step {fall.step} lost it: {fall.before:.0%} before it, {fall.after:.0%} after it {apart}."
    return (
        f"The largest fall is at step {fall.step}, from {fall.before:.0%} to {fall.after:.0%}, and may be chance {apart}: try "
        "more continuations with -n."
    )
