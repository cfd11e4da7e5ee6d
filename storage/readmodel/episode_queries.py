"""Queries of episodes, with their steps, verdicts, screenshots and the batches that used them; see `run_queries`."""

import json
from collections import defaultdict
from collections.abc import Collection, Iterator
from typing import Any

import msgspec
from sqlalchemy import (
    ColumnElement,
    Connection,
    RowMapping,
    Select,
    Subquery,
    and_,
    func,
    or_,
    select,
)

from hindcast.storage.readmodel.query_parts import (
    DISPUTED,
    NotInReadModel,
    also_holding,
    among,
    answers,
    first_verdicts,
    holding,
    position_of,
    row_fields,
    training_judge,
)
from hindcast.storage.readmodel.tables import (
    batch_episodes,
    batch_samples,
    consultations,
    episodes,
    notices,
    screenshots,
    steps,
    update_samples,
    verdicts,
)


class EpisodeRow(msgspec.Struct, frozen=True, kw_only=True):
    """One episode in a list, without its steps."""

    episode: str
    task: str | None
    environment: str | None
    family: str | None
    group_id: str | None
    member: int | None
    attempt: int | None
    origin: str | None
    state: str
    reason: str | None
    steps: int | None
    version_low: int | None
    version_high: int | None
    actor: str | None
    outcome: str | None
    """The training judge's verdict; None until there is one."""
    reward: float | None
    swept: str | None
    duration_ms: float | None
    requested_position: int | None
    instruction: str | None = None
    """None until it has started."""
    branch_episode: str | None = None
    """Episode that it continues; None: it begins with its task."""
    branch_step: int | None = None
    """First step that the policy answers itself; the steps before repeat those of `branch_episode`."""


class StepRow(msgspec.Struct, frozen=True, kw_only=True):
    """One step of an episode; the log has its token ids and log-probabilities at `position`."""

    position: int
    step: int
    url: str | None
    answer: str | None
    action: str | None
    element: int | None
    argument: str | None
    result: str | None
    detail: str | None
    prompt_tokens: int | None
    answer_tokens: int | None
    version_low: int | None
    version_high: int | None
    context: int | None
    """Number of the agent's context, from 0."""
    temperature: float | None
    observation_digest: str | None
    observation_blob: str | None
    prompt_truncated: bool | None
    scaffold_state: str | None
    """State that the scaffold recognized; empty: none; None: no scaffold."""
    scaffold_choices: int | None
    scaffold_remembered: int | None
    scaffold_chosen: str | None
    observe_ms: float | None
    generate_ms: float | None
    act_ms: float | None
    touched: str | None
    """Box of the action's element in the window, as JSON."""


class ScreenshotRow(msgspec.Struct, frozen=True, kw_only=True):
    """An image of an episode's window."""

    position: int
    step: int | None
    """None: the page that the episode ended on."""
    shows: str
    """The page `before` the step, or `after` it."""
    sha256: str | None
    size_bytes: int | None
    missing: str | None
    """Why there is no image."""
    width: int | None
    height: int | None
    scale: float | None
    """Pixels of the image for one CSS pixel of the window."""
    marks: str | None
    """Numbers and boxes of the elements that could be acted upon, as JSON, in CSS pixels."""
    released: int | None
    """Position of its release."""


class VerdictRow(msgspec.Struct, frozen=True, kw_only=True):
    """One judge's verdict on an episode."""

    position: int
    judge: str
    judge_version: str
    prompt_digest: str | None
    """Digest of the judge's prompt, if it has one."""
    outcome: str
    reward: float | None
    reason: str | None
    model_version: int | None
    """Published version of the run's model that judged; None of other judges."""
    probability: float | None
    """Probability of success that this model gave."""
    asked_model: str | None
    """Model behind an endpoint that was asked."""
    prompt_tokens: int | None
    answer_tokens: int | None
    cost_usd: float | None


