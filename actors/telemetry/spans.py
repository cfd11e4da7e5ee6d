"""Spans and metrics of actor, judge, relabeler and curriculum.

    hindcast.request_episode (curriculum) -> invoke_agent (actor) -> chat, execute_tool
                                                                  -> hindcast.judge (judge) -> chat
                                                                  -> hindcast.relabel (relabeler) -> chat

Arrows point from parent to child. Between processes the parent is in the header of the event being processed. Prompts,
answers and texts of pages are content: only where `telemetry.content` allows them.
"""

import json
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

from opentelemetry import metrics
from opentelemetry.trace import Span, SpanKind

from hindcast.actors.episodes.recorder import Abandoned, Ended
from hindcast.core import telemetry_names as names
from hindcast.core.domain.action import Action, ParseFailure
from hindcast.core.domain.evidence import Judgment
from hindcast.core.domain.sampling import Sampling
from hindcast.events.catalogue import EpisodeRequested
from hindcast.events.catalogue.verdict import JudgeIdentity
from hindcast.events.log.work_queue import Delivery
from hindcast.events.tracing import SCOPE, Attribute, fail, is_tracing, span

Call = dict[str, Attribute]
"""Attributes of every measurement of a call."""

_meter = metrics.get_meter(SCOPE)
_tokens = _meter.create_histogram(names.TOKEN_USAGE, "{token}", "Tokens of a model's call")
_seconds = _meter.create_histogram(names.OPERATION_DURATION, "s", "Duration of a model's call")


def chat_call(model: str, *, provider: str) -> Call:
    """Attributes of a chat with a model."""
    return {names.OPERATION: names.CHAT, names.REQUEST_MODEL: model, names.PROVIDER: provider}


def count_tokens(call: Call, *, prompt: int, answer: int) -> None:
    """Count the tokens that one call read and wrote."""
    _tokens.record(prompt, {**call, names.TOKEN_TYPE: "input"})
    _tokens.record(answer, {**call, names.TOKEN_TYPE: "output"})


def count_seconds(call: Call, seconds: float) -> None:
    """Record the duration of one call."""
    _seconds.record(seconds, call)


def message(role: str, text: str) -> dict[str, object]:
    """One message in the form of the conventions."""
    return {"role": role, "parts": [{"type": "text", "content": text}]}


def as_json(messages: list[dict[str, object]]) -> str:
    """Messages as the value of an attribute."""
    return json.dumps(messages, ensure_ascii=False)


_MODEL = "policy"
_AGENT = {names.PROVIDER: names.OURS, names.AGENT_NAME: names.OURS}

_episodes = _meter.create_counter(names.EPISODES, "{episode}", "Episodes that came to an end, by outcome")
_steps = _meter.create_counter(names.STEPS, "{step}", "Browser actions, by result")


def requesting(request: EpisodeRequested) -> AbstractContextManager[Span]:
    """Span of an episode's request: the root of its trace."""
    return span(
        names.REQUEST_EPISODE,
        _of_request(request) if is_tracing() else None,
        kind=SpanKind.PRODUCER,
        parent="",
    )


def playing(request: EpisodeRequested, delivery: Delivery, *, run: str) -> AbstractContextManager[Span]:
    """Span of an episode, with its request as parent."""
    if not is_tracing():
        return span(names.INVOKE_AGENT)
    attributes: dict[str, Attribute] = {
        names.OPERATION: names.INVOKE_AGENT,
        **_AGENT,
        names.REQUEST_MODEL: _MODEL,
        names.RUN: run,
        **_of_request(request),
    }
    return span(f"{names.INVOKE_AGENT} {names.OURS}", attributes, parent=delivery.traceparent)


def _of_request(request: EpisodeRequested) -> dict[str, Attribute]:
    task = request.task
    return {
        names.CONVERSATION: request.episode,
        names.TASK: task.id,
        names.FAMILY: f"{task.environment}/{task.family}",
        names.GROUP: request.group,
        names.ORIGIN: request.origin,
    }


def played(open_span: Span, outcome: Ended | Abandoned | None) -> None:
    """Record the episode's outcome; None: another actor had it."""
    if outcome is None:
        return
    _episodes.add(1, {names.OUTCOME: outcome.reason})
    if not open_span.is_recording():
        return
    open_span.set_attribute(names.OUTCOME, outcome.reason)
    open_span.set_attribute(names.STEPS, outcome.steps)
    if isinstance(outcome, Abandoned):
        fail(open_span, outcome.reason)
    else:
        open_span.set_attribute(names.POLICY_VERSION, outcome.policy_versions[1])


