"""The judge that asks an endpoint what the rules leave open: what it asks, what it makes of it, what stands in the log."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from hindcast.actors.endpoint.client import Endpoint
from hindcast.actors.judges.base import Verdict, reach_verdict, undecided
from hindcast.actors.judges.fuzzy import PROMPT, FuzzyJudge, merge_consulted
from hindcast.actors.judges.judged_episode import JudgedEpisode
from hindcast.app.settings.configuration import resolve
from hindcast.app.system.judges import open_judges
from hindcast.core.domain.evidence import Evidence
from hindcast.core.domain.task import Task
from hindcast.core.errors import SettingsError
from hindcast.core.plugins import plugin_names
from hindcast.core.settings.schema import Settings
from hindcast.events.catalogue import EpisodeJudged
from hindcast.events.catalogue.consulted import Consulted
from hindcast.events.catalogue.verdict import JudgeIdentity
from hindcast.storage.blobs.store import BlobStore
from servers.chat_server import ChatServer, Reaction, chatting, fails, in_turn, says
from stories.curriculum_story import settings_of
from stories.judge_story import EVIDENCE, RULES, TASK, ended, judge_all, judged_episode, requested
from stories.webarena_tasks import only_task, raw_task

WAIT_S = 120
CONSULTED = Consulted(
    model="m", request="a" * 64, answer="yes", prompt_tokens=2, answer_tokens=1, cost_usd=0.5, tries=1
)


def match(word: str) -> Reaction:
    return says(json.dumps({"reason": "so it is", "match": word}))


def settings_for(server: ChatServer) -> Settings:
    endpoint = {"base_url": server.base_url, "model": "Judge/One", "backoff_s": 0.001, "retries": 0}
    judge = {"judges": ("fuzzy",), "timeout_s": WAIT_S}
    return settings_of(endpoint=endpoint | {"remembered": False}, judge=judge)


async def opinion_of(server: ChatServer, task: Task, evidence: Evidence) -> Verdict:
    async with Endpoint(settings_for(server).endpoint) as endpoint:
        return await reach_verdict(FuzzyJudge(endpoint), judged_episode(task, evidence), timeout_s=WAIT_S)


def asking(folder: Path, *, lite: bool = True, **references: Any) -> Task:
    note = references.pop("string_note", "")
    return only_task(folder, raw_task(lite=lite, eval={"reference_answers": references, "string_note": note}))


def answered(text: str) -> Evidence:
    return Evidence(answer=text, final_url="http://forum.test:9999/", probes={})


@pytest.mark.parametrize(
    ("word", "outcome"), [("correct", "success"), ("partially", "failure"), ("incorrect", "failure")]
)
async def test_only_an_answer_that_is_wholly_right_counts(tmp_path: Path, word: str, outcome: str) -> None:
    task = asking(tmp_path, fuzzy_match=["13 min", "by car"])
    with chatting(in_turn(match(word))) as server:
        opinion = await opinion_of(server, task, answered("Thirteen minutes by car"))
    assert opinion.judgment.outcome == outcome
    assert "13 min, by car" in opinion.judgment.reason
    assert opinion.consulted is not None
    assert word in opinion.consulted.answer
    [asked] = server.asked
    question = asked["messages"][1]["content"]
    assert task.instruction in question
    assert "13 min, by car" in question
    assert "thirteen minutes by car" in question


async def test_nobody_is_asked_what_the_rules_can_tell(tmp_path: Path) -> None:
    task = asking(tmp_path, must_include=["Acadia"], fuzzy_match=["ten hours"])
    shop = msgspec.structs.replace(TASK, environment="miniwob")
    with chatting(in_turn(match("correct"))) as server:
        failed = await opinion_of(server, task, answered("Yellowstone, ten hours"))
        exact = await opinion_of(server, asking(tmp_path, exact_match="Yes"), answered("yes"))
        other = await opinion_of(
            server, shop, Evidence(answer=None, final_url="", probes={"done": True, "raw_reward": 1})
        )
    assert [one.judgment.outcome for one in (failed, exact, other)] == ["failure", "success", "success"]
    assert [one.consulted for one in (failed, exact, other)] == [None] * 3
    assert not server.asked


async def test_a_reason_why_it_cannot_be_done_is_asked_about_as_such(tmp_path: Path) -> None:
    task = asking(tmp_path, fuzzy_match="N/A", string_note="orders cannot be added")
    with chatting(in_turn(match("correct"))) as server:
        opinion = await opinion_of(server, task, answered("There is no way to add orders"))
    assert opinion.judgment.outcome == "success"
    assert f"Why can this not be done: {task.instruction}" in server.asked[0]["messages"][1]["content"]


async def test_references_that_are_asked_about_one_at_a_time_end_with_the_first_that_is_wrong(
    tmp_path: Path,
) -> None:
    task = asking(tmp_path, lite=False, fuzzy_match=["13 min", "by car", "on Monday"])
    with chatting(in_turn(match("correct"), match("incorrect"))) as server:
        opinion = await opinion_of(server, task, answered("13 min by bus"))
    assert opinion.judgment.outcome == "failure"
    assert "by car" in opinion.judgment.reason
    assert len(server.asked) == 2
    assert opinion.consulted is not None
    assert (opinion.consulted.prompt_tokens, opinion.consulted.tries) == (200, 2)


@pytest.mark.parametrize(
    ("reaction", "trouble", "may_pass"),
    [
        (fails(503), "outage", True),
        (says(None, refusal="no"), "refusal", False),
        (says("?"), "malformed", False),
    ],
)
async def test_who_cannot_be_asked_leaves_it_undecided(
    tmp_path: Path, reaction: Reaction, trouble: str, may_pass: bool
) -> None:
    with chatting(in_turn(reaction)) as server:
        opinion = await opinion_of(server, asking(tmp_path, fuzzy_match=["5"]), answered("five"))
    assert opinion.judgment.outcome == "undecided"
    assert opinion.judgment.reason.startswith(f"{trouble}: ")
    assert opinion.may_pass == may_pass


async def test_it_is_named_after_rules_prompt_and_model_and_opened_by_name(tmp_path: Path) -> None:
    assert "fuzzy" in plugin_names("judges")
    with chatting(in_turn(match("correct"))) as server:
        async with open_judges(("fuzzy",), settings_for(server), BlobStore(tmp_path)) as judges:
            identity = judges["fuzzy"].identity
    assert (identity.name, identity.prompt_digest) == ("fuzzy", PROMPT.digest)
    assert identity.version.startswith(f"{RULES.identity.version}-1-judge-one-")


def test_it_needs_an_endpoint(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="asks the endpoint, and"):
        resolve(overrides=["judge.judges=fuzzy"], environment={}, folder=tmp_path)


class Asking:
    """Somebody who cannot be asked the first time."""

    identity = JudgeIdentity(name="far", version="1")
    asks_model = True

    def __init__(self) -> None:
        self.tries = 0

    async def judge(self, episode: JudgedEpisode) -> Verdict:
        task, evidence = episode.task, episode.evidence
        self.tries += 1
        if self.tries == 1:
            return undecided("outage: nobody there", may_pass=True)
        return Verdict(judgment=RULES.evaluate(task, evidence), consulted=CONSULTED)


def test_the_process_asks_again_after_an_outage_and_records_what_was_asked() -> None:
    judge = Asking()
    (fact,) = judge_all(requested("ep_a"), ended("ep_a"), judges={"far": judge})
    assert isinstance(fact, EpisodeJudged)
    assert (fact.judgment.outcome, fact.consulted, judge.tries) == ("success", CONSULTED, 2)


async def test_without_a_task_or_evidence_nobody_is_asked() -> None:
    judge = Asking()
    nothing = Evidence(answer=None, final_url="", probes={})
    for task, evidence in ((None, EVIDENCE), (TASK, nothing)):
        opinion = await reach_verdict(judge, judged_episode(task, evidence), timeout_s=WAIT_S)
        assert opinion.judgment.outcome == "undecided"
    assert not judge.tries


def test_several_questions_are_told_as_one() -> None:
    both = merge_consulted(
        [CONSULTED, msgspec.structs.replace(CONSULTED, request="b" * 64, answer="no", model="n")]
    )
    assert (both.answer, both.model, both.tries, both.prompt_tokens, both.cost_usd) == (
        "yes\nno",
        "n",
        2,
        4,
        1.0,
    )
    assert both.request not in ("a" * 64, "b" * 64)
    assert len(both.request) == 64
    assert merge_consulted([CONSULTED]) == CONSULTED
