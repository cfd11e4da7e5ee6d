"""The metrics endpoint: scraped over HTTP from a run whose log and read model are real, read by Prometheus' own parser."""

import asyncio
import socket
import urllib.request
from pathlib import Path

import pytest
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families
from structlog.testing import capture_logs

from hindcast.app.page.prometheus import metrics_served, serving
from hindcast.app.runs.runs import RunHandle
from hindcast.core.settings.schema import TelemetrySettings
from hindcast.events.catalogue import RunForked
from hindcast.storage.readmodel.projector import fill
from hindcast.storage.readmodel.run_queries import run_summary
from stories.recorded_home import make_home
from stories.synthetic_run import a_run

FACTS = [told for told in a_run(1, groups=6) if not isinstance(told.fact, RunForked)]
LOOPBACK = "127.0.0.1"


async def projected(home: Path) -> RunHandle:
    """A run whose read model is one event behind its log."""
    handle = await make_home(home, FACTS)
    model = handle.read_model()
    model.prepare()
    async with handle.connect_log() as log:
        await fill(log, model, until=len(FACTS) - 1)
    model.close()
    return handle


@pytest.fixture(scope="module")
def handle(tmp_path_factory: pytest.TempPathFactory) -> RunHandle:
    return asyncio.run(projected(tmp_path_factory.mktemp("metrics") / "home"))


def scraped(address: str) -> dict[str, Metric]:
    """By name, without the run's."""
    with urllib.request.urlopen(address, timeout=60) as answer:
        assert answer.headers["Content-Type"].startswith("text/plain")
        text = answer.read().decode()
    return {family.name: family for family in text_string_to_metric_families(text)}


def values(family: Metric) -> dict[str, float]:
    """By the label beside the run; "" where there is none."""
    told = {}
    for sample in family.samples:
        labels = dict(sample.labels)
        assert labels.pop("run") == "tale"
        told["".join(labels.values())] = sample.value
    return told


def test_a_scrape_has_the_numbers_of_the_read_model_and_the_lag_of_consumers(handle: RunHandle) -> None:
    with serving(handle, host=LOOPBACK, port=0) as address:
        found = scraped(address)
    model = handle.read_model()
    with model.reading() as connection:
        summary = run_summary(connection)
    model.close()
    assert values(found["hindcast_events"]) == {"": summary.position} == {"": len(FACTS) - 1}
    assert found["hindcast_events"].type == "counter"
    assert values(found["hindcast_episodes"]) == summary.episodes
    assert values(found["hindcast_verdicts"]) == summary.verdicts
    assert values(found["hindcast_updates"]) == {
        "applied": summary.updates,
        "skipped": summary.skipped_updates,
    }
    assert values(found["hindcast_update_value"])["loss"] == 0.25
    newest = max(
        (point for point in summary.success if point.origin == "online" and point.success.judged),
        key=lambda point: point.version,
    )
    bounds = {name: getattr(newest.weighted, name) for name in ("rate", "low", "high")}
    assert values(found["hindcast_success_ratio"]) == pytest.approx(bounds)
    evaluated = summary.evaluations[-1]
    assert values(found["hindcast_evaluation_policy_version"]) == {"": evaluated.version}
    assert values(found["hindcast_evaluation_episodes_ratio"]) == {"": evaluated.share}
    ratios = {
        f"{bound}{rate.temperature:g}": getattr(rate.success, bound)
        for rate in evaluated.rates
        for bound in ("rate", "low", "high")
    }
    assert values(found["hindcast_evaluation_success_ratio"]) == pytest.approx(ratios)
    assert values(found["hindcast_evaluation_judged_episodes"]) == {"0": 18, "1": 18}
    assert values(found["hindcast_success_judged_episodes"]) == {"": newest.success.judged}
    assert values(found["hindcast_consumer_lag_events"])["projector"] == 1
    assert values(found["hindcast_consumer_lag_seconds"])["projector"] >= 0
    assert values(found["hindcast_consumer_running"])["projector"] == 0


def test_without_a_read_model_a_scrape_still_answers(tmp_path: Path) -> None:
    handle = asyncio.run(make_home(tmp_path / "home", FACTS[:1]))
    with serving(handle, host=LOOPBACK, port=0) as address:
        found = scraped(address)
    assert "hindcast_steps" not in found
    assert "hindcast_consumer_running" in found


def test_a_port_that_is_taken_is_said_and_the_run_goes_on(handle: RunHandle) -> None:
    with socket.create_server((LOOPBACK, 0)) as other:
        settings = TelemetrySettings(prometheus_port=other.getsockname()[1])
        with capture_logs() as said, metrics_served(handle, settings):
            said.append({"event": "went on", "log_level": "info"})
    assert [one["event"] for one in said] == ["no metrics are served; the run continues", "went on"]


def test_no_port_no_metrics(handle: RunHandle, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hindcast.app.page.prometheus.start_http_server", None)
    with metrics_served(handle, TelemetrySettings()):
        pass
