"""Evaluations of a run in words, for the terminal. Pure."""

import msgspec

from hindcast.core.rl.statistics import Interval, wilson
from hindcast.events.catalogue import EvaluationFinished, EvaluationStarted


class TemperatureSuccess(msgspec.Struct, frozen=True, kw_only=True):
    """Success of one evaluation at one temperature, over all its families."""

    temperature: float
    successes: int
    judged: int
    """Successes and failures."""
    lost: int

    @property
    def interval(self) -> Interval:
        """The success rate with its 95 % Wilson interval."""
        return wilson(self.successes, self.judged)


def by_temperature(fact: EvaluationFinished) -> tuple[TemperatureSuccess, ...]:
    """Success at each temperature, in the order of the evaluation's temperatures."""
    found = []
    for temperature in dict.fromkeys(result.temperature for result in fact.results):
        results = [result for result in fact.results if result.temperature == temperature]
        successes = sum(result.successes for result in results)
        found.append(
            TemperatureSuccess(
                temperature=temperature,
                successes=successes,
                judged=successes + sum(result.failures for result in results),
                lost=sum(result.lost for result in results),
            )
        )
    return tuple(found)


def temperature_in_words(temperature: float) -> str:
    """`greedy`, or `temperature 1`."""
    return f"temperature {temperature:g}" if temperature else "greedy"


def started_line(fact: EvaluationStarted) -> str:
    """What begins to be played."""
    ways = " and ".join(temperature_in_words(temperature) for temperature in fact.temperatures)
    skipped = (
        f" · skipped while the one before went on: {', '.join(map(str, fact.skipped))}"
        if fact.skipped
        else ""
    )
    return f"evaluation of policy {fact.version} begins: {len(fact.tasks)} held-out tasks, {ways}{skipped}"


def finished_line(fact: EvaluationFinished, *, first: EvaluationFinished | None) -> str:
    """Success at each temperature, and its change since the run's first evaluation.

    `first` None: it is not known, or is this one.
    """
    before = {} if first is None or first.number == fact.number else _rates(first)
    parts = [f"evaluation of policy {fact.version}"]
    for success in by_temperature(fact):
        band = success.interval
        part = f"{temperature_in_words(success.temperature)} "
        if not success.judged:
            parts.append(f"{part}no verdict")
            continue
        part += f"{band.rate:.0%} [{band.low:.0%}, {band.high:.0%}] n={success.judged}"
        if first is not None and success.temperature in before:
            part += f", {100 * (band.rate - before[success.temperature]):+.0f} since policy {first.version}"
        parts.append(part + (f", {success.lost} lost" if success.lost else ""))
    if fact.version_high is not None and fact.version_high > fact.version:
        parts.append(f"sampled by policies {fact.version_low} to {fact.version_high}")
    parts.append(f"{fact.seconds:.0f} s, {fact.share:.0%} of all episodes so far")
    return " · ".join(parts) + (f" · ended early: {fact.reason}" if fact.reason else "")


def _rates(fact: EvaluationFinished) -> dict[float, float]:
    return {one.temperature: one.interval.rate for one in by_temperature(fact) if one.judged}
