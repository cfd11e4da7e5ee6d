"""Numbers with their nouns, and templates that put a number before a noun."""

import re
from collections.abc import Iterator

import pytest

from hindcast.app.page.rendering import FOLDER, environment
from hindcast.core.text.counts import count_of

NOUNS = "answer token|batch|episode|event|page|part|point|position|prompt token|run|row|step|task|time|token|update"
BARE = re.compile(rf"\}}\}}(</\w+>)? (different )?({NOUNS})(e?s)\b")
"""A value and then a plural, whatever the value is."""
RIGHT_AS_THEY_ARE = (
    "of {{ watched }} online episodes",
    "{{ c.origin }} episodes",
    "hindcast start {{ page.run }}</code> runs",
    "{{ '%+.2f'|format(100 * one.pull) }} points",
    "{{ points(one.step.pull) }} points",
)
"""Always several, no number, or a number with decimals."""


@pytest.mark.parametrize(
    ("number", "noun", "text"),
    [
        (1, "step", "1 step"),
        (0, "step", "0 steps"),
        (2, "batch", "2 batches"),
        ("-", "step", "- steps"),
        ("+1", "point", "+1 point"),
        ("-1", "point", "-1 point"),
        ("1.5", "update", "1.5 updates"),
        (3, "policy", "3 policies"),
        (3, "day", "3 days"),
    ],
)
def test_a_noun_after_one_is_singular(number: int | str, noun: str, text: str) -> None:
    assert count_of(number, noun) == text


def test_a_change_by_one_point_is_singular() -> None:
    shown = environment().from_string("{{ 0.012|points }}, {{ -0.01|points }}, {{ 0.2|points }}").render()
    assert shown == "+1 point, -1 point, +20 points"


def _bare_plurals() -> Iterator[str]:
    for template in sorted((FOLDER / "templates").glob("*.html")):
        for found in BARE.finditer(text := template.read_text()):
            around = text[max(0, found.start() - 40) : found.end()]
            if not any(known in around for known in RIGHT_AS_THEY_ARE):
                yield f"{template.name}: {around}"


def test_templates_leave_the_plural_of_a_count_to_one_filter() -> None:
    assert list(_bare_plurals()) == []
