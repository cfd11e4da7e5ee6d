"""`hindcast run list / show / compare`."""

from collections.abc import Iterator, Sequence
from typing import Annotated, Any

import typer

from hindcast.app.cli.options import AsOf, SourceName
from hindcast.app.cli.output import Block, Fields, Report, Table, moment, rate, weighted_rate
from hindcast.app.cli.read_model import connect_as_is, connect_read_model, position_at, update_read_models
from hindcast.app.evaluation.evaluation_lines import temperature_in_words
from hindcast.app.runs.runs import RunHandle, list_runs, open_run, run_folder
from hindcast.app.system.home import home_folder
from hindcast.core.errors import HindcastError, SettingsError
from hindcast.core.text.counts import count_of
from hindcast.storage.readmodel.comparison import Comparison, compare_runs
from hindcast.storage.readmodel.outcome_counts import Stretch
from hindcast.storage.readmodel.run_queries import RunSummary, run_summary

WEIGHTED = (
    "success: each task family weighs its share of all judged episodes, the same for every policy version"
)
WEIGHTED_OF_BOTH = (
    "success: each task family weighs its share of the judged episodes of both runs, so that a run's rate may differ from "
    "that of `run show`"
)

run_app = typer.Typer(name="run", help="Runs of this home.", no_args_is_help=True)


@run_app.command("list")
def list_all() -> Report:
    """List the runs, oldest first.

    Example: hindcast run list --json
    """
    home = home_folder()
    names = list_runs(home)
    opened, notes = _open_all(names)
    failed = update_read_models([*opened.values()])
    found = [
        _overview(opened[name], failed.get(name)) if name in opened else _unread(name, notes[name])
        for name in names
    ]
    heads = ("run", "fork of", "recipe", "state", "policy", "updates", "episodes", "position", "note")
    rows = [[_fork_of(entry) if head == "fork of" else entry.get(head) for head in heads] for entry in found]
    return Report(
        {"home": str(home), "runs": found},
        [Table(heads, rows, empty=f"No run in {home} yet. Run: hindcast start")],
    )


def _fork_of(entry: dict[str, Any]) -> str | None:
    return f"{entry['parent']} at {entry['forked_at']}" if entry.get("parent") else None


def _open_all(names: Sequence[str]) -> tuple[dict[str, RunHandle], dict[str, str]]:
    """Open all runs; returns the opened runs and the errors of the others, by name."""
    opened: dict[str, RunHandle] = {}
    notes: dict[str, str] = {}
    for name in names:
        try:
            opened[name] = open_run(name)
        except HindcastError as error:
            notes[name] = str(error)
    return opened, notes


def _unread(name: str, note: str) -> dict[str, Any]:
    return {"run": name, "folder": str(run_folder(home_folder(), name)), "note": note}


def _overview(run: RunHandle, failure: HindcastError | OSError | None) -> dict[str, Any]:
    """Summarize a run from its read model. `failure`: why the read model may lack events."""
    known: dict[str, Any] = {"run": run.name, "folder": str(run.folder)}
    if run.fork is not None:
        known |= {"parent": run.fork.parent, "forked_at": run.fork.at}
    try:
        with connect_as_is(run, failure) as connection:
            summary = run_summary(connection)
    except (HindcastError, OSError) as error:
        return known | {"note": str(error)}
    return known | {
        "recipe": summary.recipe,
        "state": summary.state,
        "policy": summary.policy_version,
        "updates": summary.updates,
        "episodes": sum(summary.episodes.values()),
        "position": summary.position,
        "started_ns": summary.started_ns,
    }


@run_app.command("show")
def show_one(run: SourceName = None, as_of: AsOf = None) -> Report:
    """Show one run in numbers: episodes, updates, success with its interval, throughput.

    Example: hindcast run show run-1 --as-of update=40
    """
    with connect_read_model(run) as connection:
        summary = run_summary(connection, as_of=position_at(connection, as_of))
    return Report(summary, _summary_text(summary))


