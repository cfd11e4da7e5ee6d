"""`hindcast replay steps / sampling`."""

import asyncio
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from hindcast.actors.replay.agent import NOTHING
from hindcast.app.cli.bars import progress_bar
from hindcast.app.cli.options import (
    All,
    Episode,
    Episodes,
    Families,
    Origin,
    Seed,
    SourceName,
    select_episodes,
)
from hindcast.app.cli.output import Block, Report, Table
from hindcast.app.replay.steps import EpisodeReplay, StepsReport, replay_steps
from hindcast.app.runs.sources import open_source
from hindcast.core.errors import ReplayDiverged, SettingsError
from hindcast.core.fast_import import loading
from hindcast.core.text.counts import count_of

if TYPE_CHECKING:
    from hindcast.app.replay.sampling import SamplingReport

app = typer.Typer(
    name="replay", help="Replay recorded episodes and compare with the record.", no_args_is_help=True
)

SAMPLE = 20
"""Default size of the sample, in episodes."""
SHOWN_LINES = 12
"""Maximum number of lines shown of a difference; --json has all."""


@app.command("steps")
def replay_steps_of(
    run: SourceName = None,
    episode: Episode = None,
    episodes: Episodes = None,
    every: All = False,
    family: Families = None,
    origin: Origin = None,
    seed: Seed = 1,
    trust_tasks: Annotated[
        bool,
        typer.Option(
            "--trust-tasks",
            help="Trust your own site's tasks: use the secrets and run the resets that they name.",
        ),
    ] = False,
    start_agent: Annotated[
        bool,
        typer.Option(
            "--start-agent",
            help="Start the program of actors.agent again; it gets the recorded answers, and its calls are compared.",
        ),
    ] = False,
    ignoring: Annotated[
        str,
        typer.Option(
            metavar="PATTERN",
            help="Regular expression of what does not count in the agent's messages, such as a time.",
        ),
    ] = "",
) -> Report:
    """Replay recorded actions on the sites and compare every page with the recorded one.

    Uses its own Chromium and its own store; appends nothing. Exit code 3 if a page differs: prints the first differing step,
    the difference of the pages and the likely cause. Exit code 1 if an episode could not be replayed.

    Example: hindcast replay steps run-1 --episodes 50 --family store/buy
    """
    wanted = select_episodes(
        episode, episodes, every=every, family=family, origin=origin, seed=seed, usual=SAMPLE
    )
    try:
        ignored = re.compile(ignoring) if ignoring else NOTHING
    except re.error as error:
        raise SettingsError(f"--ignoring: {ignoring!r} is no regular expression: {error}") from error
    with progress_bar() as bar:
        task = bar.add_task("replaying", total=wanted.sample)

        def said(_: EpisodeReplay) -> None:
            bar.advance(task)

        report = asyncio.run(
            replay_steps(
                open_source(run),
                wanted,
                said=said,
                trusted=trust_tasks,
                starts_agent=start_agent,
                ignored=ignored,
            )
        )
    code = ReplayDiverged.exit_code if report.differs else 1 if report.failed else 0
    return Report(report, _steps_text(report), exit_code=code)


@app.command("sampling")
def replay_sampling_of(
    run: SourceName = None,
    episode: Episode = None,
    episodes: Episodes = None,
    every: All = False,
    family: Families = None,
    origin: Origin = None,
    seed: Seed = 1,
) -> Report:
    """Compute recorded answers again from the recorded weights, prompts and seeds.

    Compares every token's log-probability, checks that its seed draws it, and generates every answer again. Exit code 3 if a
    log-probability is off by more than 1e-4, or a token is not what its seed draws. Exit code 1 if weights are missing
    although no event deleted them.

    Example: hindcast replay sampling run-1 --episodes 50 --json
    """
    with loading():
        from hindcast.app.replay.sampling import replay_sampling  # loads torch, so only now

    wanted = select_episodes(
        episode, episodes, every=every, family=family, origin=origin, seed=seed, usual=SAMPLE
    )
    with progress_bar() as bar:
        task = bar.add_task("computing answers", total=None)
        report = asyncio.run(
            replay_sampling(open_source(run), wanted, said=lambda done: bar.update(task, completed=done))
        )
    code = ReplayDiverged.exit_code if report.differing else 1 if report.missing else 0
    return Report(report, _sampling_text(report), exit_code=code)


