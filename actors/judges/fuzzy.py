"""The judge `fuzzy`: the rules decide, and a model behind an endpoint compares wordings that the rules leave open.

It decides WebArena's `fuzzy_match`. Only a wholly right answer counts. The verdict holds the question, the verbatim
reply and the cost. The judge's version combines rules, prompt and model. Environments without such questions are judged
by the rules alone.

Invariant "Verdicts are facts about a judge": an unreachable model leaves the episode undecided.
"""

from collections.abc import Sequence
from typing import Literal

import msgspec

from hindcast.actors.endpoint.client import Endpoint
from hindcast.actors.endpoint.completion import Answered, Unanswered
from hindcast.actors.endpoint.prompts import json_in, prompt_text, schema_of
from hindcast.actors.environments.base import Question
from hindcast.actors.environments.plugin import find_environment
from hindcast.actors.judges.base import Verdict, undecided
from hindcast.actors.judges.endpoint import identity_of
from hindcast.actors.judges.judged_episode import JudgedEpisode
from hindcast.actors.judges.rules import RULES, RuleJudge
from hindcast.core.ids import digest_hex
from hindcast.core.settings.endpoint import FUZZY
from hindcast.core.structs import decode_json
from hindcast.events.catalogue.consulted import Consulted

Match = Literal["correct", "incorrect", "partially"]

PROMPT = prompt_text("fuzzy-1")


class _Said(msgspec.Struct, forbid_unknown_fields=True):
    reason: str
    match: Match


SCHEMA = schema_of(_Said, name="match")
RIGHT = "correct"


async def ask_fuzzy_match(
    endpoint: Endpoint, *, question: str, reference: str, answer: str
) -> Answered[Match] | Unanswered:
    """Ask whether `answer` answers `question` as `reference` does (WebArena, arXiv 2307.13854, `fuzzy_match`)."""
    messages = PROMPT.filled({"question": question, "reference": reference, "answer": answer})
    return await endpoint.ask(messages, _parse_match, schema=SCHEMA)


def _parse_match(text: str) -> Match:
    return decode_json(json_in(text), _Said).match


class FuzzyJudge(RuleJudge):
    """Judges by the rules, and asks a model what they leave open."""

    asks_model = True

    def __init__(self, endpoint: Endpoint) -> None:
        super().__init__()
        version = f"{RULES.version}-{PROMPT.version}"
        self.identity = identity_of(FUZZY, version, endpoint.settings.model, PROMPT.digest)
        self._endpoint = endpoint

    async def judge(self, episode: JudgedEpisode) -> Verdict:
        """See `actors.judges.base.Judge`."""
        task, evidence = episode.task, episode.evidence
        environment = find_environment(task.environment)
        questions = environment.questions(task, evidence)
        if not questions:
            return await super().judge(episode)
        answers: dict[Question, bool] = {}
        consulted: list[Consulted] = []
        for question in questions:
            answer = await ask_fuzzy_match(
                self._endpoint,
                question=question.words,
                reference=question.reference,
                answer=question.answer,
            )
            consulted.append(answer.consulted)
            if isinstance(answer, Unanswered):
                reason = f"{answer.trouble}: {answer.reason}"
                return undecided(reason, consulted=merge_consulted(consulted), may_pass=answer.may_pass)
            answers[question] = answer.value == RIGHT
            if not answers[question]:
                break  # the score is a product
        return Verdict(
            judgment=environment.evaluate(task, evidence, answers), consulted=merge_consulted(consulted)
        )


def merge_consulted(consulted: Sequence[Consulted]) -> Consulted:
    """Merge several consultations into one: total cost, the answers line by line, a digest of their digests."""
    if len(consulted) == 1:
        return consulted[0]
    return Consulted(
        model=consulted[-1].model,
        request=digest_hex("".join(consultation.request for consultation in consulted).encode()),
        answer="\n".join(consultation.answer for consultation in consulted),
        prompt_tokens=sum(consultation.prompt_tokens for consultation in consulted),
        answer_tokens=sum(consultation.answer_tokens for consultation in consulted),
        cost_usd=sum(consultation.cost_usd for consultation in consulted),
        tries=sum(consultation.tries for consultation in consulted),
    )
