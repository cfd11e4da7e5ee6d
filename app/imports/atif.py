"""Converts an ATIF trajectory into an episode document: the inverse of `app.exports.atif`.

What a demonstration needs and ATIF lacks is in `extra`, as our export writes it: the page of each observation
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
    """The document. Raises DocumentError, naming the key."""
    found = decoded(content, Trajectory)
    if found.schema_version not in READ:
        raise DocumentError("schema_version", f"{found.schema_version!r} is none of {', '.join(READ)}")
    for number, step in enumerate(found.steps):
        if step.step_id != number + 1:
            raise DocumentError(f"steps[{number}].step_id", f"{number + 1} is due, not {step.step_id}")
    beside = (found.extra or {}).get(KEY)
    if not isinstance(beside, dict):
        raise DocumentError(f"extra.{KEY}", "missing: it says which task this is, and how it ended")
    instruction, first, agents = _parts(found.steps)
    pages = [_page(first, "steps[1]")] + [_page(step, f"steps[{at}]") for at, step in agents]
    plain = {
        **beside,
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
    """The instruction, the step that shows the first page, and what the agent did, with its place."""
    if len(steps) < 3 or steps[0].source != "user" or not isinstance(steps[0].message, str):
        raise DocumentError(
            "steps", "expected the user's instruction, the first page, and what the agent did"
        )
    if steps[1].source != "system" or steps[1].observation is None:
        raise DocumentError("steps[1]", "expected a system step whose observation is the first page")
    agents = list(enumerate(steps))[2:]
    other = next((at for at, step in agents if step.source != "agent"), None)
    if other is not None:
        raise DocumentError(
            f"steps[{other}].source", f"{steps[other].source!r}: nobody but the agent has a say then"
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
        raise DocumentError(at, "missing: the page as it was recorded, which text alone does not give")
    try:
        return decoded(msgspec.json.encode(extra["page"]), Page)
    except DocumentError as wrong:
        raise DocumentError(at, str(wrong)) from wrong


def _step(step: Step, page: Page | None, *, key: str) -> DocumentStep:
    calls = step.tool_calls or []
    if len(calls) != 1:
        raise DocumentError(f"{key}.tool_calls", f"a step is one action, not {len(calls)}")
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
