"""Selects episodes and their verdicts, without a limit: for exports."""

from collections.abc import Iterator

import msgspec
from sqlalchemy import Connection

from hindcast.storage.readmodel.endpoint_costs import verdicts_with_cost
from hindcast.storage.readmodel.queries import training_judge
from hindcast.storage.readmodel.query_parts import answers, episode_rows, first_verdicts, only, position_of
from hindcast.storage.readmodel.results import EpisodeRow, VerdictRow
from hindcast.storage.readmodel.tables import episodes

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
    said = first_verdicts(position, training_judge(connection, as_of=position))
    asked = {
        episodes.c.state: wanted.state,
        said.c.outcome: wanted.outcome,
        episodes.c.environment: wanted.environment,
        episodes.c.family: wanted.family,
        episodes.c.origin: wanted.origin,
        episodes.c.task: wanted.task,
        episodes.c.version_low: wanted.policy,
    }
    statement = (
        episode_rows(position, said)
        .where(*(column == value for column, value in asked.items() if value is not None))
        .order_by(episodes.c.requested_position, episodes.c.episode)
        .execution_options(yield_per=ROWS_AT_ONCE)
    )
    for row in connection.execute(statement).mappings():
        yield EpisodeRow(**only(row, EpisodeRow))


def verdicts_of(connection: Connection, episode: str, *, as_of: int | None = None) -> list[VerdictRow]:
    """Every judge's verdicts on an episode, in order."""
    position = position_of(connection, as_of)
    return answers(connection, verdicts_with_cost(position, episode), VerdictRow)
