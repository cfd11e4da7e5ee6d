"""Spans: what they tell, what they never tell, how they continue through the log, and collectors that do not answer."""

import asyncio
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.semconv._incubating.attributes import gen_ai_attributes, server_attributes
from opentelemetry.semconv._incubating.metrics import gen_ai_metrics
from opentelemetry.semconv.attributes import error_attributes
from opentelemetry.trace import INVALID_SPAN, SpanKind, StatusCode

from fakes.spans import Spans, parent_of, place_of
from fakes.spans import spans as spans
from hindcast.actors.endpoint.client import Endpoint
from hindcast.actors.endpoint.completion import Message
from hindcast.actors.telemetry.spans import acted, browser_action, policy_call
from hindcast.app.settings.configuration import resolve
from hindcast.core import telemetry_names as names
from hindcast.core.domain.action import Action
from hindcast.core.domain.sampling import Sampling
from hindcast.core.errors import SettingsError
from hindcast.core.settings.endpoint import EndpointSettings
from hindcast.core.settings.schema import LogSettings
from hindcast.events.catalogue import BatchPlanned, EpisodeEnded, PhaseStarted
from hindcast.events.envelope import Stored
from hindcast.events.log.memory import MemoryLog
from hindcast.events.log.publisher import Publisher
from hindcast.events.tracing import current_traceparent, is_tracing, span
from hindcast.learner.batch_plan import Minibatch
from hindcast.learner.spans import TrainingSpans
from servers.chat_server import chatting, fails, in_turn, says
from stories.synthetic_run import recorded_run

ROOT = Path(__file__).parents[2]
PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
FIRST = Minibatch(first_sample=0, end_sample=1, first_episode=0, end_episode=1)
WAIT_S = 60.0


def test_where_nobody_records_a_span_is_nothing() -> None:
    assert not is_tracing()
    with span("work", {"a": 1}, parent=PARENT) as begun:
        assert begun is INVALID_SPAN
        assert current_traceparent() == ""


def test_a_span_continues_what_an_event_was_recorded_in(spans: Spans) -> None:
    with span("outer"), span("work", {"a": 1}, kind=SpanKind.PRODUCER, parent=PARENT):
        within = current_traceparent()
    found = spans.only("work")
    assert place_of(found) == within
    assert f"00-{parent_of(found)}-01" == PARENT
    assert (found.kind, dict(found.attributes or {})) == (SpanKind.PRODUCER, {"a": 1})


@pytest.mark.parametrize(
    "header", ["", "no context", "00-zz-zz-01", f"{PARENT}-more", "00-" + "0" * 32 + "-" + "0" * 16 + "-01"]
)
def test_an_event_without_a_usable_context_begins_a_trace(spans: Spans, header: str) -> None:
    with span("outer"), span("work", parent=header):
        pass
    assert spans.only("work").parent is None


def test_an_error_is_told_by_its_kind_and_never_in_its_words(spans: Spans) -> None:
    with pytest.raises(ValueError, match="page says"), span("work"):
        raise ValueError("the page says: secret")
    found = spans.only("work")
    assert found.status.status_code is StatusCode.ERROR
    assert dict(found.attributes or {}) == {names.ERROR_TYPE: "ValueError"}
    assert "secret" not in found.to_json()


async def test_facts_bear_the_context_of_the_span_they_are_recorded_in(spans: Spans) -> None:
    log = MemoryLog("tale")
    async with Publisher(log, producer="curriculum.1", code_rev="test", settings=LogSettings()) as publisher:
        await publisher.publish(PhaseStarted(phase=0, reference_version=0), entity="before")
        with span("work"):
            await publisher.publish(PhaseStarted(phase=1, reference_version=0), entity="within")
            await publisher.decide(PhaseStarted(phase=2, reference_version=0), entity="decided")
        await publisher.commit()
    place = place_of(spans.only("work"))
    assert [stored.traceparent for stored in log.events] == ["", place, place]


