"""Queries about the evaluations of a run: success on held-out tasks by policy version, temperature and family."""

import json
from collections import defaultdict
from collections.abc import Iterator, Sequence

import msgspec
from sqlalchemy import Connection, RowMapping, select

from hindcast.core.rl.statistics import Interval, wilson
from hindcast.storage.readmodel.query_parts import holding, position_of, row_fields
from hindcast.storage.readmodel.tables import evaluation_results, evaluations


class EvaluationRate(msgspec.Struct, frozen=True, kw_only=True):
    """Success at one temperature, with its 95 % Wilson interval."""

    temperature: float
    """0 is greedy."""
    family: str | None
    """Environment and family; None: all families of the evaluation."""
    successes: int
    judged: int
    """Successes and failures: n of the rate."""
    lost: int
    """Tasks without a success or failure."""
    mean_reward: float | None
    """Of the judged ones; None without any."""
    success: Interval


class EvaluationRow(msgspec.Struct, frozen=True, kw_only=True):
    """One evaluation."""

    number: int
    state: str
    """`running` or `finished`."""
    version: int
    """Policy version that is evaluated."""
    version_low: int | None
    """Lowest policy version that sampled a token of its episodes."""
    version_high: int | None
    tasks: int
    temperatures: tuple[float, ...]
    skipped: tuple[int, ...]
    """Versions that were due before it and are not evaluated."""
    seconds: float | None
    share: float | None
    """Share of evaluations in all episodes requested so far."""
    reason: str | None
    """Why it ended before every task had an outcome."""
    rates: tuple[EvaluationRate, ...]
    """By temperature; empty while it runs."""


class FamilyChange(msgspec.Struct, frozen=True, kw_only=True):
    """A family's success at one temperature, in its first and in the newest finished evaluation."""

    family: str
    temperature: float
    first_version: int
    first: EvaluationRate
    newest_version: int
    newest: EvaluationRate


def list_evaluations(
    connection: Connection, *, as_of: int | None = None, family: str | None = None
) -> list[EvaluationRow]:
    """The evaluations of the run, in order. `family`: as `store/find_price`, to which `rates` are limited; None: all."""
    position = position_of(connection, as_of)
    evaluation_rows = connection.execute(
        select(evaluations).where(holding(evaluations, position)).order_by(evaluations.c.number)
    )
    results: dict[tuple[int, float], list[RowMapping]] = defaultdict(list)
    for result in _results(connection, position):
        if family in (None, _family_of(result)):
            results[result["number"], result["temperature"]].append(result)
    rows = []
    for row in evaluation_rows.mappings():
        temperatures = tuple(json.loads(row["temperatures"]))
        rows.append(
            EvaluationRow(
                **row_fields(row, EvaluationRow, without=("temperatures", "skipped")),
                temperatures=temperatures,
                skipped=tuple(json.loads(row["skipped"])),
                rates=tuple(
                    _rate(result_rows, temperature=temperature, family=family)
                    for temperature in temperatures
                    if (result_rows := results.get((row["number"], temperature)))
                ),
            )
        )
    return rows


def changes_by_family(connection: Connection, *, as_of: int | None = None) -> list[FamilyChange]:
    """Each family of the newest finished evaluation at each temperature, by name, with its first evaluation."""
    newest: dict[tuple[str, float], RowMapping] = {}
    first: dict[tuple[str, float], RowMapping] = {}
    last = -1
    for result in _results(connection, position_of(connection, as_of)):
        if result["number"] != last:
            last = result["number"]
            newest.clear()
        key = _family_of(result), result["temperature"]
        first.setdefault(key, result)
        newest[key] = result
    return [
        FamilyChange(
            family=family,
            temperature=temperature,
            first_version=first[family, temperature]["version"],
            first=_rate([first[family, temperature]], temperature=temperature, family=family),
            newest_version=row["version"],
            newest=_rate([row], temperature=temperature, family=family),
        )
        for (family, temperature), row in sorted(newest.items())
    ]


def _results(connection: Connection, position: int) -> Iterator[RowMapping]:
    """Results of finished evaluations, in order."""
    columns = evaluation_results.c
    statement = select(evaluation_results).where(holding(evaluation_results, position))
    yield from connection.execute(statement.order_by(columns.position, columns.place)).mappings()


def _family_of(row: RowMapping) -> str:
    return f"{row['environment']}/{row['family']}"


def _rate(rows: Sequence[RowMapping], *, temperature: float, family: str | None) -> EvaluationRate:
    successes, failures, lost = (sum(row[name] for row in rows) for name in ("successes", "failures", "lost"))
    judged = successes + failures
    return EvaluationRate(
        temperature=temperature,
        family=family,
        successes=successes,
        judged=judged,
        lost=lost,
        mean_reward=sum(row["reward"] for row in rows) / judged if judged else None,
        success=wilson(successes, judged),
    )
