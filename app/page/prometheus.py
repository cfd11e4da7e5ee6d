"""A run's metrics for Prometheus: figures of the read model, and the lag of consumers.

They are computed from the log, not counted in a process: a counter survives every restart, and two scrapes at one position
are equal. Names follow the conventions of Prometheus (base units, `_total` for counters, `_ratio` for shares).
"""

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager

import structlog
from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector
from sqlalchemy import Connection, select

from hindcast.app.attach.consumers import ConsumerRow, list_consumers
from hindcast.app.runs.runs import RunHandle
from hindcast.core.errors import HindcastError
from hindcast.core.rl.combined_state import POLICY
from hindcast.core.settings.schema import TelemetrySettings
from hindcast.core.structs import decode_json
from hindcast.events.catalogue.curriculum import ONLINE
from hindcast.storage.readmodel.evaluation_queries import EvaluationRow
from hindcast.storage.readmodel.outcome_counts import VersionSuccess
from hindcast.storage.readmodel.query_parts import position_of
from hindcast.storage.readmodel.run_queries import RunSummary, run_summary
from hindcast.storage.readmodel.tables import updates

CONSUMERS_S = 5.0
"""How long a scrape waits for the broker: Prometheus itself gives up after 10 s by default."""

logger = structlog.get_logger(__name__)


@contextmanager
def metrics_served(handle: RunHandle, settings: TelemetrySettings) -> Iterator[None]:
    """Serve the run's metrics during the block if the settings name a port.

    If the port is taken, a warning says so, and the run continues without metrics.
    """
    with ExitStack() as stack:
        host, port = settings.prometheus_host, settings.prometheus_port
        if port:
            try:
                stack.enter_context(serving(handle, host=host, port=port))
            except OSError as error:
                logger.warning(
                    "no metrics are served; the run continues", host=host, port=port, reason=str(error)
                )
        yield


@contextmanager
def serving(handle: RunHandle, *, host: str, port: int) -> Iterator[str]:
    """Serve a run's metrics during the block; gives their address. Port 0 takes a free one. Raises OSError."""
    registry = CollectorRegistry()
    collector = RunCollector(handle)
    registry.register(collector)
    try:
        server, thread = start_http_server(port, addr=host, registry=registry)
        try:
            yield f"http://{host}:{server.server_port}/metrics"
        finally:
            server.shutdown()
            server.server_close()
            thread.join()
    finally:
        collector.close()


class RunCollector(Collector):
    """Collects metrics at each scrape, in the scrape's own thread."""

    def __init__(self, handle: RunHandle) -> None:
        self._handle = handle
        self._model = handle.read_model()

    def describe(self) -> Iterable[Metric]:
        """Empty: a scrape at registration would need a database that may not exist yet."""
        return ()

    def collect(self) -> Iterable[Metric]:
        """All current metrics. If the read model or the broker does not answer, its metrics are absent."""
        try:
            with self._model.reading() as connection:
                summary, values = run_summary(connection), _last_update(connection)
        except HindcastError as error:
            logger.warning("a scrape finds no read model", reason=str(error))
        else:
            yield from run_metrics(summary, values)
        try:
            rows = asyncio.run(asyncio.wait_for(list_consumers(self._handle), CONSUMERS_S))
        except (HindcastError, TimeoutError) as error:
            logger.warning("a scrape finds no consumers", reason=str(error) or "the broker does not answer")
        else:
            yield from consumer_metrics(self._handle.name, rows)

    def close(self) -> None:
        """Close the database."""
        self._model.close()


def _last_update(connection: Connection) -> dict[str, float]:
    """Metrics of the policy's last update; empty if there is none."""
    text = connection.scalar(
        select(updates.c.metrics)
        .where(
            updates.c.position <= position_of(connection, None),
            updates.c.model == POLICY,
            updates.c.outcome == "applied",
        )
        .order_by(updates.c.position.desc())
        .limit(1)
    )
    told = decode_json(text, dict[str, float | None]) if text else {}
    return {name: value for name, value in told.items() if value is not None}


