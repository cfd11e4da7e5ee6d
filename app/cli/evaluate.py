"""`hindcast eval`: measures a policy's success on unseen tasks."""

import asyncio
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from hindcast.actors.agents.process import require_agent
from hindcast.actors.environments.base import TaskSource
from hindcast.actors.environments.plugin import ENVIRONMENTS, find_environment
from hindcast.actors.environments.web.tasks import ENVIRONMENT
from hindcast.actors.environments.webarena.tasks import WebArenaTasks
from hindcast.app.cli.bars import progress_bar
from hindcast.app.cli.options import PLACES, SourceName
from hindcast.app.cli.output import Block, Report, Table
from hindcast.app.runs.sources import Source, open_source
from hindcast.app.settings.checks.sites import require_accounts
from hindcast.app.settings.configuration import resolve
from hindcast.app.settings.endpoint_overrides import endpoint_policy
from hindcast.app.settings.web_tasks import overrides_for, require_task_secrets
from hindcast.core.domain.task import Task
from hindcast.core.errors import SettingsError
from hindcast.core.plugins import own_names, plugin_names
from hindcast.core.settings.schema import Settings
from hindcast.core.text.nearest import advice
from hindcast.core.text.plain_values import read_count

if TYPE_CHECKING:
    from hindcast.app.evaluation.evaluation import EvaluationReport, FamilyResult
    from hindcast.app.evaluation.interaction_budget import BudgetPoint

app = typer.Typer()

EPISODES = 100
"""Episodes played by default."""
TASK_FILES = (".toml", ".jsonl")
EVERY = "-all"
"""Suffix of a suite with every family of its environment; otherwise a suite has the environment's evaluation families."""


