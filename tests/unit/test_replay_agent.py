"""What does not count when the calls of an agent are compared with the recorded ones."""

from typer.testing import CliRunner

from hindcast.actors.replay.agent import plain_visit
from hindcast.app.cli import app
from hindcast.core.errors import SettingsError


def test_the_address_of_the_site_and_the_secret_of_the_visit_do_not_count() -> None:
    recorded = "Opened http://127.0.0.1:4620/_enter/Ub-C_y0 and then http://127.0.0.1:4620/item/3."
    assert plain_visit(recorded) == "Opened SITE and then SITE/item/3."
    assert plain_visit("tab 127.0.0.1:4620") == "tab SITE"
    assert plain_visit("https://shop.example:443/item/3") == "https://shop.example:443/item/3"


def test_a_pattern_that_is_no_regular_expression_is_refused() -> None:
    done = CliRunner().invoke(app, ["replay", "steps", "mine", "--start-agent", "--ignoring", "("])
    assert isinstance(done.exception, SettingsError)
    assert "--ignoring: '(' is no regular expression" in str(done.exception)