async def test_tasks_at_the_same_time_keep_their_contexts_apart(spans: Spans) -> None:
    async def work(name: str) -> tuple[str, str]:
        with span(name):
            before = current_traceparent()
            await asyncio.sleep(0)
            return before, current_traceparent()

    for before, after in await asyncio.gather(*(work(f"work {number}") for number in range(5))):
        assert before == after
    assert len({place_of(found) for found in spans.named("work")}) == 5


@pytest.mark.parametrize("content", [False, True])
def test_words_are_told_only_where_the_settings_say_so(spans: Spans, content: bool) -> None:
    with policy_call(3, Sampling(temperature=1.0, max_tokens=9, seed=1), content=content) as call:
        call.answered(prompt_tokens=70, answer_tokens=5, version=2)
        assert call.wants_content is content
        if call.wants_content:
            call.record_texts(prompt="read this", answer="Type secret")
    action = Action(name="Type", element=7, argument="secret")
    with browser_action(3, action, content=content) as begun:
        acted(begun, "not_found", "no box says secret", content=content)
    chat, tool = spans.only(names.CHAT), spans.only(names.EXECUTE_TOOL)
    assert (chat.attributes or {})[names.INPUT_TOKENS] == 70
    assert (chat.attributes or {})[names.RESPONSE_MODEL] == "policy_v2"
    assert tool.name == "execute_tool Type"
    assert (tool.attributes or {})[names.ERROR_TYPE] == "not_found"
    for found in (chat, tool):
        assert ("secret" in found.to_json()) is content


def test_our_names_are_those_of_the_conventions_that_are_installed() -> None:
    known = {
        value
        for module in (gen_ai_attributes, error_attributes, server_attributes, gen_ai_metrics)
        for value in vars(module).values()
        if isinstance(value, str)
    }
    ours = {
        name: value
        for name, value in vars(names).items()
        if isinstance(value, str) and value.startswith(("gen_ai.", "error.", "server."))
    }
    del ours["EVALUATION_RESULT"]  # an event: the package lists attributes and metrics
    assert len(ours) > 20
    assert {name: value for name, value in ours.items() if value not in known} == {}


@pytest.mark.parametrize("content", [False, True])
async def test_a_request_to_an_endpoint_is_a_client_span_within_whoever_asks(
    spans: Spans, content: bool
) -> None:
    with chatting(in_turn(fails(503), says("secret 7", prompt_tokens=70, answer_tokens=5))) as server:
        settings = EndpointSettings(base_url=server.base_url, model="asked-for", backoff_s=0.001)
        async with Endpoint(settings, content=content, environment={}) as endpoint:
            with span("hindcast.judge endpoint"):
                await endpoint.ask([Message("user", "Say secret.")], str, max_tokens=9, seed=4)
    first, second = spans.named("chat asked-for")
    asking = spans.only("hindcast.judge")
    for request in (first, second):
        told = dict(request.attributes or {})
        assert (request.kind, parent_of(request)) == (SpanKind.CLIENT, place_of(asking)[3:-3])
        assert told[names.SERVER_ADDRESS] == "127.0.0.1"
        assert server.base_url == f"http://127.0.0.1:{told[names.SERVER_PORT]}/v1"
        assert (told[names.REQUEST_MODEL], told[names.REQUEST_MAX_TOKENS], told[names.REQUEST_SEED]) == (
            "asked-for",
            9,
            4,
        )
        assert ("secret" in request.to_json()) is content
    failed, answered = dict(first.attributes or {}), dict(second.attributes or {})
    assert failed[names.ERROR_TYPE] == "InternalServerError"
    assert names.INPUT_TOKENS not in failed
    assert (answered[names.INPUT_TOKENS], answered[names.OUTPUT_TOKENS]) == (70, 5)
    assert answered[names.RESPONSE_MODEL] == "test-model-1"
    assert answered[names.FINISH_REASONS] == ("stop",)