class DisputeRow(msgspec.Struct, frozen=True, kw_only=True):
    """A person's objection to a verdict."""

    position: int
    judge: str
    """Judge of the disputed verdict."""
    judge_version: str
    outcome: str
    """What the verdict should have been."""
    author: str
    reason: str


class TrainedIn(msgspec.Struct, frozen=True, kw_only=True):
    """A batch with an episode, over all its epochs."""

    batch: int
    position: int
    trained: bool
    rehearsed: bool
    """Only cloned, as a remembered success. If neither: used up without being trained on."""
    replaces: str | None
    """As a replayed success: the member that it replaced."""
    epochs: int
    """Number of passes over its samples."""
    samples: int | None
    """Samples of one epoch."""
    reward: float | None
    advantage: float | None
    updates: tuple[int, ...]
    """Numbers of the policy updates computed from its samples."""


class EpisodeDetail(msgspec.Struct, frozen=True, kw_only=True):
    """An episode with everything known about it."""

    episode: EpisodeRow
    instruction: str | None
    renderer: str | None
    answer: str | None
    final_url: str | None
    detail: str | None
    steps: tuple[StepRow, ...]
    pages_released: int
    """Steps whose page snapshot was released."""
    screenshots: tuple[ScreenshotRow, ...]
    verdicts: tuple[VerdictRow, ...]
    disputes: tuple[DisputeRow, ...]
    """Disputes of its verdicts; they do not affect training."""
    batches: tuple[TrainedIn, ...]


_SAMPLES_OF_UPDATES = and_(
    update_samples.c.batch == batch_samples.c.batch,
    update_samples.c.minibatch == batch_samples.c.minibatch,
    update_samples.c.place == batch_samples.c.place,
)


def episode_rows(position: int, verdict: Subquery) -> Select[Any]:
    """Every episode with its verdict, if it has one."""
    columns = [episodes.c[name] for name in EpisodeRow.__struct_fields__ if name in episodes.c]
    return (
        select(*columns, verdict.c.outcome, verdict.c.reward)
        .outerjoin(verdict, verdict.c.episode == episodes.c.episode)
        .where(also_holding(episodes, position))
    )


ROWS_AT_ONCE = 1000


class EpisodeFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Conditions on episodes; None: any value."""

    state: str | None = None
    outcome: str | None = None
    """Outcome by the training judge."""
    environment: str | None = None
    family: str | None = None
    origin: str | None = None
    task: str | None = None
    policy: int | None = None
    """Lowest version that sampled a token of the episode."""

    @property
    def everything(self) -> bool:
        """Whether no condition is set."""
        return self == EpisodeFilter()


def matching_episodes(
    connection: Connection, wanted: EpisodeFilter, *, as_of: int | None = None
) -> Iterator[EpisodeRow]:
    """All matching episodes in the order of their requests, read a thousand at a time."""
    position = position_of(connection, as_of)
    verdict = first_verdicts(position, training_judge(connection, as_of=position))
    filters = {
        episodes.c.state: wanted.state,
        verdict.c.outcome: wanted.outcome,
        episodes.c.environment: wanted.environment,
        episodes.c.family: wanted.family,
        episodes.c.origin: wanted.origin,
        episodes.c.task: wanted.task,
        episodes.c.version_low: wanted.policy,
    }
    statement = (
        episode_rows(position, verdict)
        .where(*(column == value for column, value in filters.items() if value is not None))
        .order_by(episodes.c.requested_position, episodes.c.episode)
        .execution_options(yield_per=ROWS_AT_ONCE)
    )
    for row in connection.execute(statement).mappings():
        yield EpisodeRow(**row_fields(row, EpisodeRow))


def verdicts_of(connection: Connection, episode: str, *, as_of: int | None = None) -> list[VerdictRow]:
    """Every judge's verdicts on an episode, in order."""
    position = position_of(connection, as_of)
    return answers(connection, verdicts_with_cost(position, episode), VerdictRow)