def run_metrics(summary: RunSummary, values: Mapping[str, float]) -> Iterator[Metric]:
    """Metrics from the read model. `values`: metrics of the last update."""
    run = summary.run
    yield _counter("events", "Events of the run that the read model holds", run, {"": summary.position})
    yield _gauge("episodes", "Episodes by state", run, summary.episodes, "state")
    yield _counter("verdicts", "Verdicts of the judge that is trained on", run, summary.verdicts, "outcome")
    yield _counter("steps", "Steps taken", run, {"": summary.steps})
    applied = {"applied": summary.updates, "skipped": summary.skipped_updates}
    yield _counter("updates", "Optimiser steps of the policy", run, applied, "outcome")
    yield _counter("trained_episodes", "Episodes trained on, each once", run, {"": summary.trained_episodes})
    yield _gauge("policy_version", "Newest version published", run, {"": summary.policy_version or 0})
    sampling = summary.sampling_from
    yield _gauge("actor_policy_version", "Version that an actor samples from", run, sampling, "actor")
    yield _gauge("update_value", "Metrics of the policy's last update", run, values, "metric")
    busy = {"": summary.throughput.learner_busy}
    yield _gauge("learner_busy_ratio", "Share of the newest stretch that the learner computes", run, busy)
    yield from _success(run, summary.success)
    yield from _evaluation(run, summary.evaluations)


def _success(run: str, curve: Iterable[VersionSuccess]) -> Iterator[Metric]:
    """Success of the newest version with verdicts on online episodes, with its interval and n."""
    judged = [point for point in curve if point.origin == ONLINE and point.success.judged]
    if not judged:
        return
    newest = max(judged, key=lambda point: point.version)
    told = {
        "rate": newest.weighted.rate,
        "low": newest.weighted.low,
        "high": newest.weighted.high,
    }
    yield _gauge(
        "success_ratio",
        "Success of the newest judged version, families in the run's shares, 95 % interval",
        run,
        told,
        "bound",
    )
    counts = {"": newest.success.judged}
    yield _gauge("success_judged_episodes", "Episodes behind hindcast_success_ratio", run, counts)
    yield _gauge(
        "success_policy_version", "Version that hindcast_success_ratio is of", run, {"": newest.version}
    )


def _evaluation(run: str, rows: Iterable[EvaluationRow]) -> Iterator[Metric]:
    """Success of the newest finished evaluation at each temperature, with its interval and n."""
    finished = [row for row in rows if row.rates]
    if not finished:
        return
    newest = finished[-1]
    ratios = GaugeMetricFamily(
        "hindcast_evaluation_success_ratio",
        "Success on held-out tasks in the newest evaluation, 95 % interval; temperature 0 is greedy",
        labels=["run", "temperature", "bound"],
    )
    judged = {}
    for one in newest.rates:
        temperature = f"{one.temperature:g}"
        judged[temperature] = float(one.judged)
        band = {"rate": one.success.rate, "low": one.success.low, "high": one.success.high}
        for bound, value in band.items():
            ratios.add_metric([run, temperature, bound], value)
    yield ratios
    yield _gauge(
        "evaluation_judged_episodes",
        "Episodes behind hindcast_evaluation_success_ratio",
        run,
        judged,
        "temperature",
    )
    yield _gauge(
        "evaluation_policy_version", "Version that was evaluated last", run, {"": float(newest.version)}
    )
    if newest.share is not None:
        yield _gauge(
            "evaluation_episodes_ratio", "Share of evaluations in all episodes", run, {"": newest.share}
        )


def consumer_metrics(run: str, rows: Iterable[ConsumerRow]) -> Iterator[Metric]:
    """Lag and state of every consumer; unknown values are absent."""
    told = list(rows)
    running = {row.name: float(row.state == "running") for row in told}
    yield _gauge("consumer_running", "1 while the consumer runs", run, running, "consumer")
    lag_s = {row.name: row.lag_s for row in told if row.lag_s is not None}
    yield _gauge("consumer_lag_seconds", "Age of the first event not taken in", run, lag_s, "consumer")
    lag = {row.name: row.lag_events for row in told if row.lag_events is not None}
    yield _gauge("consumer_lag_events", "Events not taken in", run, lag, "consumer")
    letters = {row.name: row.dead_letters for row in told}
    yield _counter("consumer_dead_letters", "Events set aside", run, letters, "consumer")


Samples = Mapping[str, float]
"""Values by label value; "" without a label."""


def _counter(name: str, text: str, run: str, samples: Samples, label: str = "") -> Metric:
    return _filled(CounterMetricFamily(f"hindcast_{name}", text, labels=_labels(label)), run, samples)


def _gauge(name: str, text: str, run: str, samples: Samples, label: str = "") -> Metric:
    return _filled(GaugeMetricFamily(f"hindcast_{name}", text, labels=_labels(label)), run, samples)


def _labels(label: str) -> list[str]:
    return ["run", label] if label else ["run"]


def _filled(family: CounterMetricFamily | GaugeMetricFamily, run: str, samples: Samples) -> Metric:
    for told, value in samples.items():
        family.add_metric([run, told] if told else [run], value)
    return family