async def traced_log() -> tuple[MemoryLog, BatchPlanned, int, dict[str, str]]:
    """A run whose ends and plans were each recorded in a span of their own; its first plan and where that stands."""
    log, recordeds = await recorded_run(1)
    played: dict[str, str] = {}
    found: tuple[BatchPlanned, int] | None = None
    for recorded in recordeds:
        if isinstance(recorded.fact, EpisodeEnded | BatchPlanned):
            place = f"00-{recorded.position:032x}-{recorded.position:016x}-01"
            at = recorded.position - 1
            old = log.events[at]
            log.events[at] = Stored(old.position, old.subject, old.data, old.id, place)
        if isinstance(recorded.fact, EpisodeEnded):
            played[recorded.fact.episode] = f"{recorded.position:016x}"
        elif isinstance(recorded.fact, BatchPlanned) and found is None:
            found = recorded.fact, recorded.position
    assert found is not None
    return log, *found, played


def links_of(found: ReadableSpan) -> set[str]:
    return {f"{link.context.span_id:016x}" for link in found.links}


async def test_a_plan_and_its_updates_link_to_the_episodes_they_are_made_from(spans: Spans) -> None:
    log, planned, position, played = await traced_log()
    live = TrainingSpans(log)
    async with live.planning(planned):
        planned_in = current_traceparent()
    async with live.updating(planned, FIRST, index=0, position=position):
        pass
    plan, update = spans.only(names.PLAN_BATCH), spans.only(names.UPDATE)
    assert links_of(plan) == {played[part.episode] for part in planned.episodes}
    assert links_of(update) == {played[planned.episodes[0].episode]} < links_of(plan)
    assert parent_of(update) == planned_in[3:-3]
    with live.publishing(1):
        pass
    assert parent_of(spans.only(names.PUBLISH_WEIGHTS)) == planned_in[3:-3]


async def test_a_learner_that_starts_again_finds_the_plan_s_span_in_the_log(spans: Spans) -> None:
    log, planned, position, played = await traced_log()
    async with TrainingSpans(log).updating(planned, FIRST, index=0, position=position):
        pass
    update = spans.only(names.UPDATE)
    assert parent_of(update) == f"{position:032x}-{position:016x}"
    assert links_of(update) == {played[planned.episodes[0].episode]}


EXPORT = """
import sys, time
from hindcast.app.system.logs import LogStyle, configure_logging
from hindcast.app.system.telemetry import exporting
from hindcast.core.settings.schema import TelemetrySettings
from hindcast.events.tracing import span

configure_logging(LogStyle(), process="actor.1", role="actor")
settings = TelemetrySettings(otlp_endpoint=sys.argv[1])
with exporting(settings, process="actor.1", role="actor", run="tale"):
    for number in range(6_000):
        with span(f"work {number}"):
            pass
    time.sleep(float(sys.argv[2]))
print("went on")
"""


def export_to(endpoint: str, *, linger_s: float) -> "subprocess.CompletedProcess[str]":
    """A process that records far more spans than its queue holds, then leaves."""
    return subprocess.run(
        [sys.executable, "-c", EXPORT, endpoint, str(linger_s)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=True,
    )


@pytest.mark.process
def test_a_collector_that_is_not_there_is_told_of_once_and_changes_nothing() -> None:
    done = export_to("http://127.0.0.1:1", linger_s=1.5)
    assert done.stdout == "went on\n"
    (line,) = done.stderr.splitlines()
    assert "the collector takes no traces" in line
    assert "http://127.0.0.1:1" in line


def test_a_collector_that_takes_and_never_answers_is_not_waited_for() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        done = export_to(f"http://127.0.0.1:{silent.getsockname()[1]}", linger_s=0.0)
    assert done.stdout == "went on\n"


@pytest.mark.parametrize(
    ("endpoint", "words"),
    [
        ("localhost:4317", "must be the address of a collector"),
        ("grpc://collector:4317", "must be the address of a collector"),
        ("http://collector/?token=a", "must be the address of a collector"),
        ("http://me:secret@collector:4318", "OTEL_EXPORTER_OTLP_HEADERS"),
    ],
)
def test_an_endpoint_that_cannot_be_or_holds_a_secret_is_refused(
    tmp_path: Path, endpoint: str, words: str
) -> None:
    with pytest.raises(SettingsError, match=words) as raised:
        resolve(environment={}, folder=tmp_path, overrides=[f"telemetry.otlp_endpoint={endpoint}"])
    assert "secret" not in str(raised.value)
