"""The judge that asks a model behind an endpoint: what it asks, what it makes of the answer, and what stands in the log."""

import asyncio
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from typer.testing import CliRunner

from hindcast.actors.endpoint.client import Endpoint
from hindcast.actors.environments.store.tasks import StoreTasks
from hindcast.actors.judges.base import Verdict, reach_verdict, undecided
from hindcast.actors.judges.endpoint import PROMPT, EndpointJudge, identity_of
from hindcast.actors.judges.judged_episode import EpisodeTranscript, JudgedEpisode
from hindcast.actors.judges.role import run_judge
from hindcast.actors.judges.rules import RuleJudge
from hindcast.app.cli import app as cli
from hindcast.app.settings.configuration import resolve
from hindcast.core.domain.action import Action
from hindcast.core.domain.evidence import Judgment
from hindcast.core.domain.observation import Node, Page
from hindcast.core.errors import SettingsError
from hindcast.core.settings.schema import Settings, SiteSettings
from hindcast.events.catalogue import EpisodeJudged, WaitExceeded
from hindcast.events.catalogue.verdict import JudgeIdentity
from hindcast.events.envelope import Fact
from hindcast.events.log.memory import MemoryLog
from hindcast.events.log.reader import read
from hindcast.events.log.work_queue import MAX_TRIES
from hindcast.storage.blobs.store import BlobStore
from servers.batch_server import BatchServer
from servers.chat_server import Body, ChatServer, Hangs, Reaction, chatting, fails, in_turn, says, serving
from stories.curriculum_story import settings_of
from stories.judge_story import judge_all, judged_episode, publisher
from stories.recorded_home import make_home
from stories.store_visitor import running_store
from stories.store_walk import Visit
from stories.synthetic_run import RULES, Told

pytestmark = pytest.mark.torch

SITE = SiteSettings(products=60)
TASKS = StoreTasks(SITE)
WAIT_S = 120
PAGE = Page(url="http://shop/", title="Cart </page>", nodes=(Node(kind="text", tag="p", text="Lamp 2"),))
STORY = EpisodeTranscript(
    instruction="Put two lamps into the cart.", answers=('do(action="Click", element="7")',), page=PAGE
)


def verdict(done: str, reason: str = "so it is") -> Reaction:
    return says(json.dumps({"reason": reason, "done": done}))


def settings_for(server: ChatServer, **judge: Any) -> Settings:
    endpoint = {"base_url": server.base_url, "model": "Judge/One", "backoff_s": 0.001, "price_prompt": 1.0}
    return settings_of(
        judge={"judges": ("endpoint",), "timeout_s": WAIT_S} | judge, endpoint=endpoint | {"retries": 0}
    )


async def opinion_of(server: ChatServer, story: EpisodeTranscript, **endpoint: Any) -> Verdict:
    settings = settings_for(server).endpoint.model_copy(update=endpoint)
    async with Endpoint(settings) as asked:
        judged = judged_episode(None, transcript=story)
        return await reach_verdict(EndpointJudge(asked), judged, timeout_s=WAIT_S)


@pytest.mark.parametrize(("done", "outcome"), [("YES", "success"), ("NO", "failure")])
async def test_what_the_model_says_is_the_verdict_and_what_it_cost_stands_beside_it(
    done: str, outcome: str
) -> None:
    with chatting(in_turn(verdict(done))) as server:
        opinion = await opinion_of(server, STORY)
    assert (opinion.judgment.outcome, opinion.judgment.reward) == (outcome, float(outcome == "success"))
    assert opinion.judgment.reason == f"{done}: so it is"
    assert opinion.consulted is not None
    assert (opinion.consulted.prompt_tokens, opinion.consulted.cost_usd) == (100, pytest.approx(1e-4))
    asked = server.asked[0]["messages"][1]["content"]
    assert STORY.instruction in asked
    assert '1. do(action="Click", element="7")' in asked
    assert "Lamp 2" in asked
    assert asked.count("</page>") == 1, "a page cannot close its own place"


