"""`hindcast lineage step / episode / batch / update / task / policy`."""

from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Any, NamedTuple

import typer

from hindcast.app.cli.options import AsOf, SourceName
from hindcast.app.cli.output import Report, shorten, show
from hindcast.app.cli.read_model import connect_read_model, position_at
from hindcast.core.text.counts import count_of
from hindcast.events.catalogue.curriculum import ONLINE
from hindcast.storage.readmodel.lineage.graph import Branch, Lineage, Node, Origins, Reach
from hindcast.storage.readmodel.lineage.lineage import DEPTH, LIMIT, lineage

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
        """An update: its batch and samples, down to pages and verdicts; the first policy version that contains it.

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
        """A policy version: the updates that made it; the actors that adopted it, its episodes, the batches that began with it.

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
    ) -> Report:
        either = backward or forward
        with connect_read_model(run) as connection:
            answer = lineage(
                connection,
                kind.name,
                name,
                as_of=position_at(connection, as_of),
                backward=backward or not either,
                forward=forward or not either,
                depth=depth,
                limit=None if everything else limit,
            )
        return Report(answer, lines(answer))


for _kind in KINDS:
    _add(_kind)


DIGEST_WIDTH = 13
TEXT_WIDTH = 60
DOT = " · "
NOUNS = {"policy": "policy version", "adoption": "actor"}
"""Nouns of kinds whose name is not their noun."""


def lines(answer: Lineage) -> Iterator[str]:
    """Format an answer as lines of text."""
    root = answer.backward or answer.forward
    assert root is not None, "at least one direction is requested"
    yield _node_text(root)
    yield f"run {answer.run} as of position {answer.position}"
    if answer.backward is not None:
        yield from ("", "came from")
        yield from _branches(answer.backward, nothing="nothing that is recorded")
        if answer.origins is not None:
            yield _origins(answer.origins)
    if answer.forward is not None:
        yield from ("", "led to")
        yield from _branches(answer.forward, nothing="nothing yet")
        if answer.reach is not None:
            yield _reach(answer.reach)


def _branches(node: Node, *, indent: str = "", nothing: str = "") -> Iterator[str]:
    """Yield the lines below a node."""
    if nothing and not node.branches:
        yield f"└─ {nothing}" if node.expanded else "└─ …"
    for branch in node.branches:
        last = branch is node.branches[-1]
        inner = indent + ("   " if last else "│  ")
        head = f"{indent}{'└─' if last else '├─'} {branch.relation}"
        if branch.total == len(branch.nodes) == 1:
            yield f"{head} {_node_text(branch.nodes[0])}"
            yield from _branches(branch.nodes[0], indent=inner)
            continue
        yield f"{head} {_counted(branch)}"
        rest = branch.total - len(branch.nodes)
        for entry in branch.nodes:
            closing = entry is branch.nodes[-1] and not (rest and branch.nodes)
            yield f"{inner}{'└─' if closing else '├─'} {_node_text(entry)}"
            yield from _branches(entry, indent=inner + ("   " if closing else "│  "))
        if rest and branch.nodes:
            yield f"{inner}└─ … {rest} more: --all lists them"


def _counted(branch: Branch) -> str:
    counts = f" ({show(branch.counts)})" if branch.counts else ""
    return f"{count_of(branch.total, NOUNS.get(branch.kind, branch.kind))}{counts}"


def _node_text(node: Node) -> str:
    """Format a node as one line: identity, facts, share in its parent, position."""
    words = DESCRIPTIONS[node.kind](node.facts) if node.facts else []
    share = [f"{name} {show(value)}" for name, value in node.share.items() if value is not None]
    position = [f"position {node.position}"] if node.position is not None else []
    return DOT.join((_identity(node), *filter(None, words), *share, *position))


def _identity(node: Node) -> str:
    """Format a node's kind and id."""
    match node.kind:
        case "episode" | "task" | "adoption" | "demonstrator":
            return node.id
        case "verdict":
            return f"{node.facts['judge']} {node.facts['judge_version']}"
        case "page":
            return f"page {shorten(node.id, DIGEST_WIDTH)}"
        case "settings":
            return f"settings of {node.id}"
        case _:
            return f"{node.kind} {node.id}"


def _step(facts: Mapping[str, Any]) -> list[str]:
    action = " ".join(str(facts[name]) for name in ("action", "element", "argument") if name in facts)
    return [shorten(action, TEXT_WIDTH) if action else "no action", facts.get("result", ""), _code(facts)]


def _page(facts: Mapping[str, Any]) -> list[str]:
    if "released" in facts:
        kept = f"deleted at position {facts['released']}"
    else:
        kept = f"blob {shorten(facts['blob'], DIGEST_WIDTH)}" if facts.get("blob") else "content not kept"
    picture = f"screenshot {shorten(facts['screenshot'], DIGEST_WIDTH)}" if "screenshot" in facts else ""
    return [shorten(facts.get("url"), TEXT_WIDTH), kept, picture]


