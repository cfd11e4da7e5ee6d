"""Template environment, and formatting of values. Everything is escaped except charts made here."""

from math import exp
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode

import msgspec
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from hindcast.app.cli.output import moment, rate, show
from hindcast.app.evaluation.evaluation_lines import temperature_in_words
from hindcast.app.page.charts import (
    MOST_COLORS,
    curve_chart,
    evaluation_chart,
    metric_chart,
    sparkline,
    success_chart,
)
from hindcast.app.page.lineage_graph import lineage_graph
from hindcast.app.page.views.axes import AXES
from hindcast.app.page.views.tables import COLUMNS, MOST_TASKS
from hindcast.app.page.views.timeline import duration, lane_names, lanes
from hindcast.core.ids import digest_hex
from hindcast.core.text.counts import count_of, noun_of
from hindcast.storage.readmodel.evaluation_queries import EvaluationRate
from hindcast.storage.readmodel.outcome_counts import WATCHED, Stretch

FOLDER = Path(__file__).parent


class StaticFile(NamedTuple):
    """A style sheet or script, held in memory because every page asks for several at once."""

    content: bytes
    version: str
    """From its content. Its address has it, so that a browser may keep the file."""


STATIC = {
    file.relative_to(FOLDER / "static").as_posix(): StaticFile(content, digest_hex(content)[:12])
    for file in sorted((FOLDER / "static").rglob("*.*"))
    for content in (file.read_bytes(),)
}
"""The static files by their path."""
DIGEST = 40
"""Characters from which a value is too long for a line."""
MOST_SHOWN = 10_000
"""Most characters of an event that a page shows."""
MOST_FACTS = 6
"""Most facts in a line."""


def environment() -> Environment:
    """The template environment with our filters and functions."""
    made = Environment(
        loader=FileSystemLoader(FOLDER / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    made.filters.update(show=show, rate=rate, moment=moment)
    made.filters.update(
        gain=_gain,
        seconds=_seconds,
        duration=duration,
        percent=_percent,
        brief=_brief,
        fields=_fields,
        versions=_versions,
        span=_span,
        count_of=count_of,
        noun_of=noun_of,
        points=_points,
        evaluated=_evaluated,
        sampling=temperature_in_words,
    )
    made.globals.update(
        success_chart=success_chart,
        metric_chart=metric_chart,
        evaluation_chart=evaluation_chart,
        curve_chart=curve_chart,
        axes=AXES,
        columns=tuple(COLUMNS),
        most_tasks=MOST_TASKS,
        colors=MOST_COLORS,
        sparkline=sparkline,
        lanes=lanes,
        lane_names=lane_names,
        lineage_graph=lineage_graph,
        address=address,
        static=lambda name: f"/_static/{name}?v={STATIC[name].version}",
        shade=shade,
        exp=exp,
        watched=WATCHED,
    )
    return made


def address(path: str, /, **query: Any) -> str:
    """An address of this server: path segments and query escaped, what is None left out."""
    chosen = {name: value for name, value in query.items() if value is not None and value != ""}
    return quote(path) + (f"?{urlencode(chosen)}" if chosen else "")


def shade(logprob: float) -> int:
    """Color level of a token, from 0 (certain) to 5 (less than one in a hundred)."""
    return sum(logprob < limit for limit in (-0.05, -0.35, -0.7, -1.6, -4.6))


def _gain(advantage: float | None) -> str:
    """Style class of tokens with this advantage: `up-1` to `up-3`, `down-1` to `down-3`, or none for 0 and where it is unknown."""
    if not advantage:
        return ""
    return f"{'up' if advantage > 0 else 'down'}-{1 + sum(abs(advantage) > limit for limit in (0.5, 1.0))}"


def _brief(facts: dict[str, Any]) -> str:
    """Facts that fit on a line, without digests and tables."""
    short = {
        name: value
        for name, value in facts.items()
        if not isinstance(value, dict | list | tuple)
        and not (isinstance(value, str) and len(value) >= DIGEST)
    }
    return show(dict(list(short.items())[:MOST_FACTS]))


def _fields(event: dict[str, Any]) -> str:
    """An event as indented JSON, cut where it is too long for a page."""
    text = msgspec.json.format(msgspec.json.encode(event), indent=2).decode()
    if len(text) <= MOST_SHOWN:
        return text
    return f"{text[:MOST_SHOWN]}\n… {len(text) - MOST_SHOWN} further characters: hindcast log show {event['position']}"


def _seconds(milliseconds: float | None) -> str:
    return "-" if milliseconds is None else f"{milliseconds / 1000:.1f} s"


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{share:.0%}"


def _evaluated(rate: EvaluationRate) -> str:
    """A rate with its interval and counts."""
    band = rate.success
    lost = f", {rate.lost} lost" if rate.lost else ""
    if not rate.judged:
        return f"no verdict{lost}"
    return f"{band.rate:.0%} [{band.low:.0%}, {band.high:.0%}] n={rate.judged}{lost}"


def _versions(stretch: Stretch) -> str:
    first, last = stretch.first_version, stretch.last_version
    return str(first) if first == last else f"{first} to {last}"


def _span(stretch: Stretch) -> str:
    """Versions as an address has them: `3`, or `3-7`."""
    first, last = stretch.first_version, stretch.last_version
    return str(first) if first == last else f"{first}-{last}"


def _points(change: float) -> str:
    """A change of a rate in percentage points: `+3 points`."""
    return count_of(f"{100 * change:+.0f}", "point")
