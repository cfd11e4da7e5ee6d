"""`hindcast lineage step / episode / batch / update / task / policy`."""

from typing import Annotated, NamedTuple

import msgspec
import typer

from hindcast.app.cli.options import AsOf, Json, SourceName
from hindcast.app.cli.output import print_json, print_text
from hindcast.app.cli.read_model import asking, position_at
from hindcast.app.cli.trees import lines
from hindcast.storage.readmodel.lineage import DEPTH, LIMIT, lineage

app = typer.Typer(
    name="lineage",
    help="Trace what something came from, back to settings and weights, and what it led to.",
    no_args_is_help=True,
)

Backward = Annotated[bool, typer.Option("--backward", help="Only what it came from.")]
Forward = Annotated[bool, typer.Option("--forward", help="Only what it led to.")]
Depth = Annotated[int, typer.Option("--depth", min=0, max=50, help="Levels of the tree.")]
Entries = Annotated[int, typer.Option("--limit", "-n", min=1, help="Most entries of one branch.")]
Everything = Annotated[bool, typer.Option("--all", help="Every entry of every branch.")]


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """Options that every kind takes."""

    run: str | None
    backward: bool
    forward: bool
    depth: int
    limit: int | None
    as_of: str | None
    as_json: bool


def _answer(kind: str, name: str, question: Question) -> None:
    either = question.backward or question.forward
    with asking(question.run) as connection:
        answer = lineage(
            connection,
            kind,
            name,
            as_of=position_at(connection, question.as_of),
            backward=question.backward or not either,
            forward=question.forward or not either,
            depth=question.depth,
            limit=question.limit,
        )
    if question.as_json:
        print_json(answer)
        return
    for line in lines(answer):
        print_text(line)


class Kind(NamedTuple):
    """A kind of thing whose lineage can be shown."""

    name: str
    metavar: str
    help: str
    """Help of the argument."""
    text: str
    """Help of the command: what it shows in both directions, and an example."""


KINDS = (
    Kind(
        "step",
        "STEP",
        "EPISODE/INDEX or its position in the log.",
        """A step: the page it saw, the versions that sampled its tokens; the updates that trained on it.

    Example: hindcast lineage step ep_9f2c41d07ab3/0 --backward
    """,
    ),
    Kind(
        "episode",
        "EPISODE",
        "The episode's id or a unique beginning of it.",
        """An episode: its task and steps; its verdicts, the batches and updates it went into.

    Example: hindcast lineage episode ep_9f2c --forward --json
    """,
    ),
    Kind(
        "batch",
        "BATCH",
        "Number of the batch.",
        """A batch: its settings, the weights it began with, its episodes; the updates computed from it.

    Example: hindcast lineage batch 4 --as-of 5000
    """,
    ),
    Kind(
        "update",
        "UPDATE",
        "Number of the update; MODEL/NUMBER for another model than the policy.",
        """An update: its batch and samples, down to pages and verdicts; the policy version it was first published in.

    Example: hindcast lineage update 12 --backward --depth 4
    """,
    ),
    Kind(
        "task",
        "TASK",
        "The task's id or a unique beginning of it.",
        """A task: those it was derived from; those derived from it, its episodes and what was trained on them.

    Example: hindcast lineage task task_5be0 --forward --all
    """,
    ),
    Kind(
        "policy",
        "POLICY",
        "Number of the version, or `latest`.",
        """A policy version: the updates that made it; who adopted it, the episodes it sampled, the batches it began.

    Example: hindcast lineage policy latest --json
    """,
    ),
)


def _add(kind: Kind) -> None:
    """Add the command of a kind; all take the same options."""

    @app.command(kind.name, help=kind.text)
    def _of_kind(
        name: Annotated[str, typer.Argument(metavar=kind.metavar, help=kind.help)],
        run: SourceName = None,
        backward: Backward = False,
        forward: Forward = False,
        depth: Depth = DEPTH,
        limit: Entries = LIMIT,
        everything: Everything = False,
        as_of: AsOf = None,
        as_json: Json = False,
    ) -> None:
        question = Question(
            run=run,
            backward=backward,
            forward=forward,
            depth=depth,
            limit=None if everything else limit,
            as_of=as_of,
            as_json=as_json,
        )
        _answer(kind.name, name, question)


for _kind in KINDS:
    _add(_kind)
