"""What lies beyond the edges of a tree, counted: all training behind a thing, and everything that has come from it.

Weights are one chain: a version holds every update before it. So what came of an update is every later version and every
episode that they sampled a token of, and what a version came from is every update up to its own.
"""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import ColumnElement, Select, and_, func, or_, select

from storage.readmodel.lineage.answers import Origins, Reach
from storage.readmodel.lineage.asked import DEMONSTRATOR, POLICY, Asked, Ref
from storage.readmodel.lineage.effects import first_version_with
from storage.readmodel.lineage.sources import SAME_SAMPLE
from storage.readmodel.tables import (
    batch_episodes,
    batch_samples,
    batches,
    episodes,
    steps,
    update_samples,
    updates,
    weights,
)


def origins(asked: Asked, ref: Ref) -> Origins | None:
    """All training behind a thing; None where no weights are, or no policy's."""
    update = _update_behind(asked, ref)
    if update is None:
        return None
    applied = (
        asked.holds(updates),
        updates.c.model == POLICY,
        updates.c.outcome == "applied",
        updates.c.update_number <= update,
    )
    made = asked.rows(
        select(func.count().label("updates"), func.count(updates.c.batch.distinct()).label("batches")).where(
            *applied
        )
    )[0]
    last = asked.number(select(func.max(updates.c.batch)).where(*applied))
    known = (asked.holds(weights), weights.c.model == POLICY)
    before = update - 1 if ref.kind == "update" else update
    version = asked.number(select(func.max(weights.c.version)).where(*known, weights.c.at_update <= before))
    counted = {"episodes": 0, "tasks": 0}
    if last is not None:
        trained = _trained(asked, applied, last=last).subquery()
        counts = select(func.count().label("episodes"), func.count(episodes.c.task.distinct()).label("tasks"))
        joined = counts.select_from(trained).join(episodes, episodes.c.episode == trained.c.episode)
        counted = dict(asked.rows(joined.where(asked.holds(episodes)))[0])
    return Origins(policy=version or 0, updates=made["updates"], batches=made["batches"], **counted)


def _update_behind(asked: Asked, ref: Ref) -> int | None:
    """The last update in the weights that had a part in a thing; 0 for the base policy."""
    version: int | None = None
    if ref.kind == "update":
        (row,) = asked.rows(select(updates).where(updates.c.position == ref.key[0]))
        made = row["outcome"] == "applied"  # the number of a skipped one is the next one's, too
        return row["update_number"] - (not made) if row["model"] == POLICY else None
    if ref.kind == "policy":
        version = ref.key[1] if ref.key[0] == POLICY else None
    elif ref.kind == "batch":
        version = asked.number(
            select(batches.c.version).where(asked.holds(batches), batches.c.batch == ref.key[0])
        )
    elif ref.kind in ("step", "episode"):
        column = steps.c.position if ref.kind == "step" else steps.c.episode
        version = asked.number(
            select(func.max(steps.c.version_high)).where(asked.holds(steps), column == ref.key[0])
        )
    if version is None or version == DEMONSTRATOR:
        return None
    return asked.number(
        select(weights.c.at_update).where(
            asked.holds(weights), weights.c.model == POLICY, weights.c.version == version
        )
    )


def _trained(asked: Asked, applied: Sequence[ColumnElement[bool]], *, last: int) -> Select[Any]:
    """Episodes that the applied updates went through; each once.

    Of whole batches the plan says so at once. Of the `last` one, which may be under way, and of those with a mini-batch
    that was skipped, only the samples of what was applied count.
    """
    model = (asked.holds(updates), updates.c.model == POLICY)
    broken = select(updates.c.batch).where(*model, updates.c.outcome == "skipped")
    whole = select(batch_episodes.c.episode).where(
        asked.holds(batch_episodes),
        batch_episodes.c.batch < last,
        batch_episodes.c.batch.not_in(broken),
        batch_episodes.c.epoch.is_not(None),
    )
    computed = and_(
        updates.c.batch == batch_samples.c.batch, updates.c.minibatch == batch_samples.c.minibatch
    )
    parts = (
        select(batch_samples.c.episode)
        .join(updates, computed)
        .where(
            *applied,
            asked.holds(batch_samples),
            or_(batch_samples.c.batch == last, batch_samples.c.batch.in_(broken)),
        )
    )
    return select(whole.union(parts).subquery().c.episode)


def reach(asked: Asked, ref: Ref) -> Reach | None:
    """Everything that has come from a thing by way of training; None where nothing was trained on it."""
    first_update = _first_update(asked, ref)
    if ref.kind == "policy":
        first_policy = ref.key[1] if ref.key[0] == POLICY else None
    elif first_update is not None:
        first_policy = first_version_with(asked, POLICY, first_update)
    if first_update is None and (ref.kind != "policy" or first_policy is None):
        return None
    newest = asked.number(
        select(func.max(weights.c.version)).where(asked.holds(weights), weights.c.model == POLICY)
    )
    outcomes: dict[str, int] = {}
    if first_policy is not None:
        # Left to choose, SQLite walks through all steps in the order of their episodes rather than those of the versions.
        episode = func.coalesce(steps.c.episode, "").label("episode")
        later = select(episode).where(asked.holds(steps), steps.c.version_high >= first_policy)
        outcomes = asked.outcomes(later.distinct())
    return Reach(
        first_update=first_update,
        first_policy=first_policy,
        newest_policy=newest if first_policy is not None else None,
        episodes=sum(outcomes.values()),
        outcomes=outcomes,
    )


def _first_update(asked: Asked, ref: Ref) -> int | None:
    """The first update of the policy computed from a thing."""
    applied = (asked.holds(updates), updates.c.model == POLICY, updates.c.outcome == "applied")
    number = select(func.min(updates.c.update_number)).where(*applied)
    if ref.kind == "update":
        return asked.number(number.where(updates.c.position == ref.key[0]))
    if ref.kind == "batch":
        return asked.number(number.where(updates.c.batch == ref.key[0]))
    used = (
        select(func.min(update_samples.c.update_number))
        .select_from(batch_samples)
        .join(update_samples, SAME_SAMPLE)
        .where(asked.holds(batch_samples), asked.holds(update_samples), update_samples.c.model == POLICY)
    )
    if ref.kind == "step":
        return asked.number(used.where(batch_samples.c.step_position == ref.key[0]))
    if ref.kind not in ("episode", "task"):
        return None
    own = select(episodes.c.episode).where(asked.holds(episodes), episodes.c[ref.kind] == ref.key[0])
    planned = (
        select(batch_episodes.c.batch)
        .where(
            asked.holds(batch_episodes),
            batch_episodes.c.episode.in_(own),
            batch_episodes.c.epoch.is_not(None),
        )
        .distinct()
        .order_by(batch_episodes.c.batch)
    )
    for row in asked.rows(planned):  # in the order of training, so nearly always the first one tells
        mine = used.where(batch_samples.c.batch == row["batch"], batch_samples.c.episode.in_(own))
        found = asked.number(mine)
        if found is not None:
            return found
    return None