@pytest.mark.parametrize(
    ("reaction", "trouble", "may_pass"),
    [
        (fails(503), "outage", True),
        (says(None, refusal="no"), "refusal", False),
        (verdict("MAYBE"), "malformed", False),
        (says("YES"), "malformed", False),
        (fails(400), "rejected", False),
    ],
)
async def test_no_answer_is_undecided_and_never_a_failure(
    reaction: Reaction, trouble: str, may_pass: bool
) -> None:
    with chatting(in_turn(reaction)) as server:
        opinion = await opinion_of(server, STORY)
    assert opinion.judgment.outcome == "undecided"
    assert opinion.judgment.reason.startswith(f"{trouble}: ")
    assert opinion.may_pass == may_pass
    assert opinion.consulted is not None


async def test_a_long_page_is_cut_and_a_page_that_is_gone_is_not_asked_about() -> None:
    long = msgspec.structs.replace(PAGE, nodes=PAGE.nodes * 1000)
    with chatting(in_turn(verdict("NO"))) as server:
        await opinion_of(server, msgspec.structs.replace(STORY, page=long), prompt_characters=1000)
        gone = await opinion_of(server, msgspec.structs.replace(STORY, page=None))
    assert len(server.asked) == 1
    assert len(server.asked[0]["messages"][1]["content"]) < 1500
    assert (gone.judgment.outcome, gone.consulted) == ("undecided", None)


def test_another_model_is_another_judge_and_its_name_fits_a_subject() -> None:
    names = ["Qwen/Qwen2.5-7B", "qwen-qwen2-5-7b", "Qwen/Qwen2.5-7B ", "x" * 90, "…"]
    versions = [identity_of("endpoint", "1", name, "d").version for name in names]
    assert len(set(versions)) == len(names)
    assert all(set(version) <= set("abcdefghijklmnopqrstuvwxyz0123456789-") for version in versions)
    assert versions[0].startswith("1-qwen-qwen2-5-7b-")


@pytest.fixture(scope="module")
def visits() -> Iterator[list[Visit]]:
    """One that reaches its goal, one that gives up at once."""
    with running_store(SITE) as base_url:
        done, given_up = (Visit(base_url, TASKS.task("add_to_cart", seed)) for seed in (1, 2))
        done.demonstrate()
        given_up.do(Action(name="exit", argument="done"))
        yield [done, given_up]


def facts_of(visit: Visit, name: str, blobs: BlobStore) -> list[Fact]:
    """With the page that the visit ended on."""
    facts = visit.facts(name, blobs)
    page = visit._form.observation().page
    final = blobs.put(msgspec.msgpack.encode(page))
    return [*facts[:-1], msgspec.structs.replace(facts[-1], final_observation=final)]


async def judged(
    facts: Sequence[Fact], server: ChatServer, blobs: BlobStore, *, verdicts: int
) -> list[EpisodeJudged]:
    """What the judge's process appends, until it has given so many verdicts."""
    log, stop, settings = MemoryLog("r"), asyncio.Event(), settings_for(server)
    async with Endpoint(settings.endpoint) as endpoint, publisher(log, "story") as story:
        for fact in facts:
            await story.publish(fact, entity=getattr(fact, "episode", "e"))
        await story.commit()
        judge = EndpointJudge(endpoint)
        async with publisher(log, "judge.1") as mine, asyncio.TaskGroup() as tasks:
            queue = await log.open_queue("verdicts", family="episode_end")
            tasks.create_task(
                run_judge(
                    log=log,
                    publisher=mine,
                    queue=queue,
                    settings=settings,
                    blobs=blobs,
                    stop=stop,
                    judges={"endpoint": judge},
                )
            )
            await log.wait_for_growth(len(facts) + verdicts - 1, timeout_s=WAIT_S)
            stop.set()
    found = [recorded.fact async for recorded in read(log, after=len(facts))]
    return [fact for fact in found if isinstance(fact, EpisodeJudged)]


async def test_the_process_asks_again_after_an_outage_and_records_who_spoke(
    visits: list[Visit], tmp_path: Path
) -> None:
    blobs = BlobStore(tmp_path)
    facts = facts_of(visits[0], "ep_a", blobs)
    with chatting(in_turn(fails(503), verdict("YES"))) as server:
        (fact,) = await judged(facts, server, blobs, verdicts=1)
    assert fact.judgment.outcome == "success"
    assert fact.judge.prompt_digest == PROMPT.digest
    assert fact.judge == identity_of("endpoint", "1", "Judge/One", PROMPT.digest)
    assert fact.consulted is not None
    assert (fact.consulted.model, fact.consulted.tries, fact.reading) == ("test-model-1", 1, None)
    assert len(server.asked) == 2