def _episode(facts: Mapping[str, Any]) -> list[str]:
    outcome = facts.get("outcome") or f"{facts.get('state')} {facts.get('reason', '')}".strip()
    origin = facts.get("origin", "")
    swept = facts.get("swept")
    return [
        f"{facts.get('environment')}/{facts.get('family')}",
        outcome,
        f"{facts['steps']} steps" if "steps" in facts else "",
        origin if origin != ONLINE else "",
        f"swept: {swept}" if swept else "",
    ]


def _task(facts: Mapping[str, Any]) -> list[str]:
    instruction = shorten(facts["instruction"], TEXT_WIDTH) if "instruction" in facts else ""
    return [
        f"{facts.get('environment')}/{facts.get('family')}",
        f"seed {facts.get('seed')}",
        instruction,
        facts.get("state", ""),
    ]


def _verdict(facts: Mapping[str, Any]) -> list[str]:
    reward = f"reward {show(facts['reward'])}" if "reward" in facts else ""
    reason = shorten(facts["reason"], TEXT_WIDTH) if "reason" in facts else ""
    return [
        facts["outcome"],
        reward,
        reason,
        "" if facts.get("trained_on") else "not trained on",
        _code(facts),
    ]


def _batch(facts: Mapping[str, Any]) -> list[str]:
    return [
        facts["algorithm"],
        f"{facts['samples']} samples",
        f"planned as of {facts['as_of']}",
        _code(facts),
    ]


def _update(facts: Mapping[str, Any]) -> list[str]:
    loss = facts.get("metrics", {}).get("loss")
    return [
        facts["outcome"],
        shorten(facts["reason"], TEXT_WIDTH) if "reason" in facts else "",
        f"batch {facts['batch']} mini-batch {facts['minibatch']}",
        f"{facts['samples']} samples",
        f"loss {show(loss)}" if loss is not None else "",
        f"state {shorten(facts['before'], DIGEST_WIDTH)} to {shorten(facts['after'], DIGEST_WIDTH)}",
        _code(facts),
    ]


def _policy(facts: Mapping[str, Any]) -> list[str]:
    kept = f"deleted at position {facts['released']}" if "released" in facts else ""
    weights = f"weights {shorten(facts['sha256'], DIGEST_WIDTH)}" if "sha256" in facts else ""
    return [f"after update {facts.get('at_update')}", weights, kept]


def _settings(facts: Mapping[str, Any]) -> list[str]:
    changed = facts.get("changed_at")
    forked = f"forked from {facts['parent']} at {facts['forked_at']}" if "parent" in facts else ""
    return [
        f"recipe {facts.get('recipe')}",
        f"seed {facts.get('run_seed')}",
        f"base policy {facts.get('base_policy_name')} {shorten(facts.get('base_policy'), DIGEST_WIDTH)}",
        forked,
        f"changed at {', '.join(map(str, changed))}" if changed else "",
    ]


def _checkpoint(facts: Mapping[str, Any]) -> list[str]:
    kept = f"deleted at position {facts['released']}" if "released" in facts else ""
    return [f"blob {shorten(facts.get('sha256'), DIGEST_WIDTH)}", kept]


def _notice(facts: Mapping[str, Any]) -> list[str]:
    return [shorten(facts.get("text"), TEXT_WIDTH)]


def _nothing(_facts: Mapping[str, Any]) -> list[str]:
    return []


def _code(facts: Mapping[str, Any]) -> str:
    return f"code {facts['code_rev']}" if facts.get("code_rev") else ""


DESCRIPTIONS: Mapping[str, Callable[[Mapping[str, Any]], list[str]]] = {
    "step": _step,
    "page": _page,
    "episode": _episode,
    "task": _task,
    "verdict": _verdict,
    "batch": _batch,
    "update": _update,
    "policy": _policy,
    "settings": _settings,
    "checkpoint": _checkpoint,
    "notice": _notice,
    "adoption": _nothing,
    "demonstrator": _nothing,
}
"""Kind -> function that describes a node's facts."""


def _origins(origins: Origins) -> str:
    if not origins.updates:
        return "no training led to it: its weights are the run's initial weights"
    return (
        f"trained from: policy {origins.policy}; {count_of(origins.updates, 'update')} of {count_of(origins.batches, 'batch')}, with "
        f"{count_of(origins.episodes, 'episode')} of {count_of(origins.tasks, 'task')}"
    )


def _reach(reach: Reach) -> str:
    if reach.first_policy is None:
        return f"in training since update {reach.first_update}; in no published policy yet"
    first = f"since update {reach.first_update}, " if reach.first_update is not None else "of "
    only = reach.first_policy == reach.newest_policy
    versions = (
        f"policy {reach.first_policy}" if only else f"policy {reach.first_policy} to {reach.newest_policy}"
    )
    counts = f" ({show(reach.outcomes)})" if reach.outcomes else ""
    return (
        f"in the weights {first}{versions}; sampled from those: {count_of(reach.episodes, 'episode')}{counts}"
    )
