"""`hindcast export --format atif`: a trajectory for each episode, `EPISODE.json`, and its screenshots under `images/`.

    user    the instruction
    system  the page that the episode began on, as the observation
    agent   an answer: its thought, its action as a function call, the page it led to, token ids and log-probabilities

A page is the text that the policy read. Its recorded form is in `extra.page` of the observation, so that an import loses
nothing.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from hindcast.app.exports.atif_format import (
    VERSION,
    Agent,
    ContentPart,
    FinalMetrics,
    ImageSource,
    Metrics,
    Observation,
    ObservationResult,
    Step,
    ToolCall,
    Trajectory,
)
from hindcast.app.exports.chat import moment, policy_name
from hindcast.app.exports.document import document_of
from hindcast.app.exports.exporter import EpisodeFile, EpisodeFileWriter, Exporter, ExportSources
from hindcast.app.exports.functions import arguments_of, definitions, function_name
from hindcast.core.domain.arrays import unpack_floats, unpack_ids
from hindcast.core.grammar.answer_parser import split_form
from hindcast.core.plugins import NoOptions
from hindcast.events.catalogue.episode import Screenshot
from hindcast.events.envelope import BlobRef
from hindcast.events.log.episode_assembler import AssembledEpisode, AssembledStep

IMAGES = "images"
KEY = "hindcast"
"""Key in `extra` for what ATIF has no field for."""
FIRST_PAGE = "The page that the episode begins on."


def trajectory_of(played: AssembledEpisode, sources: ExportSources) -> Trajectory:
    """Convert an episode to a trajectory. `images_of` lists its images."""
    steps = played.steps
    seen = [_seen(step.fact.observation, step.fact.url, sources) for step in steps]
    seen.append(_seen(played.ended.final_observation, played.ended.evidence.final_url, sources))
    converted = [
        Step(
            step_id=1,
            source="user",
            message=played.started.instruction,
            timestamp=moment(played.started_ns),
        ),
        Step(
            step_id=2,
            source="system",
            message=FIRST_PAGE,
            observation=Observation(results=[_with_image(seen[0], _before(steps[0] if steps else None))]),
        ),
    ]
    for number, step in enumerate(steps):
        following = steps[number + 1] if number + 1 < len(steps) else None
        picture = (
            _after(step) or _before(following)
            if following
            else _after(step) or _image(played.ended.screenshot)
        )
        converted.append(
            _step(step, _with_image(seen[number + 1], picture), sources, step_id=len(converted) + 1)
        )
    return Trajectory(
        schema_version=VERSION,
        session_id=played.ended.episode,
        trajectory_id=played.ended.episode,
        agent=_agent(played, sources),
        steps=converted,
        final_metrics=FinalMetrics(
            total_prompt_tokens=sum(len(step.fact.prompt_ids) // 4 for step in steps),
            total_completion_tokens=sum(len(step.fact.action_ids) // 4 for step in steps),
            total_steps=len(converted),
        ),
        extra={KEY: _extra_document(played, sources)},
    )


def images_of(played: AssembledEpisode) -> list[BlobRef]:
    """Screenshots that an episode's trajectory references."""
    shots = [step.fact.screenshot for step in played.steps] + [played.ended.screenshot]
    found = [shot.image for shot in shots if shot is not None and shot.image is not None]
    return list(dict.fromkeys(found))


def image_path(image: BlobRef) -> str:
    """Path of an image, relative to the trajectory."""
    return f"{IMAGES}/{image.sha256}.jpg"


def _agent(played: AssembledEpisode, sources: ExportSources) -> Agent:
    settings = sources.origin.settings
    return Agent(
        name="hindcast",
        version=played.code_rev,
        model_name=settings.policy.base,
        tool_definitions=definitions(),
        extra={"renderer": played.started.renderer, "policy_versions": list(played.ended.policy_versions)},
    )


def _extra_document(played: AssembledEpisode, sources: ExportSources) -> dict[str, Any]:
    """Parts of the episode's document that the trajectory itself does not contain."""
    document = msgspec.to_builtins(document_of(played, sources, steps=False))
    return {
        key: value for key, value in document.items() if key not in ("steps", "final_page", "instruction")
    }


