"""The episode that a conversation becomes.

An answer is a step, as of an agent of the user's own (`actors.agents`): its page is the messages since the last answer, its
prompt all messages before it by the policy's chat template, its action the whole answer. Token ids, log-probabilities and the
policy version are those of the recorded run where it has them; else the ids are the policy's tokenizer's, the log-probability
is 0 and the version -1. Times of single steps are not known and are 0.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from hindcast.actors.environments.python.world import page_of
from hindcast.actors.environments.snapshot import observe
from hindcast.actors.episodes.recorder import Abandoned, Ended
from hindcast.actors.judges.rules import RuleJudge
from hindcast.app.demonstrations.pending import DemonstratedEpisode, PendingEpisode, request_for
from hindcast.app.imports.conversation import Conversation
from hindcast.app.imports.decoder import DocumentError
from hindcast.app.imports.player import SOURCE, no_wait
from hindcast.core.domain.action import Action
from hindcast.core.domain.arrays import pack_floats, pack_ids
from hindcast.core.domain.observation import Page
from hindcast.core.domain.sampling import Sampling
from hindcast.core.domain.task import Task
from hindcast.core.grammar.answer_parser import parse_form
from hindcast.core.ids import digest_hex
from hindcast.core.prompts.chat_messages import ChatUnreadable, encode_chat
from hindcast.core.prompts.prompt import encode_answer
from hindcast.core.seeds import derive_id
from hindcast.core.settings.schema import Settings
from hindcast.events.catalogue import EpisodeRequested, StepTaken
from hindcast.events.catalogue.curriculum import IMPORTED

INTERRUPTED = "environment_failed"
"""Reason of the end of an episode that failed where it was recorded."""


def request_of_conversation(
    conversation: Conversation, settings: Settings, *, attempt: int = 0
) -> EpisodeRequested:
    """Build the request of a conversation's episode, identified by its content without its place in the group."""
    alone = msgspec.structs.replace(conversation, member=0, group_size=1)
    request = request_for(
        conversation.task,
        settings,
        source=SOURCE,
        drawn=digest_hex(msgspec.json.encode(alone, order="sorted")),
        lease_s=settings.episode_lease_s,
        attempt=attempt,
    )
    grouped = (SOURCE, conversation.group, conversation.task.id, conversation.group_size)
    return msgspec.structs.replace(
        request,
        origin=IMPORTED,
        group=derive_id("group", settings.run.seed, *grouped) if conversation.group else request.group,
        member=conversation.member,
        group_size=conversation.group_size,
    )


async def episode_of(
    conversation: Conversation, settings: Settings, tokenizer: Any, *, attempt: int = 0
) -> DemonstratedEpisode:
    """Convert a conversation to the facts of an episode. Raises DocumentError where the run's settings cannot hold it."""
    actors, task = settings.actors, conversation.task
    if actors.answer_format != "text":
        raise DocumentError(
            "",
            f"answers of this run are actions (actors.answer_format = {actors.answer_format!r}). Import into a run with "
            "actors.answer_format = 'text'",
        )
    request = request_of_conversation(conversation, settings, attempt=attempt)
    held = PendingEpisode(on_wait=no_wait)
    read: list[dict[str, Any]] = []
    page = _page(task, ())
    for index, turn in enumerate(conversation.turns):
        read = [*([] if turn.restarts else read), *turn.new]
        page = _page(task, turn.new)
        prompt_ids: Sequence[int] = turn.prompt_ids
        action_ids: Sequence[int] = turn.action_ids
        logprobs: Sequence[float] = turn.logprobs
        if not (prompt_ids and action_ids):
            prompt_ids = _prompt(tokenizer, read, settings, key=f"answer {index + 1}")
            action_ids, logprobs = encode_answer(tokenizer, turn.text, framing=actors.framing), ()
        if logprobs and len(logprobs) != len(action_ids):
            raise DocumentError(
                f"answer {index + 1}",
                f"it has {len(action_ids)} tokens and {len(logprobs)} log-probabilities",
            )
        action = parse_form(turn.text, "text", page)
        observation = observe(page)
        held.steps.append(
            StepTaken(
                episode=request.episode,
                index=index,
                observation_digest=observation.digest,
                observation=await held.keep(page),
                url=page.url,
                world_ordinal=page.ordinal,
                prompt_ids=pack_ids(prompt_ids),
                action_ids=pack_ids(action_ids),
                logprobs=pack_floats(logprobs or [0.0] * len(action_ids)),
                versions=pack_ids([conversation.version] * len(action_ids)),
                sampling=Sampling(temperature=request.temperature, max_tokens=len(action_ids), seed=0),
                prompt_truncated=False,
                answer=turn.text,
                action=action if isinstance(action, Action) else None,
                result="ok" if isinstance(action, Action) else "parse_failure",
                detail="" if isinstance(action, Action) else action.reason,
                observe_ms=0.0,
                generate_ms=0.0,
                act_ms=0.0,
            )
        )
        read.append(turn.answer)
    last = await held.keep(_page(task, conversation.rest) if conversation.rest else page)
    steps = len(held.steps)
    ended = Ended(
        reason=conversation.reason,
        steps=steps,
        evidence=msgspec.structs.replace(conversation.evidence, final_url=page.url),
        final_observation=last,
        policy_versions=(conversation.version, conversation.version),
        duration_ms=conversation.duration_ms,
    )
    return DemonstratedEpisode(
        request=request,
        instruction=task.instruction,
        renderer=actors.renderer,
        steps=tuple(held.steps),
        ended=Abandoned(reason=INTERRUPTED, detail=conversation.failure, steps=steps)
        if conversation.failure
        else ended,
        judgment=RuleJudge().evaluate(task, ended.evidence),
        blobs=held.kept,
    )


def _page(task: Task, messages: Sequence[Mapping[str, Any]]) -> Page:
    return page_of(f"agent:{task.full_family}", "\n".join(one["content"] for one in messages), ())


def _prompt(
    tokenizer: Any, messages: Sequence[Mapping[str, Any]], settings: Settings, *, key: str
) -> list[int]:
    try:
        found = encode_chat(tokenizer, messages)
    except ChatUnreadable as error:
        raise DocumentError(key, str(error)) from error
    allowed = settings.actors.max_prompt_tokens
    if len(found) > allowed:
        raise DocumentError(
            key,
            f"the messages before it have {len(found)} tokens, {allowed} are allowed. Import into a run with a larger "
            "actors.max_prompt_tokens",
        )
    return found
