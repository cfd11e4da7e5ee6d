"""The judge `endpoint`: a model behind an OpenAI-compatible server reads instruction, answers and final page.

It asks the question of WebRL's outcome reward model (arXiv 2411.02337, section 2.3): is the task done, YES or NO. The
prompt is our own, in a versioned file. The verdict holds the prompt's digest, the model, the tokens and the cost. The
judge's version combines the versions of prompt and model, so that another model's verdict is a separate event.

Invariant "Verdicts are facts about a judge": an unreachable server, a refusal or an invalid answer gives undecided.
"""

import re
from typing import Literal

import msgspec

from hindcast.actors.endpoint.client import Endpoint
from hindcast.actors.endpoint.completion import Answered
from hindcast.actors.endpoint.prompts import json_in, prompt_text, schema_of
from hindcast.actors.judges.base import Verdict, undecided
from hindcast.actors.judges.judged_episode import JudgedEpisode
from hindcast.core.domain.evidence import Judgment
from hindcast.core.domain.observation import Page
from hindcast.core.ids import digest_hex
from hindcast.core.prompts.rendering import RENDERERS
from hindcast.core.settings.endpoint import ENDPOINT
from hindcast.core.structs import decode_json
from hindcast.events.catalogue.verdict import JudgeIdentity

PROMPT = prompt_text("verdict-1")
RENDERER = "lines/2"
CUT = "\n… the page goes on"

_OTHER = re.compile(r"[^a-z0-9]+")


class _Said(msgspec.Struct, forbid_unknown_fields=True):
    reason: str
    done: Literal["YES", "NO"]


SCHEMA = schema_of(_Said, name="verdict")


class EndpointJudge:
    """Judges by asking a model behind an endpoint."""

    asks_model = True

    def __init__(self, endpoint: Endpoint) -> None:
        self.identity = identity_of(ENDPOINT, PROMPT.version, endpoint.settings.model, PROMPT.digest)
        self._endpoint = endpoint

    async def judge(self, episode: JudgedEpisode) -> Verdict:
        """Ask whether the agent reached its goal."""
        story = await episode.transcript()
        page = story.final_page()
        answers = "\n".join(f"{number}. {answer.strip()}" for number, answer in enumerate(story.answers, 1))
        messages = PROMPT.filled(
            {
                "task": story.instruction,
                "answers": answers or "none",
                "page": page_text(page, max_characters=self._endpoint.settings.prompt_characters),
            }
        )
        reply = await self._endpoint.ask(messages, _parse_answer, schema=SCHEMA)
        if not isinstance(reply, Answered):
            reason = f"{reply.trouble}: {reply.reason}"
            return undecided(reason, consulted=reply.consulted, may_pass=reply.may_pass)
        success = reply.value.done == "YES"
        judgment = Judgment(
            outcome="success" if success else "failure",
            reward=float(success),
            reason=f"{reply.value.done}: {reply.value.reason}",
        )
        return Verdict(judgment=judgment, consulted=reply.consulted)


def _parse_answer(text: str) -> _Said:
    return decode_json(json_in(text), _Said)


def page_text(page: Page, *, max_characters: int) -> str:
    """Render a page for a question, cut to `max_characters`, with a note that it is cut."""
    text = RENDERERS[RENDERER](page)
    return text if len(text) <= max_characters else text[:max_characters] + CUT


def identity_of(name: str, version: str, model: str, digest: str) -> JudgeIdentity:
    """The identity of a judge or relabeler that asks a model, with a version such as `1-qwen2-5-7b-instruct-8a1f22c0`.

    The version holds the model's name in the characters that a subject allows; the digest at the end keeps names apart.
    """
    spelt = _OTHER.sub("-", model.lower()).strip("-")[:40]
    return JudgeIdentity(
        name=name, version=f"{version}-{spelt}-{digest_hex(model.encode())[:8]}", prompt_digest=digest
    )
