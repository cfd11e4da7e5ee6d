"""Settings of the models that a run trains beside its policy, as far as they do not go together."""

from core.settings import Settings
from core.states import ORM


def learned_conflicts(settings: Settings) -> list[str]:
    """What is wrong with the outcome reward model's and the learned relabeler's settings, in words."""
    found: list[str] = []
    learner, evolution = settings.learner, settings.evolution
    judges = settings.judge.judges
    missing = [name for name in (ORM, learner.orm_truth) if name not in judges]
    if learner.orm_every and missing:
        found.append(
            f"learner.orm_every = {learner.orm_every} trains the judge {ORM} on what it reads and on the verdicts of "
            f"{learner.orm_truth} (learner.orm_truth), and judge.judges lacks {' and '.join(missing)}: add it"
        )
    if learner.orm_every and learner.orm_truth == ORM:
        found.append(
            f"learner.orm_truth = {ORM!r} would teach the model its own verdicts: name another judge"
        )
    learned = settings.relabeler.kind == "learned"
    if learned != bool(learner.relabeler_every):
        found.append(
            f"relabeler.kind = {settings.relabeler.kind!r} and learner.relabeler_every = {learner.relabeler_every} do not go "
            "together: the learner trains the relabeler learned, and that alone"
        )
    if settings.relabeler.teacher and not learned:
        found.append(
            f"relabeler.teacher = {settings.relabeler.teacher!r} teaches nobody: relabeler.kind = "
            f"{settings.relabeler.kind!r} is not learned"
        )
    if evolution.valued_by == ORM and not (evolution.generator and learner.orm_every):
        found.append(
            "evolution.valued_by = 'orm' values generated tasks by a model that the run trains: it needs evolution.generator and "
            "learner.orm_every"
        )
    return found
