"""What commands print: a report as text or as JSON, and nothing in it that could steer a terminal."""

import json
from collections.abc import Iterator

import pytest
import typer
from typer.testing import CliRunner

from hindcast.app.cli import exit_with_error
from hindcast.app.cli.options import RunName, with_common_options
from hindcast.app.cli.output import Block, Fields, Output, Report, Table, say
from hindcast.core.errors import SettingsError

WRITTEN = "bought\x1b[2J\x9b31m\u202egone"


def test_nothing_that_is_printed_moves_a_cursor_or_turns_the_reading_direction(
    capsys: pytest.CaptureFixture[str],
) -> None:
    table = Table(("reason", "steps"), [(WRITTEN, 1), ("plain", 2)])
    text = [f"{WRITTEN}\nnext\tline", Fields([("answer", WRITTEN)]), table]
    Output(as_json=False).print(Report(None, text))
    say(WRITTEN)
    with pytest.raises(SystemExit):
        exit_with_error(SettingsError(WRITTEN))
    told = capsys.readouterr()
    for text in (told.out, told.err):
        assert not set(text) & {"\x1b", "\x9b", "\u202e"}
    assert told.out.count("bought␛[2J") == 3
    assert told.err.count("bought␛[2J") == 2
    assert "next\tline" in told.out
    lines = told.out.splitlines()[-2:]
    assert len(lines[0]) == len(lines[1]), "columns stay as wide as what is shown in them"


def described(run: RunName = None) -> Report:
    """Say which run is meant."""

    def text() -> Iterator[Block]:
        yield f"run {run}"
        yield Table(("step", "reward"), [], empty="no step yet")

    return Report({"run": run}, text(), exit_code=3)


@pytest.fixture
def one_command() -> typer.Typer:
    app = typer.Typer()
    app.command()(with_common_options(described))
    return app


def test_one_place_prints_a_report_as_text_or_as_json_and_exits_with_its_code(
    one_command: typer.Typer,
) -> None:
    text = CliRunner().invoke(one_command, ["tale"])
    assert (text.stdout, text.exit_code) == ("run tale\nno step yet\n", 3)
    printed = CliRunner().invoke(one_command, ["--run", "tale", "--json"])
    assert (json.loads(printed.stdout), printed.exit_code) == ({"run": "tale"}, 3)


def test_two_runs_or_a_value_that_cannot_be_stored_are_refused_before_the_command_begins(
    one_command: typer.Typer,
) -> None:
    for arguments in (["tale", "--run", "other"], ["\udcff"]):
        assert isinstance(CliRunner().invoke(one_command, arguments).exception, SettingsError)


def test_a_command_that_prints_as_it_goes_gets_the_output() -> None:
    def counted(output: Output) -> None:
        """Count."""
        for number in (1, 2):
            output.print(Report(number, [f"number {number}"]))

    app = typer.Typer()
    app.command()(with_common_options(counted))
    assert CliRunner().invoke(app, []).stdout == "number 1\nnumber 2\n"
    assert CliRunner().invoke(app, ["--json"]).stdout == "1\n2\n"
