"""Messages of the processes: a line each for people, or a JSON object each, libraries' through the same pipe."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from hindcast.app.system.launch import Launch, write_launch
from hindcast.app.system.logs import LogStyle, style_of, tell

ROOT = Path(__file__).parents[2]
SPEAK = """
import logging, sys, warnings
import structlog
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from hindcast.app.system.logs import LogStyle, configure_logging
from hindcast.events.tracing import current_traceparent, span

configure_logging(LogStyle(*sys.argv[1:]), process="actor.1", role="actor", run="tale")
trace.set_tracer_provider(TracerProvider())
log = structlog.get_logger("hindcast.actors.episodes.actor")
log.debug("small talk")
log.info("two\\nlines", number=3, path=__import__("pathlib").Path("/x"))
with structlog.contextvars.bound_contextvars(episode="ep_1", position=17), span("work"):
    log.warning("within", context=current_traceparent())
def connect(password):
    raise ValueError("broken")
try:
    connect("sesame" + "opens")
except ValueError:
    log.error("crashed", exc_info=True)
logging.getLogger("nats.aio.client").info("library chatter")
logging.getLogger("nats.aio.client").error("encountered %s", "an error")
warnings.warn("old ways")
"""


def speak(*style: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", SPEAK, *style],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout == ""
    return done.stderr.splitlines()


def test_as_json_every_line_is_an_object_that_says_where_it_comes_from() -> None:
    spoken = speak("json", "info")
    lines: list[dict[str, Any]] = [json.loads(line) for line in spoken]
    first, within, crashed, library, warning = lines
    for line in lines:
        assert (line["process"], line["role"], line["run"]) == ("actor.1", "actor", "tale")
        assert line["timestamp"].endswith("Z")
    assert (first["event"], first["number"], first["level"]) == ("two\nlines", 3, "info")
    assert (within["episode"], within["position"], within["level"]) == ("ep_1", 17, "warning")
    assert within["context"].startswith(f"00-{within['trace_id']}-{within['span_id']}-")
    assert "trace_id" not in first
    assert crashed["exception"][0]["exc_type"] == "ValueError"
    assert crashed["exception"][0]["frames"][-1]["name"] == "connect"
    assert "sesameopens" not in "".join(spoken), "values of variables are nobody's business"
    assert (library["event"], library["logger"]) == ("encountered an error", "nats.aio.client")
    assert "old ways" in warning["event"]
    assert warning["logger"] == "py.warnings"


@pytest.mark.parametrize(
    ("level", "heard"),
    [
        ("debug", ["small talk", "two", "within", "crashed", "library chatter", "encountered", "old ways"]),
        ("warning", ["within", "crashed", "encountered", "old ways"]),
        ("error", ["crashed", "encountered"]),
    ],
)
def test_what_is_below_the_level_is_left_out(level: str, heard: list[str]) -> None:
    said = [json.loads(line)["event"] for line in speak("json", level)]
    assert [next(words for words in heard if words in event) for event in said] == heard


def test_as_text_a_message_is_a_line_that_begins_with_time_level_and_words() -> None:
    first, within, crashed, *trace = speak("text", "info")
    assert "level='info' event='two\\nlines' process='actor.1'" in first
    assert first.startswith("timestamp='")
    assert "episode='ep_1'" in within
    assert "run=" not in within
    assert "event='crashed'" in crashed
    assert trace[0] == "Traceback (most recent call last):"
    assert "ValueError: broken" in trace
    assert "encountered an error" in trace[-2]


def test_last_words_come_in_the_same_style(capsys: pytest.CaptureFixture[str]) -> None:
    tell(LogStyle(), "learner.1", "it ended")
    tell(LogStyle("json"), "learner.1", "it ended", error_type="ForeignLog")
    text, line = capsys.readouterr().err.splitlines()
    assert text == "it ended"
    said = json.loads(line)
    assert (said["event"], said["process"], said["error_type"]) == ("it ended", "learner.1", "ForeignLog")


@pytest.mark.parametrize(
    ("content", "style"),
    [
        (None, LogStyle("text", "info")),
        ('[telemetry]\nlog_format = "json"\nlog_level = "debug"', LogStyle("json", "debug")),
        ('[telemetry]\nlog_level = "loud"', LogStyle("text", "info")),
        ("[telemetry", LogStyle("text", "info")),
        ("telemetry = 3", LogStyle("text", "info")),
    ],
    ids=["no run", "chosen", "unknown level", "no TOML", "no section"],
)
def test_the_style_is_known_before_the_run_is_opened(
    tmp_path: Path, content: str | None, style: LogStyle
) -> None:
    if content is not None:
        write_launch(tmp_path, Launch(run="tale"))
        (tmp_path / "runs" / "tale").mkdir(parents=True)
        (tmp_path / "runs" / "tale" / "settings.toml").write_text(content)
    assert style_of(tmp_path) == style