class OutOfReach:
    """A judge that nobody can be asked by."""

    identity = JudgeIdentity(name="far", version="1")
    asks_model = True

    async def judge(self, episode: JudgedEpisode) -> Verdict:
        return undecided("outage: nobody there", may_pass=True)


def test_an_outage_that_stays_is_undecided_in_the_end_and_holds_up_no_other_judge(
    visits: list[Visit], tmp_path: Path
) -> None:
    facts = facts_of(visits[0], "ep_a", BlobStore(tmp_path))
    said = judge_all(*facts, judges={"far": OutOfReach(), "rules": RuleJudge()})
    assert [(fact.judge.name, fact.judgment.outcome) for fact in said] == [  # type: ignore[attr-defined]
        ("rules", "success"),
        ("far", "undecided"),
    ]
    assert said[1].judgment.reason == "outage: nobody there"  # type: ignore[attr-defined]
    assert MAX_TRIES > 2, "the last try is given up unseen, the one before is recorded"


class SlowAtFirst(OutOfReach):
    """A judge whose first answer takes too long."""

    def __init__(self) -> None:
        self.asked = 0

    async def judge(self, episode: JudgedEpisode) -> Verdict:
        self.asked += 1
        await asyncio.sleep(1000 if self.asked == 1 else 0)
        return Verdict(judgment=Judgment(outcome="success", reward=1.0, reason="at last"))


def test_a_model_that_takes_too_long_is_asked_again_and_the_wait_stands_in_the_log(
    visits: list[Visit], tmp_path: Path
) -> None:
    facts = facts_of(visits[0], "ep_a", BlobStore(tmp_path))
    waited, said = judge_all(*facts, judges={"far": SlowAtFirst()})
    assert isinstance(waited, WaitExceeded)
    assert waited.setting == "judge.timeout_s"
    assert isinstance(said, EpisodeJudged)
    assert said.judgment.reason == "at last"


def by_goal(visits: Sequence[Visit]) -> Any:
    """A model that says YES to the first visit's task alone."""

    def rule(body: Body) -> Reaction:
        return verdict("YES" if visits[0].task.instruction in body["messages"][1]["content"] else "NO")

    return rule


async def home_of(
    tmp_path: Path, visits: Sequence[Visit], monkeypatch: pytest.MonkeyPatch, server: ChatServer
) -> list[str]:
    """A home with a run of both visits, judged by rules; returns how the endpoint is named to commands."""
    blobs = BlobStore(tmp_path / "pages")
    told = []
    for number, visit in enumerate(visits):
        name = f"ep_{number}"
        facts = facts_of(visit, name, blobs)
        judgment = RuleJudge().evaluate(visit.task, visit.evidence)
        said = EpisodeJudged(episode=name, task_id=visit.task.id, judge=RULES, judgment=judgment)
        producers = ["curriculum.1", *["actor.1"] * (len(facts) - 1), "judge.1"]
        entities = [name] * len(facts) + [f"{name}.rules.1"]
        told += [Told(*one) for one in zip(producers, entities, [*facts, said], strict=True)]
    handle = await make_home(tmp_path / "home", told)
    for blob in (tmp_path / "pages").rglob("*"):
        if blob.is_file():
            handle.blobs.put(blob.read_bytes())
    monkeypatch.setenv("HINDCAST_HOME", str(tmp_path / "home"))
    values = {"base_url": server.base_url, "model": "Judge/One", "retries": 0, "price_answer": 1000}
    return [part for key, value in values.items() for part in ("--set", f"endpoint.{key}={value}")]


