"""The site's pages: the repository's documents at their places on the site, and the references."""

import re
import shutil
import tomllib
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import msgspec

from hindcast.core.text.toml import as_toml
from tools.docs_site.references import (
    commands_page,
    events_page,
    readmodel_page,
    relink,
    settings_page,
)

ROOT = Path(__file__).resolve().parents[3]
CARD = "core/models/base/MODEL_CARD.md"
KEPT = "docs/pictures"
"""Pictures that are part of the repository, of runs that its words are about; they stand in the same place in the site."""
REFERENCE = {
    "reference/commands.md": commands_page,
    "reference/settings.md": settings_page,
    "reference/events.md": events_page,
    "reference/read-model.md": readmodel_page,
}
_PICTURE = re.compile(r"<!-- picture: (\w+) \| (.*?) -->")
_TITLE = re.compile(r"^# (.+)$", re.MULTILINE)


def write_pages(folder: Path, pictures: Mapping[str, Path]) -> dict[str, str]:
    """Write every page of the site below the folder. Returns their titles by place.

    pictures: by the name that `<!-- picture: NAME | words -->` asks for; a place without its picture stays empty.
    """
    titles = {}
    (folder / "pictures").mkdir(parents=True, exist_ok=True)
    for name, path in pictures.items():
        shutil.copy(path, folder / "pictures" / f"{name}.png")
    shutil.copytree(ROOT / KEPT, folder / KEPT, dirs_exist_ok=True)
    for source, place in sources().items():
        titles[place] = _write(folder, place, _moved(source, place, pictures))
    for place, page in REFERENCE.items():
        titles[place] = _write(folder, place, page())
    return titles


def sources() -> dict[Path, str]:
    """Pages of the repository -> where the site has them."""
    docs = ROOT / "docs"
    return {
        ROOT / "README.md": "index.md",
        **{path: path.relative_to(docs).as_posix() for path in sorted(docs.rglob("*.md"))},
        ROOT / CARD: "model-card.md",
        ROOT / "CONTRIBUTING.md": "contributing.md",
        ROOT / "CHANGELOG.md": "changelog.md",
    }


def _moved(source: Path, place: str, pictures: Collection[str]) -> str:
    """A page's text with links and pictures as its new place needs them."""
    depth = "../" * place.count("/")
    kept = {path: path.relative_to(ROOT).as_posix() for path in (ROOT / KEPT).iterdir()}
    places: dict[str, str] = {}
    for other, where in (sources() | kept).items():
        for written in {_relative(other, source), other.relative_to(ROOT).as_posix()}:
            places[written] = depth + where
    text = relink(source.read_text(encoding="utf-8"), places)

    def picture(found: re.Match[str]) -> str:
        name, words = found.groups()
        return f"![{words}]({depth}pictures/{name}.png)" if name in pictures else ""

    return _PICTURE.sub(picture, text)


def _relative(other: Path, source: Path) -> str:
    """`other` as a page at `source` links to it."""
    up = 0
    folder = source.parent
    while not other.is_relative_to(folder):
        folder, up = folder.parent, up + 1
    return "../" * up + other.relative_to(folder).as_posix()


def _write(folder: Path, place: str, text: str) -> str:
    path = folder / place
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    title = _TITLE.search(text)
    return title.group(1) if title else Path(place).stem


def navigation(titles: Mapping[str, str]) -> list[dict[str, Any]]:
    """The site's navigation, for the builder; every page is somewhere in it."""
    wanted = tomllib.loads((Path(__file__).parent / "nav.toml").read_text())["sections"]
    left = dict(titles)

    def entry(place: str) -> dict[str, Any]:
        return {left.pop(place): place}

    found: list[dict[str, Any]] = [entry("index.md"), entry("tour.md")]
    for section, names in wanted.items():
        found.append({section: [entry(f"{name}.md") for name in names if f"{name}.md" in left]})
    reference = {"Reference": [entry(place) for place in (*REFERENCE, "model-card.md")]}
    planners = {"Planners": [entry(place) for place in sorted(left) if place.startswith("planners/")]}
    more = {"More": [entry(place) for place in sorted(left)]}
    return [one for one in (*found, planners, more, reference) if all(one.values())]


def configuration(titles: Mapping[str, str]) -> str:
    """The builder's settings, navigation included."""
    settings = (Path(__file__).parent / "zensical.toml").read_text()
    lines = ["nav = [", *(f"    {_inline(one)}," for one in navigation(titles)), "]"]
    return settings.replace("[project]\n", "[project]\n" + "\n".join(lines) + "\n", 1)


def _inline(value: dict[str, Any]) -> str:
    ((name, what),) = value.items()
    inner = as_toml(what) if isinstance(what, str) else f"[{', '.join(map(_inline, what))}]"
    return f"{{ {msgspec.json.encode(name).decode()} = {inner} }}"