class Narrowing(msgspec.Struct, frozen=True, kw_only=True):
    """Conditions on episodes that no sums over blocks of the log count by; None: any value."""

    task: str | None = None
    group: str | None = None
    version: int | None = None
    """Lowest version that sampled a token of the episode."""
    last_version: int | None = None
    """Those of `version` and later ones, up to this one."""
    among: Collection[str] | None = None
    """Only these episodes, such as those that `mentioning` finds."""

    def conditions(self, connection: Connection, position: int) -> list[ColumnElement[bool]]:
        """The same as conditions of a query as of a position."""
        clauses: list[ColumnElement[bool]] = []
        if self.task is not None:
            clauses.append(episodes.c.task == self.task)
        if self.group is not None:
            clauses.append(episodes.c.group_id == self.group)
        if self.version is not None:
            last = self.version if self.last_version is None else self.last_version
            clauses.append(episodes.c.version_low.between(self.version, last))
        if self.among is not None:
            clauses.append(among(connection, episodes.c.episode, self.among))
        return clauses


ALL = Narrowing()


def list_episodes(
    connection: Connection,
    *,
    as_of: int | None = None,
    state: str | None = None,
    environment: str | None = None,
    family: str | None = None,
    origin: str | None = None,
    outcome: str | None = None,
    judge: str | None = None,
    begun: bool = False,
    narrow: Narrowing = ALL,
    before: int | None = None,
    limit: int = 50,
) -> list[EpisodeRow]:
    """Episodes, the latest request first. `before`: only those requested before this position, for the next page.

    `begun`: only those that an actor has started. `judge`: only those that this judge has judged, with its verdict instead of
    the training judge's.
    """
    position = position_of(connection, as_of)
    verdict = first_verdicts(position, judge or training_judge(connection, as_of=position))
    filters = {
        episodes.c.state: state,
        episodes.c.environment: environment,
        episodes.c.family: family,
        episodes.c.origin: origin,
        # coalesce covers episodes without a verdict and keeps the database from searching by outcome: the order decides
        func.coalesce(verdict.c.outcome, ""): outcome,
    }
    statement = episode_rows(position, verdict).where(
        *(c == value for c, value in filters.items() if value is not None),
        *narrow.conditions(connection, position),
    )
    if judge is not None:
        statement = statement.where(verdict.c.outcome.is_not(None))
    if begun:
        statement = statement.where(episodes.c.state != "requested")
    if before is not None:
        statement = statement.where(episodes.c.requested_position < before)
    ordered = statement.order_by(episodes.c.requested_position.desc().nulls_last(), episodes.c.episode).limit(
        limit
    )
    return answers(connection, ordered, EpisodeRow)


class Mention(msgspec.Struct, frozen=True, kw_only=True):
    """Where an episode has a text."""

    where: str
    """`instruction`, `answer`, `reason` or `page`."""
    step: int | None = None
    """Number of the step; None: of no step."""

    @property
    def words(self) -> str:
        """The place in words."""
        if self.step is not None:
            return f"{self.where} of step {self.step}"
        return "last page" if self.where == "page" else self.where


def mentioning(connection: Connection, text: str, *, as_of: int | None = None) -> dict[str, Mention]:
    """Episodes with a text in their instruction, in an answer of the policy, or in the reason of their end or of a step's
    failure, each with the first place. Case does not matter.
    """
    position = position_of(connection, as_of)
    columns_by_place = {
        "instruction": ("instruction",),
        "answer": ("answer",),
        "reason": ("reason", "detail"),
    }
    mentions: dict[str, Mention] = {}
    for place, names in columns_by_place.items():
        matches = [episodes.c[name].icontains(text, autoescape=True) for name in names]
        statement = select(episodes.c.episode).where(holding(episodes, position), or_(*matches))
        for episode in connection.scalars(statement):
            mentions.setdefault(episode, Mention(where=place))
        if place == "instruction":
            continue
        column = steps.c.answer if place == "answer" else steps.c.detail
        step_rows = (
            select(steps.c.episode, func.min(steps.c.step))
            .where(steps.c.position <= position, column.icontains(text, autoescape=True))
            .group_by(steps.c.episode)
        )
        for episode, step in connection.execute(step_rows):
            mentions.setdefault(episode, Mention(where=place, step=step))
    return dict(sorted(mentions.items()))


