"""Converts an ATIF trajectory into an episode document: the inverse of `app.exports.atif`.

ATIF lacks parts that a demonstration needs. Hindcast's export writes them into `extra`: the page of each observation
(`extra.page`), and task and evidence (`extra.hindcast`). A trajectory without them is refused, because text alone does not
name the interactive elements. Token ids and log-probabilities belong to another policy and are dropped.
"""

from typing import Any

import msgspec

from hindcast.app.exports.atif import KEY
from hindcast.app.exports.atif_format import READ, ObservationResult, Step, Trajectory
from hindcast.app.exports.document import FORMAT, DocumentStep, EpisodeDocument
from hindcast.app.exports.functions import action_of
from hindcast.app.imports.decoder import DocumentError, decoded
from hindcast.core.domain.observation import Page


def document_of_trajectory(content: bytes) -> EpisodeDocument:
    """Convert a trajectory to a document. Raises DocumentError naming the key."""
    found = decoded(content, Trajectory)
    if found.schema_version not in READ:
        raise DocumentError("schema_version", f"{found.schema_version!r} is not one of {', '.join(READ)}")
    for number, step in enumerate(found.steps):
        if step.step_id != number + 1:
            raise DocumentError(f"steps[{number}].step_id", f"expected {number + 1}, found {step.step_id}")
    extra = (found.extra or {}).get(KEY)
    if not isinstance(extra, dict):
        raise DocumentError(f"extra.{KEY}", "missing: it contains the task and how the episode ended")
    instruction, first, agents = _parts(found.steps)
    pages = [_page(first, "steps[1]")] + [_page(step, f"steps[{at}]") for at, step in agents]
    plain = {
        **extra,
        "format": FORMAT,
        "instruction": instruction,
        "steps": [
            msgspec.to_builtins(_step(step, pages[number], key=f"steps[{at}]"))
            for number, (at, step) in enumerate(agents)
        ],
        "final_page": msgspec.to_builtins(pages[-1]),
    }
    try:
        return decoded(msgspec.json.encode(plain), EpisodeDocument)
    except DocumentError as wrong:
        raise DocumentError(f"extra.{KEY}", str(wrong)) from wrong


def _parts(steps: list[Step]) -> tuple[str, Step, list[tuple[int, Step]]]:
    """Split steps into the instruction, the step with the first page, and the agent's steps with their index."""
    if len(steps) < 3 or steps[0].source != "user" or not isinstance(steps[0].message, str):
        raise DocumentError(
            "steps", "expected the user's instruction, the first page, and steps of the agent"
        )
    if steps[1].source != "system" or steps[1].observation is None:
        raise DocumentError("steps[1]", "expected a system step whose observation is the first page")
    agents = list(enumerate(steps))[2:]
    other = next((at for at, step in agents if step.source != "agent"), None)
    if other is not None:
        raise DocumentError(
            f"steps[{other}].source", f"{steps[other].source!r}: only the agent may act after the first page"
        )
    return steps[0].message, steps[1], agents


def _result(step: Step, key: str) -> ObservationResult:
    if step.observation is None or len(step.observation.results) != 1:
        raise DocumentError(f"{key}.observation", "expected one result: the page that this led to")
    return step.observation.results[0]


def _page(step: Step, key: str) -> Page | None:
    extra = _result(step, key).extra or {}
    if "missing" in extra:
        return None
    at = f"{key}.observation.results[0].extra.page"
    if "page" not in extra:
        raise DocumentError(at, "missing: the recorded page, which text alone does not contain")
    try:
        return decoded(msgspec.json.encode(extra["page"]), Page)
    except DocumentError as wrong:
        raise DocumentError(at, str(wrong)) from wrong


def _step(step: Step, page: Page | None, *, key: str) -> DocumentStep:
    calls = step.tool_calls or []
    if len(calls) != 1:
        raise DocumentError(f"{key}.tool_calls", f"a step has one action, found {len(calls)}")
    try:
        action = action_of(calls[0].function_name, calls[0].arguments)
    except ValueError as error:
        raise DocumentError(f"{key}.tool_calls[0]", str(error)) from error
    extra: dict[str, Any] = step.extra or {}
    return DocumentStep(
        page=page,
        action=action,
        thought=step.reasoning_content or extra.get("thought", ""),
        answer=step.message if isinstance(step.message, str) else "",
        result=extra.get("result", "ok"),
        detail=extra.get("detail", ""),
    )
