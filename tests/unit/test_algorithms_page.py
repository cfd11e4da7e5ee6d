"""docs/plugins.md on algorithms: it says of every inherited option who honors it."""

import re
from pathlib import Path

from hindcast.core.rl.algorithm_options import GroupOptions

PAGE = (Path(__file__).parents[2] / "docs" / "plugins.md").read_text()
SECTION = PAGE[PAGE.index("## Add an algorithm") : PAGE.index("## Add an environment")]


def test_the_page_says_who_honors_each_inherited_option() -> None:
    rows = [line.split("|")[1] for line in SECTION.splitlines() if line.startswith("| ")]
    explained = {name for row in rows for name in re.findall(r"`(\w+)", row)}
    assert set(GroupOptions.__struct_fields__) <= explained
    assert all(f"`{name}`" in str(GroupOptions.__doc__) for name in GroupOptions.__struct_fields__)