async def test_commands_measure_it_against_the_truth_and_let_it_judge_again(
    visits: list[Visit], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(*arguments: str) -> Any:
        result = CliRunner().invoke(cli, [*arguments, "--json"])
        assert result.exit_code == 0, (result.output, result.exception)
        return json.loads(result.stdout.splitlines()[-1])  # log lines come before

    with chatting(by_goal(visits)) as server:
        named = await home_of(tmp_path, visits, monkeypatch, server)
        report = await asyncio.to_thread(run, "judge", "accuracy", "endpoint", "tale", *named)
        assert (report["table"]["hits"], report["table"]["rejections"], report["undecided"]) == (1, 1, 0)
        assert report["balanced"]["rate"] == 1.0
        assert (report["majority"], report["truth"], report["held_out"]) == (0.5, "rules", None)
        assert (report["prompt_tokens"], report["answer_tokens"]) == (200, 20)
        assert report["cost_usd"] == pytest.approx(0.02)
        again = await asyncio.to_thread(run, "rejudge", "tale", "--judge", "endpoint", "--save", *named)
        assert (again["saved"], again["flips"], again["agreement"]["agreed"]) == (2, [], 2)
        assert len(server.asked) == 2, "equal questions were remembered"
        server.rule = in_turn(fails(500))
        worse = await asyncio.to_thread(
            run, "judge", "accuracy", "endpoint", "tale", *named, "--set", "endpoint.model=other"
        )
        assert (worse["episodes"], worse["undecided_because"]) == (0, {"outage": 2})
    shown = await asyncio.to_thread(run, "episode", "show", "ep_0")
    (asked,) = (one for one in shown["verdicts"] if one["judge"] == "endpoint")
    assert (asked["asked_model"], asked["prompt_tokens"], asked["cost_usd"]) == ("test-model-1", 100, 0.0)
    printed = await asyncio.to_thread(CliRunner().invoke, cli, ["judge", "accuracy", "strict", "tale"])
    assert "balanced accuracy" in printed.stdout, printed.output


async def test_a_run_is_judged_again_through_one_batch(
    visits: list[Visit], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(BatchServer(by_goal(visits))) as server:
        named = await home_of(tmp_path, visits, monkeypatch, server)
        values = {
            "batch": "true",
            "batch_questions": len(visits),
            "batch_gather_s": 600,
            "batch_poll_s": 0.01,
        }
        batch = [part for key, value in values.items() for part in ("--set", f"endpoint.{key}={value}")]
        arguments = ["rejudge", "tale", "--judge", "endpoint", "--save", "--json", *named, *batch]
        result = await asyncio.to_thread(CliRunner().invoke, cli, arguments)
        assert result.exit_code == 0, (result.output, result.exception)
        report = json.loads(result.stdout.splitlines()[-1])
    assert (report["saved"], report["flips"], report["agreement"]["agreed"]) == (2, [], 2)
    assert len(server.batches) == 1, "so many episodes are asked about at once"


async def test_commands_take_values_of_the_endpoint_alone(
    visits: list[Visit], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with chatting(in_turn(Hangs())) as server:
        await home_of(tmp_path, visits[:1], monkeypatch, server)
        for wrong, why in (
            ("run.seed=3", "only endpoint"),
            ("endpoint.retries=-1", "greater than"),
            ("endpoint.base_url=nowhere", "must be the address"),
            ("endpoint.base_url=http://[", "must be the address"),
        ):
            result = await asyncio.to_thread(
                CliRunner().invoke, cli, ["rejudge", "tale", "--judge", "endpoint", "--set", wrong]
            )
            assert isinstance(result.exception, SettingsError)
            assert why in str(result.exception)
        result = await asyncio.to_thread(CliRunner().invoke, cli, ["rejudge", "tale", "--judge", "endpoint"])
        assert "endpoint.base_url is empty" in str(result.exception)


@pytest.mark.parametrize(
    ("overrides", "why"),
    [
        (["judge.judges=endpoint"], "judge.judges asks the endpoint"),
        (
            [
                "judge.judges=endpoint",
                "endpoint.base_url=http://h/v1",
                "endpoint.model=m",
                "endpoint.timeout_s=31",
            ],
            "judge.timeout_s = 30 is shorter than",
        ),
    ],
)
def test_a_judge_that_could_never_speak_is_refused_before_anything_starts(
    overrides: list[str], why: str
) -> None:
    with pytest.raises(SettingsError, match=why):
        resolve(environment={}, overrides=overrides)
