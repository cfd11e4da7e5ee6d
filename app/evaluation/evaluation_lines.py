"""Evaluations of a run in words, for the terminal. Pure."""

import msgspec

from hindcast.core.rl.statistics import Interval, wilson
from hindcast.events.catalogue import EvaluationFinished, EvaluationStarted


class TemperatureSuccess(msgspec.Struct, frozen=True, kw_only=True):
    """Success of one evaluation at one temperature, over all its families."""

    version: int
    """Policy version that was evaluated."""
    temperature: float
    """0 is greedy."""
    successes: int
    judged: int
    """Successes and failures."""
    lost: int
    """Tasks without a success or failure."""
    success: Interval
    """95 % Wilson interval."""
    change: float | None
    """Difference of the rate from that of the run's first evaluation; None: this is the first, or it is not known."""
    since: int | None
    """Version of the first evaluation."""


def by_temperature(
    fact: EvaluationFinished, *, first: EvaluationFinished | None
) -> tuple[TemperatureSuccess, ...]:
    """Success at each temperature, in the order of the evaluation's. `first`: the run's first evaluation, if it is known."""
    before = {} if first is None or first.number == fact.number else _rates(first)
    found = []
    for temperature in dict.fromkeys(result.temperature for result in fact.results):
        successes, judged, lost = _counts(fact, temperature)
        band, then = wilson(successes, judged), before.get(temperature)
        found.append(
            TemperatureSuccess(
                version=fact.version,
                temperature=temperature,
                successes=successes,
                judged=judged,
                lost=lost,
                success=band,
                change=None if then is None or not judged else band.rate - then,
                since=None if then is None or first is None else first.version,
            )
        )
    return tuple(found)


def _counts(fact: EvaluationFinished, temperature: float) -> tuple[int, int, int]:
    """Successes, judged and lost ones."""
    results = [result for result in fact.results if result.temperature == temperature]
    successes = sum(result.successes for result in results)
    judged = successes + sum(result.failures for result in results)
    return successes, judged, sum(result.lost for result in results)


def _rates(fact: EvaluationFinished) -> dict[float, float]:
    counted = {result.temperature: _counts(fact, result.temperature) for result in fact.results}
    return {
        temperature: successes / judged for temperature, (successes, judged, _) in counted.items() if judged
    }


def temperature_in_words(temperature: float) -> str:
    """`greedy`, or `temperature 1`."""
    return f"temperature {temperature:g}" if temperature else "greedy"


def success_in_words(one: TemperatureSuccess) -> str:
    """A rate with its interval, n and change."""
    lost = f", {one.lost} lost" if one.lost else ""
    if not one.judged:
        return f"no verdict{lost}"
    band = one.success
    change = "" if one.change is None else f", {100 * one.change:+.0f} since policy {one.since}"
    return f"{band.rate:.0%} [{band.low:.0%}, {band.high:.0%}] n={one.judged}{lost}{change}"


def started_line(fact: EvaluationStarted) -> str:
    """What begins to be played."""
    ways = " and ".join(temperature_in_words(temperature) for temperature in fact.temperatures)
    skipped = f" · skipped while the one before went on: {', '.join(map(str, fact.skipped))}"
    line = f"evaluation of policy {fact.version} begins: {len(fact.tasks)} held-out tasks, {ways}"
    return line + (skipped if fact.skipped else "")


def finished_line(fact: EvaluationFinished, *, first: EvaluationFinished | None) -> str:
    """Success at each temperature, and its change since `first`, the run's first evaluation."""
    parts = [f"evaluation of policy {fact.version}"]
    parts += [
        f"{temperature_in_words(one.temperature)} {success_in_words(one)}"
        for one in by_temperature(fact, first=first)
    ]
    if fact.version_high is not None and fact.version_high > fact.version:
        one = fact.version_low == fact.version_high
        sampled = (
            f"policy {fact.version_low}" if one else f"policies {fact.version_low} to {fact.version_high}"
        )
        parts.append(f"sampled by {sampled}")
    parts.append(f"{fact.seconds:.0f} s, {fact.share:.0%} of all episodes so far")
    return " · ".join(parts) + (f" · ended early: {fact.reason}" if fact.reason else "")