def count_requested(connection: Connection, *, as_of: int | None = None) -> int:
    """Number of episodes that are requested and that nobody has started."""
    statement = select(func.count()).where(
        holding(episodes, position_of(connection, as_of)), episodes.c.state == "requested"
    )
    return int(connection.scalar(statement) or 0)


def branch_outcomes(
    connection: Connection, episode: str, *, as_of: int | None = None
) -> dict[int, tuple[int, int]]:
    """Successes and decided continuations of an episode in this run, by the step that they begin at (`hindcast branch`)."""
    position = position_of(connection, as_of)
    verdict = first_verdicts(position, training_judge(connection, as_of=position))
    begins = f"{episode}_from_"
    outcomes: dict[int, tuple[int, int]] = {}
    statement = (
        select(episodes.c.group_id, verdict.c.outcome, func.count())
        .join(verdict, verdict.c.episode == episodes.c.episode)
        .where(
            holding(episodes, position),
            episodes.c.origin == "branch",
            episodes.c.group_id.startswith(begins, autoescape=True),
            verdict.c.outcome.in_(("success", "failure")),
        )
        .group_by(episodes.c.group_id, verdict.c.outcome)
    )
    for group, outcome, count in connection.execute(statement):
        step = int(str(group).removeprefix(begins))
        won, played = outcomes.get(step, (0, 0))
        outcomes[step] = won + count * (outcome == "success"), played + count
    return outcomes


def show_episode(connection: Connection, episode: str, *, as_of: int | None = None) -> EpisodeDetail:
    """One episode with its steps, its verdicts, and the batches that used it.

    Raises:
        NotInReadModel: no such episode at that position.
    """
    position = position_of(connection, as_of)
    verdict = first_verdicts(position, training_judge(connection, as_of=position))
    rows = answers(
        connection, episode_rows(position, verdict).where(episodes.c.episode == episode), EpisodeRow
    )
    if not rows:
        raise NotInReadModel(
            f"there is no episode {episode!r} as of position {position}. Run: hindcast episode list"
        )
    further_columns = select(
        *(episodes.c[name] for name in ("instruction", "renderer", "answer", "final_url", "detail"))
    )
    further_values = (
        connection.execute(further_columns.where(holding(episodes, position), episodes.c.episode == episode))
        .mappings()
        .one()
    )
    step_rows = (
        select(steps).where(holding(steps, position), steps.c.episode == episode).order_by(steps.c.position)
    )
    shown_pages = step_rows.with_only_columns(
        steps.c.position.label("seen_at"), steps.c.observation_blob
    ).subquery()
    released_count = select(func.count(shown_pages.c.seen_at.distinct())).join(
        notices,
        and_(
            holding(notices, position),
            notices.c.type == "blob.released",
            notices.c.about == shown_pages.c.observation_blob,
            notices.c.position > shown_pages.c.seen_at,
        ),
    )
    return EpisodeDetail(
        episode=rows[0],
        **further_values,
        steps=tuple(answers(connection, step_rows, StepRow)),
        pages_released=connection.scalars(released_count).one(),
        screenshots=screenshots_of(connection, episode, position),
        verdicts=tuple(answers(connection, verdicts_with_cost(position, episode), VerdictRow)),
        disputes=_disputes(connection, episode, position),
        batches=_trained_in(connection, episode, position),
    )


