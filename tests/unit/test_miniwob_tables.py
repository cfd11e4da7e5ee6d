"""The table of MiniWoB++ families: whole, true to the package, and as the documentation has it."""

from pathlib import Path

import miniwob
import pytest

from hindcast.actors.environments.miniwob.families import FAMILIES, UNPLAYABLE, USUAL
from hindcast.actors.environments.miniwob.tasks import MiniwobTasks
from hindcast.actors.environments.plugin import DEMONSTRATORS
from hindcast.core.errors import SettingsError
from tools.base_policy.mix import CLONED
from tools.miniwob_tables import with_tables

DOCS = Path(__file__).parents[2] / "docs" / "miniwob.md"


def test_every_page_of_the_package_is_a_family_or_says_why_not() -> None:
    pages = {path.stem for path in (Path(miniwob.__file__).parent / "html" / "miniwob").glob("*.html")}
    assert set(FAMILIES) | set(UNPLAYABLE) == pages
    assert not set(FAMILIES) & set(UNPLAYABLE)


def test_demonstrators_are_for_families_and_the_usual_ones_have_theirs() -> None:
    solved = {family for environment, family in DEMONSTRATORS if environment == "miniwob"}
    assert set(USUAL) <= solved <= set(FAMILIES)
    assert len(solved) >= 40


def test_what_the_base_policy_is_made_with_has_not_changed() -> None:
    """Further families are there to be trained and evaluated, not to change what the base policy knows."""
    assert MiniwobTasks().usual() == USUAL
    assert len(USUAL) == 25
    assert {name.removeprefix("miniwob/") for name in CLONED if name.startswith("miniwob/")} <= set(USUAL)


@pytest.mark.parametrize(
    ("family", "words"),
    [
        ("drag-box", "cannot be played here: a box is to be dragged into another"),
        ("click-boton", "no page 'click-boton'; near it are .*click-button"),
    ],
)
def test_a_family_that_is_not_there_says_why(family: str, words: str) -> None:
    with pytest.raises(SettingsError, match=words):
        MiniwobTasks().task(family, 0)


def test_the_documentation_has_the_tables_of_the_code() -> None:
    page = DOCS.read_text(encoding="utf-8")
    assert page == with_tables(page), "run: PYTHONPATH=tests python -m tools.miniwob_tables docs/miniwob.md"
