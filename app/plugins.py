"""The kinds of plugins that there are: what a plugin of each must be, and which of them settings use."""

import asyncio
import sys
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, NoReturn

import msgspec

from hindcast.actors.environments.base import NO_ANSWERS
from hindcast.actors.environments.plugin import ENVIRONMENTS, Environment
from hindcast.actors.judges.base import judge_problems
from hindcast.actors.judges.plugin import JUDGES, JudgeContext, JudgePlugin, JudgeTraits, options_of
from hindcast.actors.relabelers.plugin import RELABELERS, RelabelerPlugin, RelabelerTraits
from hindcast.app.alerts import ALERTS
from hindcast.app.alerts.alert import Alert, check_alert
from hindcast.app.attach.bridge import BRIDGES, Bridge, check_bridge
from hindcast.app.exports import EXPORTERS
from hindcast.app.imports import IMPORTERS
from hindcast.core.domain.evidence import Evidence, Judgment
from hindcast.core.domain.observation import Node, Page
from hindcast.core.errors import HindcastError, PluginError, SettingsError, error_and_place
from hindcast.core.models.engine import ENGINES, Engine, EngineTraits
from hindcast.core.plugins import PluginIdentity, identify_plugin, load_plugin, own_names, plugin_names
from hindcast.core.prompts.rendering import KIND as RENDERERS
from hindcast.core.prompts.rendering import Renderer
from hindcast.core.rl.algorithm import ALGORITHMS, CLONING_BEFORE, Algorithm, AlgorithmTraits
from hindcast.core.settings.schema import (
    CurriculumSettings,
    JudgeSettings,
    LearnerSettings,
    PolicySettings,
    RelabelerSettings,
    Settings,
)
from hindcast.core.structs import convert
from hindcast.storage.blobs.store import BlobStore

OPEN_S = 60.0
"""How long a check waits for a judge to open."""