def step_advantages(connection: Connection, episode: str, *, as_of: int | None = None) -> dict[int, float]:
    """Advantage of each of an episode's steps in the newest policy update that trained on it, by the step's position in the log.

    Steps that no update trained on, or that were only rehearsed, are absent.
    """
    position = position_of(connection, as_of)
    trained = select(batch_episodes.c.batch).where(
        holding(batch_episodes, position), batch_episodes.c.episode == episode, batch_episodes.c.trained
    )
    used = (
        select(batch_samples.c.step_position, update_samples.c.advantage)
        .join(update_samples, _SAMPLES_OF_UPDATES)
        .where(
            batch_samples.c.batch.in_(trained),
            batch_samples.c.episode == episode,
            holding(update_samples, position),
            update_samples.c.model == "policy",
            update_samples.c.advantage.is_not(None),
        )
        .order_by(update_samples.c.position)
    )
    return {at: float(advantage) for at, advantage in connection.execute(used)}


def verdicts_with_cost(position: int, episode: str) -> Select[Any]:
    """An episode's verdicts in order, each with the cost of its question, as `VerdictRow` has it."""
    consultation = consultations.c
    return (
        select(
            verdicts,
            consultation.model.label("asked_model"),
            consultation.prompt_tokens,
            consultation.answer_tokens,
            consultation.cost_usd,
        )
        .outerjoin_from(verdicts, consultations, consultation.position == verdicts.c.position)
        .where(holding(verdicts, position), verdicts.c.episode == episode)
        .order_by(verdicts.c.position)
    )


def screenshots_of(connection: Connection, episode: str, position: int) -> tuple[ScreenshotRow, ...]:
    """Screenshots of an episode as of a position, in the order of its steps, with that of its end last."""
    released = (
        select(func.min(notices.c.position))
        .where(
            holding(notices, position),
            notices.c.type == "blob.released",
            notices.c.about == screenshots.c.sha256,
            notices.c.position > screenshots.c.position,
        )
        .scalar_subquery()
        .label("released")
    )
    rows = (
        select(screenshots, released)
        .where(holding(screenshots, position), screenshots.c.episode == episode)
        .order_by(screenshots.c.position)
    )
    return tuple(answers(connection, rows, ScreenshotRow))


def _disputes(connection: Connection, episode: str, position: int) -> tuple[DisputeRow, ...]:
    rows = (
        select(notices.c.position, notices.c.detail)
        .where(holding(notices, position), notices.c.type == DISPUTED, notices.c.about == episode)
        .order_by(notices.c.position)
    )
    facts = [(at, json.loads(detail)) for at, detail in connection.execute(rows)]
    return tuple(
        DisputeRow(
            position=at,
            judge=fact["judge"]["name"],
            judge_version=fact["judge"]["version"],
            outcome=fact["outcome"],
            author=fact["author"],
            reason=fact["reason"],
        )
        for at, fact in facts
    )


def _trained_in(connection: Connection, episode: str, position: int) -> tuple[TrainedIn, ...]:
    """Batches with samples of the episode, and the updates computed from them."""
    planned = select(batch_episodes).where(
        holding(batch_episodes, position), batch_episodes.c.episode == episode
    )
    update_rows = (
        select(batch_samples.c.batch, update_samples.c.update_number)
        .join(update_samples, _SAMPLES_OF_UPDATES)
        .where(
            batch_samples.c.batch.in_(planned.with_only_columns(batch_episodes.c.batch)),
            batch_samples.c.episode == episode,
            holding(update_samples, position),
            update_samples.c.model == "policy",
        )
        .distinct()
    )
    numbers: dict[int, set[int]] = defaultdict(set)
    for batch, number in connection.execute(update_rows):
        numbers[batch].add(number)
    times: dict[tuple[int, bool], list[RowMapping]] = defaultdict(list)
    ordered = planned.order_by(batch_episodes.c.position, batch_episodes.c.place)
    for row in connection.execute(ordered).mappings():
        times[row["position"], row["rehearsed"]].append(row)
    return tuple(
        TrainedIn(
            **row_fields(rows[0], TrainedIn),
            epochs=sum(row["epoch"] is not None for row in rows),
            updates=tuple(sorted(numbers[rows[0]["batch"]])),
        )
        for rows in times.values()
    )