def _summary_text(summary: RunSummary) -> Iterator[Block]:
    speed = summary.throughput
    yield Fields(
        [
            ("run", summary.run),
            ("as of position", summary.position),
            ("state", " ".join(filter(None, (summary.state, summary.finished_reason)))),
            ("paused by", summary.pauses or "nobody"),
            ("recipe", f"{summary.recipe}, seed {summary.run_seed}, base policy {summary.base_policy_name}"),
            *(
                [("fork of", f"{summary.parent}, up to position {summary.forked_at}")]
                if summary.parent
                else []
            ),
            ("started", moment(summary.started_ns)),
            ("goal", summary.goal),
            ("episodes", summary.episodes),
            ("trained on", count_of(summary.trained_episodes, "episode")),
            ("verdicts", summary.verdicts),
            ("disputed", count_of(summary.disputed, "episode")),
            ("steps", summary.steps),
            ("batches", summary.batches),
            ("updates", f"{summary.updates} ({summary.skipped_updates} skipped)"),
            *(
                (
                    f"updates of {one.model}",
                    f"{one.updates} ({one.skipped_updates} skipped), version {one.version}",
                )
                for one in summary.beside
            ),
            ("newest policy", summary.policy_version),
            ("sampling from", summary.sampling_from),
            ("checkpoint at update", summary.checkpoint_update),
            ("notices", summary.notices),
            (
                f"last {speed.window_s:.0f} s",
                f"{speed.episodes_per_minute:.3g} episodes/min, {speed.steps_per_second:.3g} steps/s, "
                f"{speed.answer_tokens_per_second:.3g} answer tokens/s, "
                f"{speed.updates_per_minute:.3g} updates/min, learner busy {speed.learner_busy:.0%}",
            ),
        ]
    )
    if summary.evaluations:
        yield ""
        yield Table(
            (
                "evaluated",
                "sampling",
                "success on held-out tasks",
                "n",
                "lost",
                "sampled by",
                "seconds",
                "share",
            ),
            [
                (
                    row.version,
                    temperature_in_words(one.temperature),
                    f"{one.success.rate:.1%} [{one.success.low:.1%}, {one.success.high:.1%}]",
                    one.judged,
                    one.lost,
                    "-" if row.version_low is None else _versions(row.version_low, row.version_high),
                    f"{row.seconds or 0:.0f}",
                    f"{row.share or 0:.0%}",
                )
                for row in summary.evaluations
                for one in row.rates
            ],
            empty="The first evaluation is not finished.",
        )
    yield ""
    yield Table(
        ("policy", "origin", "success", "as played", "undecided", "mixed"),
        [
            (
                p.version,
                p.origin,
                weighted_rate(p.weighted, p.success),
                rate(p.success),
                p.success.undecided,
                p.mixed,
            )
            for p in summary.success
        ],
        empty="No verdict yet.",
    )
    if summary.success:
        yield WEIGHTED

    if summary.retention:
        yield ""
        yield Table(
            ("family", "best before", "by policies", "now", "by policies", "change"),
            [
                (
                    r.family,
                    _stretch(r.best),
                    _versions(r.best.first_version, r.best.last_version),
                    _stretch(r.present),
                    _versions(r.present.first_version, r.present.last_version),
                    _gain(r.change),
                )
                for r in summary.retention
            ],
        )
    if summary.consulted:
        yield ""
        yield Table(
            ("asked for", "model", "questions", "remembered", "requests", "prompt", "answer", "cost"),
            [
                (
                    c.purpose,
                    c.model,
                    c.questions,
                    c.remembered,
                    c.requests,
                    f"{c.prompt_tokens} tokens",
                    f"{c.answer_tokens} tokens",
                    f"${c.cost_usd:.4f}",
                )
                for c in summary.consulted
            ],
        )
    for change in summary.changes:
        yield f"changed at position {change.position}: {change.text}"


def _stretch(stretch: Stretch) -> str:
    return f"{stretch.rate:.0%} [{stretch.low:.0%}, {stretch.high:.0%}] n={stretch.judged}"


def _versions(first: int | None, last: int | None) -> str:
    return str(first) if first == last else f"{first} to {last}"


def _gain(gain: tuple[float, float, float]) -> str:
    return f"{gain[0]:+.0%} [{gain[1]:+.0%}, {gain[2]:+.0%}]"


@run_app.command("compare")
def compare(
    run: Annotated[str, typer.Argument(metavar="RUN", help="The run, such as a fork.")],
    other: Annotated[
        str | None, typer.Argument(metavar="[OTHER]", help="The run to compare it with; default: its parent.")
    ] = None,
) -> Report:
    """Compare two runs: where they diverge, settings that differ, success by version, and updates after that.

    The second run is in the right column, and differences are second minus first. With one run, the first is its parent.

    Example: hindcast run compare colder
    """
    chosen = open_run(run)
    if other is None and chosen.fork is None:
        raise SettingsError(f"run {run} is not a fork: name the run to compare it with")
    base = other or (chosen.fork.parent if chosen.fork else None)
    if other is None and chosen.fork is not None and chosen.fork.archive:
        raise SettingsError(
            f"run {run} is a fork of {base}, which is in the archive {chosen.fork.archive} and not in this home. To "
            f"compare the two: hindcast import {chosen.fork.archive}, hindcast rebuild {base}, hindcast run compare {run} {base}"
        )
    first, second = (run, other) if other else (base, run)
    with connect_read_model(first) as left, connect_read_model(second) as right:
        found = compare_runs(left, right)
    return Report(found, _comparison_text(found))


COMPARED = ("loss", "kl", "entropy_estimate", "gradient_norm", "ratio_mean")
"""Metrics of updates that are compared if both runs have them."""


def _comparison_text(found: Comparison) -> Iterator[Block]:
    left, right = found.left, found.right
    where = "no common log" if found.parted_at is None else f"one log up to position {found.parted_at}"
    yield f"{left} ({count_of(found.left_updates, 'update')}) and {right} ({count_of(found.right_updates, 'update')}): {where}"
    yield ""
    yield Table(
        ("setting", left, right),
        [(s.key, s.left, s.right) for s in found.settings],
        empty="The same settings.",
    )
    yield ""
    rows = [
        (
            f"{p.version}{' (shared)' if p.shared else ''}",
            weighted_rate(p.left_weighted, p.left),
            weighted_rate(p.right_weighted, p.right),
            _gain(p.gain) if p.gain else None,
        )
        for p in found.success
    ]
    yield Table(("policy", left, right, "difference"), rows, empty="No verdict yet.")
    if rows:
        yield WEIGHTED_OF_BOTH
    names = [n for n in COMPARED if any(n in (s.left or {}) or n in (s.right or {}) for s in found.updates)]
    heads = ("update", *(f"{name}, {side}" for name in names for side in (left, right)))
    yield ""
    alike = found.updates_alike
    yield Table(
        heads,
        [
            (s.update, *(v for n in names for v in ((s.left or {}).get(n), (s.right or {}).get(n))))
            for s in found.updates
        ],
        empty="" if alike else "No update since.",
    )
    if alike:
        yield f"Updates since that gave both runs the same weights, not listed: {alike}"


app = typer.Typer()
app.add_typer(run_app)