def _seen(page: BlobRef | None, url: str, sources: ExportSources) -> ObservationResult:
    found = sources.page(page)
    if found is None:
        why = "this page was not recorded" if page is None else f"page {page.sha256} was deleted"
        return ObservationResult(extra={"url": url, "missing": why})
    return ObservationResult(
        content=sources.text(found), extra={"url": url, "page": msgspec.to_builtins(found)}
    )


def _with_image(seen: ObservationResult, image: BlobRef | None) -> ObservationResult:
    if image is None:
        return seen
    picture = ContentPart(type="image", source=ImageSource(media_type="image/jpeg", path=image_path(image)))
    text = [ContentPart(type="text", text=seen.content)] if isinstance(seen.content, str) else []
    return msgspec.structs.replace(seen, content=[*text, picture])


def _image(shot: Screenshot | None) -> BlobRef | None:
    return None if shot is None else shot.image


def _before(step: AssembledStep | None) -> BlobRef | None:
    shot = None if step is None else step.fact.screenshot
    return shot.image if shot is not None and shot.when == "before" else None


def _after(step: AssembledStep) -> BlobRef | None:
    shot = step.fact.screenshot
    return shot.image if shot is not None and shot.when == "after" else None


def _step(step: AssembledStep, led_to: ObservationResult, sources: ExportSources, *, step_id: int) -> Step:
    fact = step.fact
    thought, answer = split_form(fact.answer)
    policy = policy_name(fact, sources.origin.settings.policy.base)
    call = f"step_{fact.index}"
    calls = (
        None
        if fact.action is None
        else [
            ToolCall(
                tool_call_id=call,
                function_name=function_name(fact.action.name),
                arguments=arguments_of(fact.action),
            )
        ]
    )
    extra: dict[str, Any] = {"position": step.position, "result": fact.result}
    if fact.detail:
        extra["detail"] = fact.detail
    if thought and policy is None:  # ATIF allows reasoning only if a model was called
        extra["thought"] = thought
    return Step(
        step_id=step_id,
        source="agent",
        message=answer,
        timestamp=moment(step.occurred_ns),
        model_name=policy,
        reasoning_content=thought if thought and policy else None,
        tool_calls=calls,
        observation=Observation(
            results=[msgspec.structs.replace(led_to, source_call_id=call if calls else None)]
        ),
        metrics=_metrics(step) if policy else None,
        llm_call_count=int(policy is not None),
        extra=extra,
    )


def _metrics(step: AssembledStep) -> Metrics:
    fact = step.fact
    prompt, answer = unpack_ids(fact.prompt_ids).tolist(), unpack_ids(fact.action_ids).tolist()
    return Metrics(
        prompt_tokens=len(prompt),
        completion_tokens=len(answer),
        prompt_token_ids=prompt,
        completion_token_ids=answer,
        logprobs=unpack_floats(fact.logprobs).tolist(),
        extra={
            "policy_versions": unpack_ids(fact.versions).tolist(),
            "temperature": fact.sampling.temperature,
            "generate_ms": fact.generate_ms,
        },
    )


class AtifWriter(EpisodeFileWriter):
    """Writes trajectories and their images."""

    def __init__(self, folder: Path, sources: ExportSources, _: NoOptions) -> None:
        super().__init__(folder, sources, FILE)
        self._images = 0

    def episode(self, played: AssembledEpisode) -> None:
        """Write a trajectory and its images."""
        super().episode(played)
        for image in images_of(played):
            file = self.folder / image_path(image)
            content = None if file.exists() else self.sources.content(image)
            if content is not None:
                file.parent.mkdir(exist_ok=True)
                file.write_bytes(content)
                self._images += 1

    def close(self, log_digest: str) -> Mapping[str, int]:
        """Return the numbers of episodes and images."""
        return {**super().close(log_digest), "images": self._images}


FILE = EpisodeFile(
    suffix="json",
    media_type="application/json",
    content=lambda played, sources: msgspec.json.encode(trajectory_of(played, sources)),
)
EXPORTER = Exporter(
    writes="a trajectory in Harbor's Agent Trajectory Interchange Format for each episode, with its images",
    episode_file=FILE,
    writer=AtifWriter,
)
