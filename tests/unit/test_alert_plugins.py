"""Alerts that another package brings: installed, seen to fire in a recorded run, kept over a restart, and refused in words."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from hindcast.api import Alert, AlertContext
from hindcast.app.alerts.alert import alert_conflicts, check_alert
from hindcast.app.alerts.incidents import AlertMessage
from hindcast.app.alerts.rules import AlertFold, AlertState, open_alerts
from hindcast.app.alerts.watcher import watch_alerts
from hindcast.app.attach.attachment import AttachmentSession
from hindcast.app.plugins import find_plugins
from hindcast.app.settings.checks.cross_checks import find_conflicts
from hindcast.core.errors import PluginError, SettingsError
from hindcast.core.settings.operation import TelemetrySettings
from hindcast.core.settings.schema import Settings
from hindcast.events.catalogue import StepTaken
from hindcast.events.envelope import Recorded
from stories.example_plugins import forget, installed_example
from stories.recorded_home import make_home
from stories.synthetic_run import a_run, recorded_run

MODULE = "hindcast_slow_steps"


@pytest.fixture
def installed(tmp_path: Path) -> Iterator[Path]:
    with installed_example("slow_steps", tmp_path / "site") as folder:
        yield folder


def settings(*names: str, **options: object) -> Settings:
    return Settings(telemetry=TelemetrySettings(alerts=names, alert_options={names[0]: options}))


async def steps() -> list[Recorded]:
    _, events = await recorded_run()
    return [one for one in events if isinstance(one.fact, StepTaken)]


@pytest.mark.parametrize("name", ["slow_steps", f"{MODULE}:ALERT"])
async def test_the_example_fires_while_a_recorded_run_is_watched(
    tmp_path: Path, installed: Path, name: str
) -> None:
    facts = a_run()
    handle = await make_home(tmp_path / "home", facts)
    said: list[AlertMessage] = []
    session = AttachmentSession()
    session.on_progress = lambda position: session.stop.set() if position >= len(facts) else None
    options = {name: {"steps": 3, "most_ms": 0.0}}
    async with asyncio.timeout(120):
        await watch_alerts(
            handle, session, said.append, also=(name,), options=options, begin="start", look_s=0.2
        )
    (mine,) = [one for one in said if one.kind == name]
    assert mine.text.startswith("steps are slow: the last 3 steps took")
    assert (mine.over, mine.severity) == (False, "warning")


async def test_the_state_of_an_alert_is_kept_over_a_restart_unless_its_version_is_another(
    installed: Path,
) -> None:
    first, second, third = (await steps())[:3]
    slow = settings("slow_steps", steps=3, most_ms=0.0)
    (one,) = open_alerts(slow.telemetry.alerts, slow, slow.telemetry.alert_options)
    fold = AlertFold([one])
    state = fold.apply(fold.apply(fold.initial(), first), second)
    stored = msgspec.msgpack.encode(state)
    restored = msgspec.msgpack.decode(stored, type=AlertState)
    (incident,) = fold.apply(restored, third).incidents
    assert (incident.kind, incident.position) == ("slow_steps", third.position)
    one.alert = msgspec.structs.replace(one.alert, state_version=2)
    assert fold.apply(msgspec.msgpack.decode(stored, type=AlertState), third).incidents == []


def test_what_is_wrong_in_the_settings_is_said_before_anything_starts(installed: Path) -> None:
    assert alert_conflicts(settings("slow_steps", steps=5)) == []
    (unknown,) = find_conflicts(settings("slow_steps", step=5))
    assert "telemetry.alert_options of the alert 'slow_steps'" in unknown
    assert "unknown field `step`. Its options: steps, most_ms" in unknown
    (missing,) = alert_conflicts(settings("slow_stpes"))
    assert "the nearest is slow_steps" in missing
    unused = Settings(telemetry=TelemetrySettings(alert_options={"slow_steps": {}}))
    assert alert_conflicts(unused) == [
        "telemetry.alert_options names 'slow_steps', which is no alert of telemetry.alerts"
    ]
    with pytest.raises(PluginError):
        open_alerts(["slow_stpes"], unused, {})
    with pytest.raises(SettingsError, match="Expected `int`"):
        open_alerts(["slow_steps"], unused, {"slow_steps": {"steps": "many"}})


def test_what_is_wrong_with_an_alert_is_said(installed: Path) -> None:
    (finding,) = find_plugins("alerts", "slow_steps")
    assert not finding.problems
    assert check_alert(Alert()) == ["it has neither a fold nor a query"]

    class Stateless:
        def __init__(self, context: AlertContext) -> None:
            self.context = context

        def initial(self) -> int:
            return 0

        def apply(self, *_: object) -> None:
            pass

    assert check_alert(Alert(fold=Stateless)) == ["its fold's state is a int, no msgspec.Struct"]
    (installed / f"{MODULE}.py").write_text("ALERT = 3\n")
    forget(MODULE)
    (finding,) = find_plugins("alerts", "slow_steps")
    assert finding.problems[0] == "it is a int, no hindcast.app.alerts.alert.Alert"


def test_every_built_in_alert_can_be_used_and_is_watched_for() -> None:
    found = find_plugins("alerts")
    assert {one.name for one in found} == set(Settings().telemetry.alerts)
    assert all(not one.problems for one in found)