class PluginKind(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of plugin."""

    type: type
    """What a plugin of this kind is an instance of."""
    check: Callable[[str, Any], list[str]]
    """From a plugin's name and object of this type to what is wrong with it, one sentence each."""
    used: Callable[[Settings], list[str]] = lambda settings: []
    """The names that settings use; a run records them."""


class PluginFinding(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of one plugin."""

    kind: str
    name: str
    identity: PluginIdentity | None
    """None: it cannot be loaded."""
    problems: tuple[str, ...]
    """Empty: a run can use it."""


def plugins_in_use(settings: Settings) -> tuple[PluginIdentity, ...]:
    """The plugins that a run with these settings uses. Raises PluginError where one is missing."""
    return tuple(
        identify_plugin(kind, name)
        for kind, one in plugin_kinds().items()
        for name in dict.fromkeys(one.used(settings))
    )


def require_plugins(settings: Settings) -> None:
    """Require the plugins of a run with these settings, and that its judges of other packages can judge.

    Raises:
        PluginError: one is missing, or a judge has a part that no run could use.

    """
    plugins_in_use(settings)
    for name in settings.judge.judges:
        if name in own_names(JUDGES):
            continue
        for finding in find_plugins(JUDGES, name):
            if finding.problems:
                raise PluginError(
                    f"judge.judges: the plugin {name!r} cannot judge: {'; '.join(finding.problems)}. Correct it; "
                    f"`hindcast plugin check {name}` checks it again"
                )


def find_plugins(kind: str | None = None, name: str | None = None) -> list[PluginFinding]:
    """The plugins of a kind, or of all, with what is wrong with each; `name`: those of this name, or `module:object`.

    Raises:
        PluginError: there is no such kind, or no plugin of this name, or the object is a plugin of no kind.

    """
    known = plugin_kinds()
    if kind is not None and kind not in known:
        raise PluginError(f"there is no kind of plugin {kind!r}; there are: {', '.join(known)}")
    kinds = list(known) if kind is None else [kind]
    if name is not None and ":" in name:
        return [_check(_kind_of(name, kinds), name)]
    pairs = [(one, each) for one in kinds for each in plugin_names(one) if name in (None, each)]
    if name is not None and not pairs:
        load_plugin(kinds[0], name)
    return [_check(one, each) for one, each in pairs]


def _kind_of(name: str, kinds: list[str]) -> str:
    """The kind among these of the object that `module:object` names; the only one, whatever the object is."""
    if len(kinds) == 1:
        return kinds[0]
    types = {kind: plugin_kinds()[kind].type for kind in kinds}
    for kind, one in types.items():
        found = load_plugin(kind, name)
        if isinstance(found, one):
            return kind
    wanted = ", ".join(f"{one.__module__}.{one.__name__} ({kind})" for kind, one in types.items())
    raise PluginError(f"{name} is of the type {type(found).__name__}; a plugin is one of: {wanted}")


def _check(kind: str, name: str) -> PluginFinding:
    had_torch = "torch" in sys.modules
    try:
        found = load_plugin(kind, name)
    except PluginError as error:
        return PluginFinding(kind=kind, name=name, identity=None, problems=(str(error),))
    loads_torch = "torch" in sys.modules and not had_torch  # its parts, below, may load it
    wanted = plugin_kinds()[kind].type
    if isinstance(found, wanted):
        try:
            problems = plugin_kinds()[kind].check(name, found)
        except Exception as error:  # the plugin's code may raise anything
            problems = [f"it fails while it is checked: {error_and_place(error)}"]
    else:
        problems = [f"it is a {type(found).__name__}, no {wanted.__module__}.{wanted.__name__}"]
    if loads_torch:
        problems.append("its module imports torch, which processes that only ask its traits need not load")
    versioned = isinstance(getattr(found, "state_version", None), int)
    if not versioned:
        problems.append("it declares no state_version, a whole number")
    identity = identify_plugin(kind, name) if versioned else None
    return PluginFinding(kind=kind, name=name, identity=identity, problems=tuple(problems))


def _check_algorithm(name: str, found: Algorithm) -> list[str]:
    from hindcast.learner.algorithms.base import Loss
    from hindcast.learner.planners.base import PolicyPlanner

    settings = Settings(learner=LearnerSettings(algorithm=name))
    problems = _check_traits(found.traits, AlgorithmTraits)
    if not isinstance(found.planner(name), PolicyPlanner):
        problems.append("its planner makes no hindcast.learner.planners.base.PolicyPlanner")
    if not isinstance(found.loss(settings.learner), Loss):
        problems.append("its loss makes no hindcast.learner.algorithms.base.Loss")
    if not isinstance(found.check(settings), list):
        problems.append("its check returns no list of sentences")
    if not isinstance(found.episodes_per_batch(settings), int):
        problems.append("its episodes_per_batch returns no whole number")
    return problems


def _check_judge(name: str, found: JudgePlugin) -> list[str]:
    problems = _check_traits(found.traits, JudgeTraits)
    if (found.open is None) == (found.versions is None):
        problems.append("it needs either open or versions")
    settings = Settings(judge=JudgeSettings(judges=(name,)))
    wrong: Any = found.check(settings)
    if not isinstance(wrong, list):
        problems.append("its check returns no list of sentences")
    elif found.open is not None and not wrong:
        problems += asyncio.run(_check_opened(name, found.open, settings))
    return problems


async def _check_opened(
    name: str, open_judge: Callable[[JudgeContext], Any], settings: Settings
) -> list[str]:
    """Open a judge as a run does; one that needs an endpoint or a model of the settings is not opened."""

    async def no_endpoint() -> NoReturn:
        raise SettingsError("a check has no endpoint")

    with tempfile.TemporaryDirectory() as folder:
        try:
            context = JudgeContext(
                name=name,
                settings=settings,
                options=options_of(name, settings),
                blobs=BlobStore(Path(folder)),
                endpoint=no_endpoint,
            )
            async with asyncio.timeout(OPEN_S), open_judge(context) as judge:
                return judge_problems(judge, name)
        except HindcastError:
            return []
        except Exception as error:
            return [f"it cannot be opened: {error_and_place(error)}"]


def _check_relabeler(name: str, found: RelabelerPlugin) -> list[str]:
    problems = _check_traits(found.traits, RelabelerTraits)
    if not isinstance(found.check(Settings(relabeler=RelabelerSettings(kind=name))), list):
        problems.append("its check returns no list of sentences")
    return problems


def _check_engine(name: str, found: Engine) -> list[str]:
    problems = _check_traits(found.traits, EngineTraits)
    if not isinstance(found.check(Settings(policy=PolicySettings(engine=name))), list):
        problems.append("its check returns no list of sentences")
    return problems


def _check_traits(traits: Any, kind: type[msgspec.Struct]) -> list[str]:
    try:
        convert(msgspec.structs.asdict(traits), kind)
    except (TypeError, msgspec.ValidationError) as error:
        return [f"its traits are none: {error}"]
    return []


def _check_environment(name: str, found: Environment) -> list[str]:
    settings = Settings(curriculum=CurriculumSettings(environments=(name,)))
    wrong: Any = found.check(settings)
    if not isinstance(wrong, list):
        return ["its check returns no list of sentences"]
    if wrong:  # it wants settings, which only a run has
        return []
    source = found.tasks(name, settings)
    if source is None or not source.families():
        return ["its check is content, but it has no task families"]
    task = source.task(source.families()[0], 0)
    problems = []
    if task.environment != name:
        problems.append(f"its tasks name the environment {task.environment!r}, not {name!r}")
    if task != source.task(source.families()[0], 0):
        problems.append("it makes another task from the same family and seed")
    unknown = sorted(set(found.demonstrators()) - set(source.families()))
    if unknown:
        problems.append(f"it has demonstrators for families that it does not have: {', '.join(unknown)}")
    try:
        verdict: Any = found.evaluate(task, Evidence(answer=None, final_url="", probes={}), NO_ANSWERS)
    except Exception as error:
        return [
            *problems,
            f"its evaluate fails on an episode without an answer and with empty probes, as one that was cut off has: {error_and_place(error)}",
        ]
    if not isinstance(verdict, Judgment):
        problems.append("its evaluate returns no hindcast.core.domain.evidence.Judgment")
    return problems


def _check_renderer(name: str, found: Renderer) -> list[str]:
    nodes = (
        Node(kind="heading", tag="h1", text="Cart", depth=0),
        Node(kind="button", tag="button", text="Buy now", depth=0, id=1),
    )
    page = Page(url="http://127.0.0.1/", title="Shop", nodes=nodes)
    try:
        first: Any = found.render(page)
        again = found.render(page)
    except Exception as error:
        return [f"it fails on a page of a heading and a button: {error!r}"]
    if not isinstance(first, str):
        return [f"it renders a page as a {type(first).__name__}, not as text"]
    return [] if first == again else ["it renders one page in two ways"]


def _algorithms_used(settings: Settings) -> list[str]:
    before = [CLONING_BEFORE] if settings.learner.cloning_updates else []
    return [*before, settings.learner.algorithm]


@cache
def plugin_kinds() -> dict[str, PluginKind]:
    """Every kind, by name. A function, because exporters load SQLAlchemy, which a command that starts a run need not."""
    from hindcast.app.exports.exporter import Exporter, check_exporter
    from hindcast.app.imports.importer import Importer, check_importer

    return {
        ALGORITHMS: PluginKind(type=Algorithm, check=_check_algorithm, used=_algorithms_used),
        JUDGES: PluginKind(
            type=JudgePlugin, check=_check_judge, used=lambda settings: list(settings.judge.judges)
        ),
        RELABELERS: PluginKind(
            type=RelabelerPlugin,
            check=_check_relabeler,
            used=lambda settings: [name for name in (settings.relabeler.kind,) if name],
        ),
        ALERTS: PluginKind(type=Alert, check=lambda name, found: check_alert(found)),
        EXPORTERS: PluginKind(type=Exporter, check=lambda name, found: check_exporter(found)),
        IMPORTERS: PluginKind(type=Importer, check=lambda name, found: check_importer(found)),
        BRIDGES: PluginKind(type=Bridge, check=lambda name, found: check_bridge(found)),
        ENGINES: PluginKind(type=Engine, check=_check_engine, used=lambda settings: [settings.policy.engine]),
        RENDERERS: PluginKind(
            type=Renderer, check=_check_renderer, used=lambda settings: [settings.actors.renderer]
        ),
        ENVIRONMENTS: PluginKind(
            type=Environment,
            check=_check_environment,
            used=lambda settings: list(settings.curriculum.environments),
        ),
    }