class PolicyCall:
    """A running policy call."""

    def __init__(self, open_span: Span, *, content: bool) -> None:
        self._span = open_span
        self._content = content and open_span.is_recording()

    @property
    def wants_content(self) -> bool:
        """Whether the texts themselves are recorded."""
        return self._content

    def answered(self, *, prompt_tokens: int, answer_tokens: int, version: int) -> None:
        """Record the policy's answer."""
        count_tokens(chat_call(_MODEL, provider=names.OURS), prompt=prompt_tokens, answer=answer_tokens)
        if self._span.is_recording():
            self._span.set_attribute(names.INPUT_TOKENS, prompt_tokens)
            self._span.set_attribute(names.OUTPUT_TOKENS, answer_tokens)
            self._span.set_attribute(names.RESPONSE_MODEL, f"{_MODEL}_v{version}")
            self._span.set_attribute(names.POLICY_VERSION, version)

    def record_texts(self, *, prompt: str, answer: str) -> None:
        """Record the texts, where they are wanted."""
        self._span.set_attribute(names.INPUT_MESSAGES, as_json([message("user", prompt)]))
        self._span.set_attribute(names.OUTPUT_MESSAGES, as_json([message("assistant", answer)]))


@contextmanager
def policy_call(step: int, sampling: Sampling, *, content: bool) -> Iterator[PolicyCall]:
    """Span of one call of the policy."""
    attributes: dict[str, Attribute] = {
        **chat_call(_MODEL, provider=names.OURS),
        names.REQUEST_TEMPERATURE: sampling.temperature,
        names.REQUEST_MAX_TOKENS: sampling.max_tokens,
        names.STEP: step,
    }
    began = time.perf_counter()
    with span(f"{names.CHAT} {_MODEL}", attributes) as open_span:
        yield PolicyCall(open_span, content=content)
    count_seconds(chat_call(_MODEL, provider=names.OURS), time.perf_counter() - began)


def browser_action(
    step: int, action: Action | ParseFailure, *, content: bool
) -> AbstractContextManager[Span]:
    """Span of one action in the browser; an unparsable one does nothing."""
    if not is_tracing():
        return span(names.EXECUTE_TOOL)
    name = action.name if isinstance(action, Action) else "unparsable"
    attributes: dict[str, Attribute] = {
        names.OPERATION: names.EXECUTE_TOOL,
        names.TOOL_NAME: name,
        names.TOOL_TYPE: "extension",
        names.STEP: step,
    }
    if content and isinstance(action, Action):
        arguments = {"element": action.element, "argument": action.argument}
        attributes[names.TOOL_ARGUMENTS] = json.dumps(arguments, ensure_ascii=False)
    return span(f"{names.EXECUTE_TOOL} {name}", attributes)


def acted(open_span: Span, result: str, detail: str, *, content: bool) -> None:
    """Record the action's result."""
    _steps.add(1, {names.RESULT: result})
    if not open_span.is_recording():
        return
    open_span.set_attribute(names.RESULT, result)
    if content:
        open_span.set_attribute(names.TOOL_RESULT, detail or result)
    if result != "ok":
        fail(open_span, result)


def judging(episode: str, judge: JudgeIdentity, delivery: Delivery) -> AbstractContextManager[Span]:
    """Span of one judge's work on an ended episode."""
    attributes: dict[str, Attribute] = {names.EVALUATION_NAME: judge.name, names.CONVERSATION: episode}
    return span(f"{names.JUDGE} {judge.name}", attributes, parent=delivery.traceparent)


def judged(open_span: Span, judge: JudgeIdentity, judgment: Judgment, *, content: bool) -> None:
    """Record the verdict, as the conventions' event and on the span."""
    if not open_span.is_recording():
        return
    verdict: dict[str, Attribute] = {
        names.EVALUATION_NAME: judge.name,
        names.EVALUATION_LABEL: judgment.outcome,
    }
    if judgment.outcome != "undecided":
        verdict[names.EVALUATION_SCORE] = judgment.reward
    if content:
        verdict[names.EVALUATION_EXPLANATION] = judgment.reason
    open_span.add_event(names.EVALUATION_RESULT, verdict)
    open_span.set_attribute(names.OUTCOME, judgment.outcome)


def relabeling(episode: str, relabeler: JudgeIdentity, delivery: Delivery) -> AbstractContextManager[Span]:
    """Span of the relabeler's work on an ended episode."""
    attributes: dict[str, Attribute] = {names.CONVERSATION: episode}
    return span(f"{names.RELABEL} {relabeler.name}", attributes, parent=delivery.traceparent)


def relabeled(open_span: Span, *, goals: int, failed: bool) -> None:
    """Record the number of found goals; a failure by its kind alone, because its words may be a page's."""
    if not open_span.is_recording():
        return
    open_span.set_attribute(names.GOALS, goals)
    if failed:
        fail(open_span, "relabeler_failed")