@app.command("eval")
def evaluate_policy(
    policy: Annotated[
        str,
        typer.Option(
            help="`base`, a model folder, a version of the run such as 12, `latest`, or `endpoint:MODEL` at "
            "endpoint.base_url."
        ),
    ] = "base",
    suite: Annotated[
        str,
        typer.Option(
            help="Tasks: store, miniwob, miniwob-all, webarena, webshop, browsergym, a plugin's environment, module:Class, or your own task file."
        ),
    ] = "store",
    episodes: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Number of episodes. Default: 100, or one for each task of your own file or of WebArena's.",
        ),
    ] = None,
    family: Annotated[list[str] | None, typer.Option(help="Only these families; repeatable.")] = None,
    tasks: Annotated[
        Path | None,
        typer.Option(help="Instead of a suite: the tasks of a settings file that task select wrote."),
    ] = None,
    temperature: Annotated[float, typer.Option(min=0.0, help="Sampling temperature; 0 is greedy.")] = 0.0,
    budgets: Annotated[
        str | None,
        typer.Option(help="Step budgets such as 2,4,8,16: success within each; the largest is played."),
    ] = None,
    overrides: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="A setting.")
    ] = None,
    run: SourceName = None,
    as_of: Annotated[
        str | None,
        typer.Option(
            "--as-of", metavar="PLACE", help=f"The version published last by a place in the log: {PLACES}."
        ),
    ] = None,
) -> Report:
    """Measure success on unseen tasks with a 95 % interval, by task family. Exit code 1 if no episode could be played.

    Example: hindcast eval --policy latest --suite store --episodes 200 --json
    """
    from hindcast.actors.curriculum.pool import configured_pool
    from hindcast.app.evaluation.evaluation import plan_attempts, plan_requests, play
    from hindcast.app.evaluation.interaction_budget import success_within, with_budget
    from hindcast.app.system.sites import task_sources

    own = _own_file(suite)
    settings = resolve(
        file=tasks,
        overrides=[
            *_named(suite),
            *_agent_of(suite, policy, run),
            *overrides_for(own),
            *(overrides or []),
        ],
    ).settings
    require_task_secrets(settings)
    require_accounts(settings)
    require_agent(settings.actors)
    sources = task_sources(settings)
    source = _source(sources, suite.removesuffix(EVERY) if own is None else ENVIRONMENT)
    asked = endpoint_policy(policy, settings)
    settings = asked or settings
    folder, weights, name = (
        (None, None, policy) if asked is not None else _find_policy(policy, settings, run, as_of)
    )
    if tasks is not None and not settings.curriculum.tasks:
        raise SettingsError(f"--tasks {tasks} names no curriculum.tasks. Run: hindcast task select")
    chosen: list[Task] = []
    if tasks is not None:
        suite = tasks.name
        pool = configured_pool(sources, settings.curriculum)
        chosen = [task for named in pool.values() for task in named.values()]
        episodes = episodes or EPISODES
    elif own is not None or find_environment(source.name).is_played_once:
        suite = suite if own is None else own.name
        chosen = _tasks_of(source, family or source.families())
        episodes = episodes or len(chosen)
    else:
        episodes = episodes or EPISODES
    if chosen:
        requests = plan_attempts(
            chosen,
            attempts=-(-episodes // len(chosen)),
            temperature=temperature,
            lease_s=settings.episode_lease_s,
        )[:episodes]
    else:
        requests = plan_requests(
            source,
            episodes=episodes,
            families=family or _families_of(suite, source),
            temperature=temperature,
            lease_s=settings.episode_lease_s,
        )
    allowed = _budgets(budgets, settings) if budgets is not None else []
    if allowed:
        requests = with_budget(requests, max(allowed))
    with progress_bar() as bar:
        task = bar.add_task(f"{name} on {suite}", total=episodes)
        said: Callable[[int, int], None] = lambda done, _: bar.update(task, completed=done)  # noqa: E731
        tally = asyncio.run(play(requests, folder=folder, weights=weights, settings=settings, said=said))
    report = tally.report(suite=suite, policy=name)
    points = success_within(tally.decided, allowed)
    within = {"budgets": msgspec.to_builtins(points)} if points else {}
    task_file = source.describe() if isinstance(source, WebArenaTasks) else None
    return Report(msgspec.to_builtins(report) | within, _evaluation_text(report, points, task_file=task_file))


def _evaluation_text(
    report: "EvaluationReport", points: Sequence["BudgetPoint"], *, task_file: str | None
) -> Iterator[Block]:
    rows = [(name, *_success(one)) for name, one in report.by_task.items()]
    yield Table(("family", "success", "95 %", "n"), rows, empty="no episode got a verdict")
    yield (
        f"policy {report.policy} on {report.suite}: {report.rate:.1%} [{report.low:.1%}, {report.high:.1%}] "
        f"n={report.episodes}, {report.lost} without a verdict, {report.mean_steps} steps on average, mean reward {report.mean_reward:.3f} "
        f"[{report.reward_low:.3f}, {report.reward_high:.3f}]"
    )
    for reason, count in report.lost_because.items():
        yield f"without a verdict: {count} × {reason}"
    if report.asked is not None:
        yield (
            f"asked: {report.asked.prompt_tokens} prompt tokens, {report.asked.answer_tokens} answer tokens, "
            f"{report.asked.cost_usd:.4f} dollars"
        )
    if task_file is not None:
        yield f"Task file: {task_file}."
    for name, count in report.unlike_starts.items():
        yield (
            f"{name}: {count} of its episodes did not begin like its first one, although resets = 'per_episode' requires it"
        )
    if points:
        yield Table(
            ("steps allowed", "success", "95 %", "n"), [(one.budget, *_success(one)) for one in points]
        )
        yield "Success within each budget on one set of episodes; all but the last are lower bounds."


def _success(one: "FamilyResult | BudgetPoint") -> tuple[str, str, int]:
    return f"{one.rate:.0%}", f"[{one.low:.0%}, {one.high:.0%}]", one.episodes


def _source(sources: Mapping[str, TaskSource], environment: str) -> TaskSource:
    if environment not in sources:
        raise SettingsError(f"--suite {environment} needs {find_environment(environment).needs}")
    return sources[environment]


def _families_of(suite: str, source: TaskSource) -> Sequence[str]:
    """Families of a suite."""
    if suite.endswith(EVERY):
        return source.families()
    return find_environment(source.name).evaluation_families(source)


def suites() -> list[str]:
    """Names of environments that can be a suite: all except the user's own tasks, which are named by their file."""
    return [name for name in plugin_names(ENVIRONMENTS) if name != ENVIRONMENT]


def _named(suite: str) -> list[str]:
    """Override that selects the environment of a plugin's suite; none for built-in environments."""
    name = suite.removesuffix(EVERY)
    chosen = _is_environment(name) and name not in own_names(ENVIRONMENTS)
    return [f"curriculum.environments={json.dumps([name])}"] if chosen else []


def _agent_of(suite: str, policy: str, run: str | None) -> list[str]:
    """Overrides with which the run's own agent plays a version of the run, and its judges judge, on the run's environments."""
    environment = suite.removesuffix(EVERY)
    settings = open_source(run).settings if _is_version(policy) else Settings()
    if not settings.actors.agent or environment not in settings.curriculum.environments:
        return []
    chosen = settings.actors.model_dump(mode="json", exclude_defaults=True)
    return [
        f"curriculum.environments={json.dumps([environment])}",
        f"judge.judges={json.dumps(settings.judge.judges)}",
        *(f"actors.{name}={json.dumps(value)}" for name, value in chosen.items()),
    ]


def _is_version(policy: str) -> bool:
    """Whether a policy is named as a version of a run."""
    return policy == "latest" or read_count(policy) is not None


def _is_environment(name: str) -> bool:
    """Whether a suite names an environment, or a Python class. Raises PluginError for a class that cannot be one."""
    if ":" in name and Path(name).suffix not in TASK_FILES:
        find_environment(name)
        return True
    return name in suites()


def _own_file(suite: str) -> Path | None:
    """The task file that a suite names; None for a built-in suite. Raises SettingsError for any other name."""
    if _is_environment(suite.removesuffix(EVERY)):
        return None
    path = Path(suite)
    if path.suffix in TASK_FILES or path.is_file():
        return path
    raise SettingsError(
        f"--suite {suite!r} is unknown; {advice(suite, suites())}; or a task file, .toml or .jsonl; or a Python class as "
        "module:Class"
    )


def _tasks_of(source: TaskSource, families: Sequence[str]) -> list[Task]:
    """Every task of the families, once. Seeds number the tasks of a family and start again after the last."""
    found: dict[str, Task] = {}
    for family in families:
        number = 0
        while (task := source.task(family, number)).id not in found:
            found[task.id] = task
            number += 1
    return list(found.values())


def _budgets(text: str, settings: Settings) -> list[int]:
    found = [part.strip() for part in text.split(",")]
    budgets = [number for part in found if (number := read_count(part))]
    if len(budgets) < len(found):
        raise SettingsError(f"--budgets {text!r} must be numbers of steps above 0, such as 2,4,8,16")
    if settings.scaffold.states:
        raise SettingsError(
            "--budgets needs one set of episodes for all budgets, and a scaffold's actions depend on the number of steps "
            "left: set scaffold.states to an empty text, or evaluate once per budget"
        )
    return budgets


def _find_policy(
    policy: str, settings: Settings, run: str | None, as_of: str | None
) -> tuple[Path, Path | None, str]:
    """Model folder, weights file if the policy is a run's version, and the name to show."""
    from hindcast.core.models.folders import policy_folder

    number = read_count(policy)
    if not _is_version(policy):
        if as_of is not None:
            raise SettingsError(f"--as-of needs a version of a run; --policy {policy} is not one")
        if run is not None:
            raise SettingsError(
                f"{run} names a run, but --policy {policy} is not a version of a run: use --policy latest or the "
                "number of a version, or omit the run"
            )
        return policy_folder(policy), None, policy
    handle = open_source(run)
    version = number
    found = asyncio.run(_published(handle, version, as_of))
    return policy_folder(handle.settings.policy.base), found[1], f"{handle.name}/{found[0]}"


async def _published(handle: Source, version: int | None, as_of: str | None) -> tuple[int, Path]:
    from hindcast.events.catalogue import WeightsPublished
    from hindcast.events.log.places import END, parse_place, position_of
    from hindcast.events.log.reader import read

    last: WeightsPublished | None = None
    async with handle.connect_log() as log:
        until = await position_of(log, END if as_of is None else parse_place(as_of))
        async for recorded in read(log, after=0, until=until, strict=False):
            fact = recorded.fact
            if (
                isinstance(fact, WeightsPublished)
                and fact.model == "policy"
                and version in (None, fact.version)
            ):
                last = fact
    if last is None:
        wanted = "no policy" if version is None else f"no policy {version}"
        raise SettingsError(
            f"run {handle.name} has published {wanted} by position {until}. Run: hindcast policy list {handle.name}"
        )
    return last.version, handle.blobs.path(last.weights)