def _sampling_text(report: "SamplingReport") -> Iterator[Block]:
    yield Table(
        (
            "episode",
            "step",
            "position",
            "policy",
            "tokens",
            "largest difference",
            "beyond",
            "not drawn",
            "otherwise",
        ),
        [
            (
                r.episode,
                r.step,
                r.position,
                r.version,
                r.tokens,
                f"{r.largest_difference:.2g}",
                r.beyond,
                r.not_drawn,
                r.differing_tokens,
            )
            for r in report.differing
        ],
        empty="Every token follows from weights, prompt and seed.",
    )
    yield (
        f"run {report.run}: {count_of(report.answers, 'answer')} of {count_of(report.episodes, 'episode')}, "
        f"{count_of(report.tokens, 'token')}, policy "
        f"versions {', '.join(map(str, report.versions)) or 'none'}"
    )
    yield (
        f"log-probabilities: at most {report.largest_difference:.2g} from the recorded ones, {report.beyond} tokens "
        f"beyond {report.tolerance:g}"
    )
    yield (
        f"draws: {report.tokens - report.rounded - report.not_drawn} tokens are what their seed draws, {report.rounded} "
        f"except for rounding, {report.not_drawn} are not; {report.seeds_derived} seeds follow from the run's seed"
    )
    yield f"generated again: {report.regenerated_alike} answers alike, {report.differing_tokens} tokens differ in the others"
    if report.batch_invariant:
        yield "sampled by servers that compute each answer alike whatever else they compute (vllm.batch_invariant)"
    for words, count in _left_out(report):
        yield f"left out: {count} steps {words}"


def _left_out(report: "SamplingReport") -> list[tuple[str, int]]:
    found = [("by a demonstrator, not sampled", report.demonstrated)]
    found.append(("whose tokens name several policy versions", report.mixed))
    for version, count in report.released.items():
        words = f"of policy {version}, whose weights were released (`hindcast verify` recomputes them and compares)"
        found.append((words, count))
    for version, count in report.missing.items():
        words = f"of policy {version}, whose weights are MISSING: no event released them (`hindcast audit` names the blob)"
        found.append((words, count))
    return [(words, count) for words, count in found if count]


def _steps_text(report: StepsReport) -> Iterator[Block]:
    for replay in report.differing:
        yield from _difference_text(replay)
    for replay in report.left_out:
        yield f"{replay.episode} {replay.family} {replay.outcome}: {replay.reason}"
    yield Table(
        ("family", "same", "differ", "skipped", "failed"),
        [(f.family, f.same, f.differs, f.skipped, f.failed) for f in report.families],
    )
    yield (
        f"run {report.run}: {report.same} of {report.same + report.differs} episodes replayed alike, {count_of(report.steps, 'step')}"
        + (f"; {report.skipped} skipped" if report.skipped else "")
        + (f"; {report.failed} could not be replayed" if report.failed else "")
    )


def _difference_text(replay: EpisodeReplay) -> Iterator[Block]:
    found, cause = replay.difference, replay.cause
    assert found is not None
    assert cause is not None
    where = (
        f"at step {found.step}" if found.step < replay.steps else f"after the last of {replay.steps} steps"
    )
    position = f" (position {found.position})" if found.position is not None else ""
    yield f"{replay.episode} {replay.family} DIFFERS {where}{position}: {found.what}"
    if found.what != "page":
        yield f"  recorded  {found.recorded}"
        yield f"  now       {found.now}"
    for line in found.lines[:SHOWN_LINES]:
        yield f"  {line}"
    if len(found.lines) > SHOWN_LINES:
        yield f"  … {len(found.lines) - SHOWN_LINES} more lines (--json has them)"
    yield f"  likely    {cause.words}"
    yield ""
