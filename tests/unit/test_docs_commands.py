"""What the documentation tells people to type: every command is there and takes what it is given, every name exists."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer

import hindcast.events.catalogue  # noqa: F401  # fills the registry
from hindcast.app.cli import app
from hindcast.app.settings.configuration import fields, read_override
from hindcast.core.settings.changes import TABLE
from hindcast.core.settings.schema import Settings
from hindcast.events.registry import BY_NAME

ROOT = Path(__file__).parents[2]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
FENCE = re.compile(r"^```(\w*)\n(.*?)^```", re.DOTALL | re.MULTILINE)
TYPED = re.compile(r"^(?:\$ )?(?:\S+=\S+ )*(?:\.venv/bin/)?hindcast (.*)$")
NAMED = re.compile(rf"`({'|'.join(Settings.model_fields)})\.(\w+)(?:=[^`]*)?`")


def typed(page: Path) -> Iterator[str]:
    """The arguments of each `hindcast` line of a page's shell blocks."""
    for language, block in FENCE.findall(page.read_text()):
        if language in ("sh", "bash"):
            for line in block.replace("\\\n", " ").splitlines():
                found = TYPED.match(line.strip())
                if found is not None:
                    yield found.group(1).replace("…", "")


def given_by(words: list[str]) -> dict[str, object]:
    """What a command line comes to, as its command is given it; leaves with 2 where it cannot be typed."""
    name, command = "hindcast", typer.main.get_command(app)
    context = None
    while words and words[0] in getattr(command, "commands", ()):
        context = command.make_context(name, list(words), parent=context)
        name, *words = words
        command = command.commands[name]
    return dict(command.make_context(name, words, parent=context).params)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_what_a_page_says_can_be_typed_and_set(page: Path) -> None:
    for line in typed(page):
        given = given_by(shlex.split(line, comments=True))
        for setting in given.get("overrides") or ():  # type: ignore[attr-defined]
            assert not read_override(setting).mistakes, f"hindcast {line}: there is no setting {setting}"
    for section, name in NAMED.findall(page.read_text()):
        named = f"{section}.{name}"
        known = named in fields() or named == TABLE or named in BY_NAME
        assert known, f"{page.name} speaks of {named}, which is neither a setting nor an event"


TEST = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")


@pytest.mark.parametrize(
    "page", [page for page in PAGES if TEST.search(page.read_text())], ids=lambda page: page.name
)
def test_a_test_that_a_page_names_is_there(page: Path) -> None:
    for file, name in TEST.findall(page.read_text()):
        assert re.search(rf"def {name}\(", (ROOT / file).read_text()), f"{page.name} names {file}::{name}"


def test_a_command_that_is_not_there_is_found() -> None:
    with pytest.raises(Exception, match="No such option: --nonesuch"):
        given_by(["verify", "--nonesuch"])
