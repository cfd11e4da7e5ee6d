"""Checks the settings of judges, relabelers and the models that a run trains for them."""

from hindcast.actors.judges.plugin import installed_judges, options_of
from hindcast.actors.relabelers.plugin import find_relabeler
from hindcast.actors.relabelers.plugin import options_of as relabeler_options
from hindcast.core.errors import PluginError, SettingsError
from hindcast.core.rl.combined_state import ORM
from hindcast.core.settings.schema import Settings
from hindcast.core.text.addresses import split_address

LARGEST_BATCH = 2000
"""Examples in one batch of a model that the run trains for a judge or relabeler. Its plan is one event, of about 220 bytes each."""


def learned_conflicts(settings: Settings) -> list[str]:
    """Contradictions in the settings of judges, the outcome reward model and relabelers."""
    found = [*_judge_conflicts(settings), *_relabeler_conflicts(settings)]
    learner, evolution = settings.learner, settings.evolution
    judges = settings.judge.judges
    missing = [name for name in (ORM, learner.orm_truth) if name not in judges]
    if learner.orm_every and missing:
        found.append(
            f"learner.orm_every = {learner.orm_every} trains the judge {ORM} on the verdicts of {learner.orm_truth} "
            f"(learner.orm_truth), and judge.judges lacks {' and '.join(missing)}: add it"
        )
    if learner.orm_every and learner.orm_truth == ORM:
        found.append(
            f"learner.orm_truth = {ORM!r} would train the model on its own verdicts: name another judge"
        )
    for name, every, epochs in (
        ("orm", learner.orm_every, learner.orm_epochs),
        ("relabeler", learner.relabeler_every, learner.relabeler_epochs),
    ):
        if every * epochs > LARGEST_BATCH:
            found.append(
                f"learner.{name}_every = {every} and learner.{name}_epochs = {epochs} make batches of {every * epochs} examples; "
                f"a plan is one event, which holds {LARGEST_BATCH}: lower learner.{name}_every, which trains as often on each "
                "example, in more batches"
            )
    server = split_address(settings.judge.webrl_orm_server)
    if settings.judge.webrl_orm_server and not (server.scheme in ("http", "https") and server.hostname):
        found.append(
            f"judge.webrl_orm_server = {settings.judge.webrl_orm_server!r} must be the address of a vLLM server, such as "
            "http://127.0.0.1:8000"
        )
    learned = settings.relabeler.kind == "learned"
    if learned != bool(learner.relabeler_every):
        found.append(
            f"relabeler.kind = {settings.relabeler.kind!r} and learner.relabeler_every = {learner.relabeler_every} contradict "
            "each other: the learner trains the relabeler learned and no other"
        )
    if settings.relabeler.teacher and not learned:
        found.append(
            f"relabeler.teacher = {settings.relabeler.teacher!r} needs relabeler.kind = 'learned', found "
            f"{settings.relabeler.kind!r}"
        )
    if evolution.valued_by == ORM and not (evolution.generator and learner.orm_every):
        found.append(
            "evolution.valued_by = 'orm' values generated tasks with the outcome reward model that the run trains: it needs evolution.generator and "
            "learner.orm_every"
        )
    return found


def _judge_conflicts(settings: Settings) -> list[str]:
    """Contradictions that the judges report; judges that are not installed are skipped."""
    judges = settings.judge.judges
    found = [
        f"judge.options names {name!r}, which is not in judge.judges"
        for name in settings.judge.options
        if name not in judges
    ]
    for name, plugin in installed_judges(judges).items():
        try:
            options_of(name, settings)
        except SettingsError as error:
            found.append(str(error))
            continue
        found += plugin.check(settings)
    return found


def _relabeler_conflicts(settings: Settings) -> list[str]:
    """Contradictions that the relabeler reports; none if it is not installed."""
    name = settings.relabeler.kind
    if not name:
        given = settings.relabeler.options
        return ["relabeler.options is set although relabeler.kind is empty"] if given else []
    try:
        relabeler_options(settings)
        plugin = find_relabeler(name)
        found = plugin.check(settings)
        if settings.relabeler.families == "run" and not plugin.traits.names_families:
            found.append(
                f"relabeler.families = 'run' needs goals whose family is known, and relabeler.kind = {name!r} does not name "
                "it: every goal would be dropped. Set relabeler.families to all"
            )
        return found
    except PluginError:
        return []
    except SettingsError as error:
        return [str(error)]
