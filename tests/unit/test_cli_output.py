"""What commands print: what a page, a model or a visitor of the page wrote can do nothing to a terminal."""

import pytest

from hindcast.app.cli import leave
from hindcast.app.cli.output import print_fields, print_table, print_text, say
from hindcast.core.errors import SettingsError

WRITTEN = "bought\x1b[2J\x9b31m\u202egone"


def test_nothing_that_is_printed_moves_a_cursor_or_turns_the_reading_direction(
    capsys: pytest.CaptureFixture[str],
) -> None:
    print_text(f"{WRITTEN}\nnext\tline")
    print_fields([("answer", WRITTEN)])
    print_table(("reason", "steps"), [(WRITTEN, 1), ("plain", 2)], empty="")
    say(WRITTEN)
    with pytest.raises(SystemExit):
        leave(SettingsError(WRITTEN))
    told = capsys.readouterr()
    for text in (told.out, told.err):
        assert not set(text) & {"\x1b", "\x9b", "\u202e"}
    assert told.out.count("bought␛[2J") == 3
    assert told.err.count("bought␛[2J") == 2
    assert "next\tline" in told.out
    lines = told.out.splitlines()[-2:]
    assert len(lines[0]) == len(lines[1]), "columns stay as wide as what is shown in them"
