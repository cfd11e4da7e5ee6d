"""The documentation site: its references have everything that the code has, and no link leads nowhere."""

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from hindcast.app.settings.configuration import fields
from hindcast.core.errors import HindcastError
from hindcast.events.registry import BY_NAME
from hindcast.storage.readmodel.database import VIEWS
from hindcast.storage.readmodel.tables import metadata
from tools.docs_site.references import (
    attributes_of,
    code,
    commands,
    commands_page,
    events_page,
    readmodel_page,
    relink,
    settings_page,
    table,
)
from tools.docs_site.site import ROOT, configuration, sources, write_pages

LINK = re.compile(r"\]\(([^)\s#]+)(?:#[^)]*)?\)")


def test_the_reference_has_every_setting_with_its_meaning() -> None:
    lines = settings_page().splitlines()
    for key, field in fields().items():
        (line,) = [one for one in lines if one.startswith(f"| `{key}` |")]
        assert " ".join((field.description or "").split())[:40] in line


def test_the_reference_has_every_event_and_every_field() -> None:
    page = events_page()
    for name, entry in BY_NAME.items():
        section = page.split(f"### {name}\n")[1].split("\n### ")[0]
        assert f"Version {entry.version}, family `{entry.family}`" in section
        for field in entry.cls.__struct_fields__:
            assert f"| `{field}` |" in section


def test_the_reference_has_every_command_and_every_option() -> None:
    page = commands_page()
    named = dict(commands())
    assert {"hindcast start", "hindcast run show", "hindcast archive write", "hindcast archive check"} <= {
        *named
    }
    for words, command in named.items():
        if words != "hindcast":
            section = page.split(f"## {words}\n")[1].split("\n## ")[0]
            assert all(
                f"`{option}`" in section
                for one in command.params
                if not getattr(one, "hidden", False)
                for option in one.opts
                if option[:2] == "--" and option != "--help"
            )


def test_the_reference_has_every_table_every_column_with_its_description_and_every_view() -> None:
    page = readmodel_page()
    for table_of in metadata.sorted_tables:
        section = page.split(f"## {table_of.name}\n")[1].split("\n## ")[0]
        assert table_of.comment
        assert table_of.comment in section
        for column in table_of.c:
            (line,) = [one for one in section.splitlines() if one.startswith(f"| `{column.name}` |")]
            assert column.comment
            assert column.comment.replace("|", "\\|") in line
    assert all(f"### {view}\n" in page for view in VIEWS)


class Described:
    """A class with attributes."""

    size: int
    """How large; in
    metres."""
    names: tuple[str, ...] = ("a|b",)
    bare: bool = False


def test_attributes_come_with_what_stands_under_them() -> None:
    found = attributes_of(Described)
    assert found["size"] == ("int", "", "How large; in\nmetres.")
    assert found["names"] == ("tuple[str, ...]", "('a|b',)", "")
    assert found["bare"] == ("bool", "False", "")


def test_a_cell_is_one_line_and_splits_no_column() -> None:
    made = table(("a", "b"), [("x | y", code("p | q") + "\nand")])
    assert made.splitlines()[2] == "| x \\| y | `p | q` and |"


def test_links_follow_a_page_to_its_place_and_files_become_words() -> None:
    text = "[a](docs/a.md#x) [code](core/a.py) [out](https://example.org/a.md) [here](#below)"
    assert relink(text, {"docs/a.md": "a.md"}) == (
        "[a](a.md#x) code [out](https://example.org/a.md) [here](#below)"
    )


def test_a_picture_follows_a_page_to_its_place_or_is_left_out() -> None:
    text = "before ![A page](pictures/a.png) after"
    assert relink(text, {"pictures/a.png": "docs/pictures/a.png"}) == (
        "before ![A page](docs/pictures/a.png) after"
    )
    assert relink(text, {}) == "before  after"


def test_every_page_is_on_the_site_in_its_navigation_and_every_link_leads_to_one(tmp_path: Path) -> None:
    picture = tmp_path / "overview.png"
    picture.write_bytes(b"png")
    titles = write_pages(tmp_path / "pages", {"overview": picture})
    assert {path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")} <= {*titles}
    for place in titles:
        page = tmp_path / "pages" / place
        for target in LINK.findall(page.read_text()):
            assert "://" in target or (page.parent / target).exists(), f"{place} links to {target}"
    assert "pictures/overview.png" in (tmp_path / "pages" / "tour.md").read_text()
    # the README's picture is of the run that its words are about, the tour's of one made on the spot
    assert "](docs/pictures/overview.png)" in (tmp_path / "pages" / "index.md").read_text()
    assert (tmp_path / "pages" / "docs" / "pictures" / "overview.png").read_bytes() != picture.read_bytes()
    nav = str(tomllib.loads(configuration(titles))["project"]["nav"])
    assert all(f"'{place}'" in nav for place in titles)


@pytest.mark.parametrize("page", sources(), ids=lambda page: page.name)
def test_links_between_files_of_the_repository_lead_somewhere(page: Path) -> None:
    for target in LINK.findall(page.read_text()):
        assert "://" in target or (page.parent / target).exists(), f"{page.name} links to {target}"


def test_the_reference_has_every_exit_code() -> None:
    def all_of(error: type[HindcastError]) -> Iterator[type[HindcastError]]:
        yield error
        for inner in error.__subclasses__():
            yield from all_of(inner)

    (line,) = [one for one in commands_page().splitlines() if "Exit codes: " in one]
    named = {int(code) for code in re.findall(r"\b(\d) [a-z]", line)}
    assert named == {0, *(error.exit_code for error in all_of(HindcastError))}
