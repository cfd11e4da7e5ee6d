"""A whole system that is traced: what a real receiver of the OpenTelemetry protocol gets, and what it never gets."""

import json
from pathlib import Path
from typing import Any

import pytest

from hindcast.core import telemetry_names as names
from processes.system import SMALL_GROUPS, Home
from servers.otlp_receiver import OtlpReceiver, ReceivedSpan, receiving

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400), pytest.mark.broker, pytest.mark.browser]

CONTENT = (
    names.INPUT_MESSAGES,
    names.OUTPUT_MESSAGES,
    names.TOOL_ARGUMENTS,
    names.TOOL_RESULT,
    names.EVALUATION_EXPLANATION,
)


def by_id(spans: list[ReceivedSpan]) -> dict[str, ReceivedSpan]:
    return {span.span_id: span for span in spans}


def check_trace(receiver: OtlpReceiver) -> None:
    """From a request to the update: who is whose parent, and what links to what."""
    every = by_id(receiver.spans)
    updates = receiver.named(names.UPDATE)
    episodes = by_id(receiver.named(names.INVOKE_AGENT))
    assert updates
    for update in updates:
        assert update.links, "an update is linked to the episodes it trained on"
        assert set(update.links) <= set(episodes)
        plan = every[update.parent]
        assert plan.name == names.PLAN_BATCH
        assert not plan.parent
        assert set(update.links) <= set(plan.links)
        assert update.resource["hindcast.role"] == "learner"
    episode = episodes[updates[0].links[0]]
    request = every[episode.parent]
    assert (request.name, request.parent) == (names.REQUEST_EPISODE, "")
    assert (request.resource["hindcast.role"], episode.resource["hindcast.role"]) == ("curriculum", "actor")
    children = [span for span in receiver.spans if span.parent == episode.span_id]
    assert {span.trace_id for span in children} == {request.trace_id}
    kinds = {span.name.split()[0] for span in children}
    assert {names.CHAT, names.JUDGE} <= kinds <= {names.CHAT, names.EXECUTE_TOOL, names.JUDGE}
    verdict = next(span for span in children if span.name.startswith(names.JUDGE))
    assert verdict.resource["hindcast.role"] == "judge"
    ((event, told),) = verdict.events
    assert event == names.EVALUATION_RESULT
    assert told[names.EVALUATION_NAME] == "rules"
    assert told[names.EVALUATION_LABEL] in ("success", "failure")
    assert request.start_ns <= episode.start_ns <= children[0].start_ns <= verdict.start_ns
    chats = [span for span in children if span.name.startswith(names.CHAT)]
    assert len(chats) == episode.attributes[names.STEPS]
    assert all(span.attributes[names.INPUT_TOKENS] > 0 for span in chats)
    assert any(span.name.startswith(names.EXECUTE_TOOL) for span in receiver.spans)


def read_lines(home: Home) -> list[dict[str, Any]]:
    lines = (home.folder / "honcho.log").read_text().splitlines()
    return [json.loads(line) for line in lines if line.startswith("{")]


def test_a_request_can_be_followed_to_the_update_it_led_to(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    with receiving() as receiver:
        chosen = {
            **SMALL_GROUPS,
            "telemetry.otlp_endpoint": receiver.endpoint,
            "telemetry.log_format": "json",
        }
        settings = [part for key, value in chosen.items() for part in ("--set", f"{key}={value}")]
        done = home.json("start", "--until", "updates=2", *settings, timeout_s=300)
        assert done["updates"] == 2
        check_trace(receiver)
        assert receiver.metrics.keys() >= {names.EPISODES, names.STEPS, names.UPDATES, names.TOKEN_USAGE}
        for span in receiver.spans:
            assert not set(CONTENT) & set(span.attributes)
            assert not any(names.EVALUATION_EXPLANATION in told for _, told in span.events)
        before = len(receiver.spans)
        assert home.json("verify", timeout_s=200)["updates"] >= 2
        assert len(receiver.spans) == before, "nothing of a replay is exported"
    lines = read_lines(home)
    assert {line["process"].split(".")[0] for line in lines} >= {"curriculum", "actor", "judge", "learner"}
    update = next(line for line in lines if line["event"] == "update")
    known = {span.span_id: span.trace_id for span in receiver.named(names.UPDATE)}
    assert (update["role"], update["run"]) == ("learner", done["run"])
    assert known[update["span_id"]] == update["trace_id"]
