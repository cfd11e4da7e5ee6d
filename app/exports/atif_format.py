"""ATIF, Harbor's Agent Trajectory Interchange Format, version 1.8: the part that represents an episode.

Fields are those of the published models (RFC 0001 of harbor-framework/harbor; package harbor 0.25,
`harbor.models.trajectories`). Not supported, and refused by an import: subagents, continuations, audio.
"""

from typing import Any, Literal

import msgspec

VERSION: Literal["ATIF-v1.8"] = "ATIF-v1.8"
READ = tuple(f"ATIF-v1.{minor}" for minor in range(9))
"""Versions that an import reads: later ones only added fields."""


class Atif(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Base: unknown fields are refused, and fields at their default are omitted."""


class Agent(Atif, frozen=True, kw_only=True):
    """The agent that acted."""

    name: str
    version: str
    model_name: str | None = None
    tool_definitions: list[dict[str, Any]] | None = None
    """In the form of OpenAI's function calls."""
    extra: dict[str, Any] | None = None


class ToolCall(Atif, frozen=True, kw_only=True):
    """One action."""

    tool_call_id: str
    function_name: str
    arguments: dict[str, Any]
    extra: dict[str, Any] | None = None


class ImageSource(Atif, frozen=True, kw_only=True):
    """An image file next to the document."""

    media_type: Literal["image/jpeg", "image/png", "image/gif", "image/webp"]
    path: str


class ContentPart(Atif, frozen=True, kw_only=True):
    """A text, or an image."""

    type: Literal["text", "image"]
    text: str | None = None
    source: ImageSource | None = None


class ObservationResult(Atif, frozen=True, kw_only=True):
    """Result of an action; without `source_call_id`, of no action."""

    source_call_id: str | None = None
    content: str | list[ContentPart] | None = None
    extra: dict[str, Any] | None = None


class Observation(Atif, frozen=True, kw_only=True):
    """Observation after a step."""

    results: list[ObservationResult]


class Metrics(Atif, frozen=True, kw_only=True):
    """Metrics of one model call."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cached_tokens: int | None = None
    cost_usd: float | None = None
    prompt_token_ids: list[int] | None = None
    completion_token_ids: list[int] | None = None
    logprobs: list[float] | None = None
    extra: dict[str, Any] | None = None


class Step(Atif, frozen=True, kw_only=True):
    """One turn."""

    step_id: int
    """1, 2, 3 …"""
    source: Literal["system", "user", "agent"]
    message: str | list[ContentPart]
    timestamp: str | None = None
    """ISO 8601."""
    model_name: str | None = None
    reasoning_effort: str | float | None = None
    reasoning_content: str | None = None
    tool_calls: list[ToolCall] | None = None
    observation: Observation | None = None
    metrics: Metrics | None = None
    is_copied_context: bool | None = None
    llm_call_count: int | None = None
    """0: no model was called; then there are neither metrics nor reasoning."""
    extra: dict[str, Any] | None = None


class FinalMetrics(Atif, frozen=True, kw_only=True):
    """Metrics of the whole trajectory."""

    total_prompt_tokens: int | None = None
    total_completion_tokens: int | None = None
    total_cached_tokens: int | None = None
    total_cost_usd: float | None = None
    total_steps: int | None = None
    extra: dict[str, Any] | None = None


class Trajectory(Atif, frozen=True, kw_only=True):
    """The document."""

    schema_version: str
    agent: Agent
    steps: list[Step]
    session_id: str | None = None
    trajectory_id: str | None = None
    notes: str | None = None
    final_metrics: FinalMetrics | None = None
    extra: dict[str, Any] | None = None
