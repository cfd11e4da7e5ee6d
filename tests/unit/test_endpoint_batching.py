"""Questions that go through a server's Batch API: asked together, waited for across restarts, each with its own trouble."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from hindcast.actors.endpoint.answer_cache import AnswerCache
from hindcast.actors.endpoint.batch_files import BatchFiles
from hindcast.actors.endpoint.client import BATCHES, Endpoint
from hindcast.actors.endpoint.completion import Answered, Message, Unanswered
from hindcast.actors.episodes.time_limit import limited
from hindcast.app.settings.configuration import resolve
from hindcast.core.errors import SettingsError
from hindcast.core.settings.endpoint import EndpointSettings
from servers.batch_server import BatchServer
from servers.chat_server import Body, Drops, Reaction, fails, says, serving

Answer = Answered[int] | Unanswered


def number_rule(body: Body) -> Reaction:
    """Says the number back that stands in the question; what is below 0 goes wrong in a way of its own."""
    said = body["messages"][-1]["content"]
    if "Answer again" in said:
        return says("7")
    match int(said):
        case -1:
            return says("no number")
        case -2:
            return says(None, refusal="I would rather not")
        case -3:
            return fails(429)
        case -4:
            return Drops()
    return says(said)


def endpoint_of(
    server: BatchServer, home: Path, *, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep, **own: Any
) -> Endpoint:
    quick: dict[str, Any] = {
        "batch": True,
        "batch_gather_s": 0.05,
        "batch_poll_s": 0.01,
        "backoff_s": 0.001,
        "retries": 1,
        "price_prompt": 1.0,
        "price_answer": 10.0,
    }
    settings = EndpointSettings(base_url=server.base_url, model="asked-for", **(quick | own))
    return Endpoint(settings, memory=home, environment={}, sleep=sleep)


async def ask(endpoint: Endpoint, *numbers: int) -> list[Answer]:
    return await asyncio.gather(*(endpoint.ask([Message("user", str(number))], int) for number in numbers))


def values(answers: list[Answer]) -> list[Any]:
    return [answer.value if isinstance(answer, Answered) else answer.trouble for answer in answers]


def kept(home: Path) -> list[Path]:
    return list((home / BATCHES).glob("*"))


async def test_questions_go_out_together_and_each_answer_has_its_own_cost(tmp_path: Path) -> None:
    with serving(BatchServer(number_rule)) as server:
        async with endpoint_of(server, tmp_path, batch_gather_s=600, batch_questions=3) as endpoint:
            answers = await ask(endpoint, 1, 2, 3)
            again = await ask(endpoint, 3)
    assert values(answers) == [1, 2, 3]
    assert len(server.batches) == 1, "a batch is full with so many, and nobody waits for more"
    for answer in answers:
        said = answer.consulted
        assert (said.prompt_tokens, said.answer_tokens, said.tries) == (100, 10, 1)
        assert said.cost_usd == pytest.approx(0.5 * (100 * 1e-6 + 10 * 10e-6)), "half the price"
    assert (values(again), again[0].consulted.tries, again[0].consulted.cost_usd) == ([3], 0, 0.0)
    assert kept(tmp_path) == [], "what is remembered needs no batch any more"


async def test_each_question_of_a_batch_fails_by_itself(tmp_path: Path) -> None:
    with serving(BatchServer(number_rule)) as server:
        async with endpoint_of(server, tmp_path, batch_gather_s=600, batch_questions=4) as endpoint:
            answers = await ask(endpoint, 5, -2, -3, -4)
        async with endpoint_of(server, tmp_path) as endpoint:
            later = await ask(endpoint, -3)
    assert values(answers) == [5, "refusal", "outage", "outage"]
    assert "batch_expired" in answers[3].reason  # type: ignore[union-attr]
    assert values(later) == ["outage"]
    assert len(server.batches) == 2, "what came to nothing is sent anew when it is asked again"
    assert kept(tmp_path) == []


async def test_an_answer_without_its_form_is_asked_for_once_more_in_another_batch(tmp_path: Path) -> None:
    with serving(BatchServer(number_rule)) as server:
        async with endpoint_of(server, tmp_path) as endpoint:
            answers = await ask(endpoint, -1)
    assert values(answers) == [7]
    assert (answers[0].consulted.tries, answers[0].consulted.prompt_tokens) == (2, 200)
    assert len(server.batches) == 2
    assert kept(tmp_path) == []


async def interrupted(server: BatchServer, home: Path, *numbers: int) -> None:
    """Ask, and end while the batch is under way."""
    async with endpoint_of(server, home, batch_gather_s=600, batch_questions=len(numbers)) as endpoint:
        asking = asyncio.ensure_future(ask(endpoint, *numbers))
        assert await asyncio.to_thread(server.polled.wait, 60)
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)


async def test_a_restart_collects_what_was_sent_and_sends_nothing_again(tmp_path: Path) -> None:
    with serving(BatchServer(number_rule)) as server:
        server.finish = False
        await interrupted(server, tmp_path, 1, 2)
        assert len(kept(tmp_path)) == 1
        server.finish = True
        async with endpoint_of(server, tmp_path) as endpoint:
            first = await ask(endpoint, 2)
            assert len(kept(tmp_path)) == 1, "the other one was not asked for yet"
            second = await ask(endpoint, 1)
    assert values(first + second) == [2, 1]
    assert [answer.consulted.tries for answer in first + second] == [1, 1], "both are paid for"
    assert len(server.batches) == 1
    assert kept(tmp_path) == []


async def test_whoever_asks_for_others_too_may_stop_waiting(tmp_path: Path) -> None:
    """A batch is begun by the first who asks, under a limit of time that is none of the others' business."""

    async def patient() -> list[Answer]:
        async with limited(600):
            return await ask(endpoint, 1)

    with serving(BatchServer(number_rule)) as server:
        server.finish = False
        async with endpoint_of(server, tmp_path, batch_gather_s=600, batch_questions=1) as endpoint:
            first = asyncio.ensure_future(patient())
            assert await asyncio.to_thread(server.polled.wait, 60)
            second = asyncio.ensure_future(ask(endpoint, 1))
            first.cancel()
            await asyncio.wait({first})
            assert first.cancelled()
            server.finish = True
            assert values(await second) == [1]
    assert len(server.batches) == 1


async def test_an_error_while_a_batch_is_under_way_comes_through_as_it_is(tmp_path: Path) -> None:
    asked: list[asyncio.Future[list[Answer]]] = []

    async def failing() -> None:
        async with endpoint_of(server, tmp_path, batch_questions=1) as endpoint:
            asked.append(asyncio.ensure_future(ask(endpoint, 1)))
            assert await asyncio.to_thread(server.polled.wait, 60)
            raise KeyError("mine")

    with serving(BatchServer(number_rule)) as server:
        server.finish = False
        with pytest.raises(KeyError, match="mine"):
            await failing()
        asked[0].cancel()
        await asyncio.wait(asked)
    assert len(kept(tmp_path)) == 1


async def test_a_batch_whose_name_was_lost_is_found_among_the_servers(tmp_path: Path) -> None:
    with serving(BatchServer(number_rule)) as server:
        server.forgets_to_say = True
        async with endpoint_of(server, tmp_path, retries=0) as endpoint:
            lost = await ask(endpoint, 1)
        assert values(lost) == ["outage"]
        server.forgets_to_say = False
        async with endpoint_of(server, tmp_path) as endpoint:
            found = await ask(endpoint, 1)
    assert values(found) == [1]
    assert len(server.batches) == 1


async def test_a_batch_that_never_came_to_be_is_sent_after_all(tmp_path: Path) -> None:
    with serving(BatchServer(number_rule)) as server:
        server.forgets_to_say = True
        async with endpoint_of(server, tmp_path, retries=0) as endpoint:
            await ask(endpoint, 1)
        server.forgets_to_say = False
        server.batches.clear()
        async with endpoint_of(server, tmp_path) as endpoint:
            assert values(await ask(endpoint, 1)) == [1]
    assert kept(tmp_path) == []


async def test_a_batch_that_the_server_does_not_take_is_rejected_and_let_go_of(tmp_path: Path) -> None:
    with serving(BatchServer(number_rule)) as server:
        server.refuses = "too large"
        async with endpoint_of(server, tmp_path) as endpoint:
            answers = await ask(endpoint, 1)
        assert values(answers) == ["rejected"]
        assert "too large" in answers[0].reason  # type: ignore[union-attr]
        assert kept(tmp_path) == []


async def test_a_batch_that_takes_too_long_is_an_outage_and_stays_waited_for(tmp_path: Path) -> None:
    with serving(BatchServer(number_rule)) as server:
        server.finish = False
        async with endpoint_of(server, tmp_path, batch_wait_s=0.01) as endpoint:
            late = await ask(endpoint, 1)
            assert values(late) == ["outage"]
            assert "endpoint.batch_wait_s" in late[0].reason  # type: ignore[union-attr]
            server.finish = True
            assert values(await ask(endpoint, 1)) == [1]
    assert len(server.batches) == 1


async def test_a_key_that_is_not_taken_gives_no_batch_up_that_is_under_way(tmp_path: Path) -> None:
    with serving(BatchServer(number_rule)) as server:
        server.finish = False
        await interrupted(server, tmp_path, 1, 2)
        server.takes_key = False
        async with endpoint_of(server, tmp_path) as endpoint:
            assert values(await ask(endpoint, 1, 2)) == ["rejected", "rejected"]
        server.takes_key = server.finish = True
        async with endpoint_of(server, tmp_path) as endpoint:
            assert values(await ask(endpoint, 1, 2)) == [1, 2]
    assert len(server.batches) == 1, "it is paid for once"
    assert kept(tmp_path) == []


@pytest.mark.parametrize("begun", ["in this process", "before a restart", "and its name lost"])
async def test_an_outage_ends_no_wait_for_a_batch(tmp_path: Path, begun: str) -> None:
    with serving(BatchServer(number_rule)) as server:
        if begun == "before a restart":
            server.finish = False
            await interrupted(server, tmp_path, 1)
            server.finish = True
        elif begun == "and its name lost":
            server.forgets_to_say = True
            async with endpoint_of(server, tmp_path, retries=0) as endpoint:
                await ask(endpoint, 1)
            server.forgets_to_say = False
        server.down_for = 25
        async with endpoint_of(server, tmp_path, retries=1) as endpoint:
            assert values(await ask(endpoint, 1)) == [1]
    assert server.down_for == 0
    assert server.sent() == [["1"]], "it is paid for once"
    assert kept(tmp_path) == []


async def test_an_outage_that_outlasts_the_wait_says_so_and_the_batch_stays_kept(tmp_path: Path) -> None:
    with serving(BatchServer(number_rule)) as server:
        server.down_for = 1_000_000
        async with endpoint_of(server, tmp_path, batch_wait_s=0.01) as endpoint:
            (late,) = await ask(endpoint, 1)
            assert values([late]) == ["outage"]
            assert "so after 0.01 s (endpoint.batch_wait_s)" in late.reason  # type: ignore[union-attr]
            server.down_for = 0
        async with endpoint_of(server, tmp_path) as endpoint:
            assert values(await ask(endpoint, 1)) == [1]
    assert server.sent() == [["1"]]


async def test_an_answer_that_cannot_be_read_harms_its_own_question_alone(tmp_path: Path) -> None:
    def written(answer: Any) -> str:
        said = json.loads(answer["response"]["body"]["choices"][0]["message"]["content"])
        if said == 2:
            return json.dumps(answer | {"response": "none"})
        return json.dumps(answer)[: 40 if said == 3 else None]

    with serving(BatchServer(number_rule)) as server:
        server.written = written
        async with endpoint_of(server, tmp_path, batch_questions=3, batch_gather_s=600) as endpoint:
            answers = await ask(endpoint, 1, 2, 3)
        server.written = json.dumps
        assert values(answers) == [1, "outage", "outage"]
        assert "unreadable" in answers[1].reason  # type: ignore[union-attr]
        async with endpoint_of(server, tmp_path) as endpoint:
            assert values(await ask(endpoint, 1, 2, 3)) == [1, 2, 3]
        assert [sorted(asked) for asked in server.sent()] == [["1", "2", "3"], ["2", "3"]]
    assert kept(tmp_path) == []


async def test_two_processes_that_ask_at_once_send_each_question_once(tmp_path: Path) -> None:
    """Locks are of open files: two endpoints of one process are to each other as those of two."""
    with serving(BatchServer(number_rule)) as server:
        async with endpoint_of(server, tmp_path) as one, endpoint_of(server, tmp_path) as other:
            answers = await asyncio.gather(ask(one, 1, 2, 3), ask(other, 2, 3, 4))
        assert [values(said) for said in answers] == [[1, 2, 3], [2, 3, 4]]
        assert sorted(number for asked in server.sent() for number in asked) == ["1", "2", "3", "4"]
    assert kept(tmp_path) == []


async def test_what_another_process_sends_is_not_sent_when_it_is_asked_for_later(tmp_path: Path) -> None:
    with serving(BatchServer(number_rule)) as server:
        server.finish = False
        async with (
            endpoint_of(server, tmp_path, batch_gather_s=600, batch_questions=2) as one,
            endpoint_of(server, tmp_path) as other,
        ):
            batches = other._batches
            assert batches is not None
            first = asyncio.ensure_future(ask(one, 1, 2))
            assert await asyncio.to_thread(server.polled.wait, 60)
            second = asyncio.ensure_future(ask(other, 2))
            while not batches._own_keys:  # noqa: ASYNC110 - no event says that it has found the other's batch
                await asyncio.sleep(0.001)
            third = asyncio.ensure_future(ask(other, 1))
            while asked_of(other) < 2 or batches._gathered:  # noqa: ASYNC110 - nor of this
                await asyncio.sleep(0.001)
            server.finish = True
            answers = await asyncio.gather(first, second, third)
        assert [values(said) for said in answers] == [[1, 2], [2], [1]]
        assert [sorted(asked) for asked in server.sent()] == [["1", "2"]]
    assert kept(tmp_path) == []


async def test_what_another_process_was_answered_meanwhile_is_not_sent(tmp_path: Path) -> None:
    with serving(BatchServer(number_rule)) as server:
        async with (
            endpoint_of(server, tmp_path, batch_gather_s=600, batch_questions=2) as slow,
            endpoint_of(server, tmp_path) as quick,
        ):
            waiting = asyncio.ensure_future(ask(slow, 1))
            while not asked_of(slow):  # noqa: ASYNC110 - no event says that a question waits
                await asyncio.sleep(0.001)
            assert values(await ask(quick, 1)) == [1]
            first, second = await asyncio.gather(waiting, ask(slow, 2))
        assert values(first + second) == [1, 2]
        assert (first[0].consulted.tries, first[0].consulted.cost_usd) == (0, 0.0), "the other one paid"
        assert server.sent() == [["1"], ["2"]]
    assert kept(tmp_path) == []


def asked_of(endpoint: Endpoint) -> int:
    """How many questions wait for a batch."""
    assert endpoint._batches is not None
    return len(endpoint._batches._waiting)


async def test_who_finds_a_batch_that_another_process_is_beginning_waits_for_it(tmp_path: Path) -> None:
    with serving(BatchServer(number_rule)) as server:
        server.forgets_to_say = True  # kept, begun, and its name not written down yet
        async with endpoint_of(server, tmp_path, retries=0) as first:
            await ask(first, 1)
        server.forgets_to_say = False
        (place,) = kept(tmp_path)
        begun, server.batches = server.batches, {}  # nor does the server show it yet
        files = BatchFiles(place.parent, base_url=server.base_url, memory=AnswerCache(None))
        looked = asyncio.Event()

        async def sleep(seconds: float) -> None:
            looked.set()
            await asyncio.sleep(min(seconds, 0.01))

        async with endpoint_of(server, tmp_path, sleep=sleep) as second:
            with files.locked(place.stem) as ours:
                assert ours
                waiting = asyncio.ensure_future(ask(second, 1))
                await asyncio.wait_for(looked.wait(), 60)
                server.batches = begun
                standing = files.load(place.stem)
                assert standing is not None
                standing.batch = next(iter(begun))
                files.write(standing)
                assert not waiting.done()
            assert values(await waiting) == [1]
        assert server.sent() == [["1"]]
    assert kept(tmp_path) == []


async def test_a_question_that_two_processes_wait_for_is_paid_by_one(tmp_path: Path) -> None:
    with serving(BatchServer(number_rule)) as server:
        server.finish = False
        async with (
            endpoint_of(server, tmp_path, batch_gather_s=600, batch_questions=2) as one,
            endpoint_of(server, tmp_path) as other,
        ):
            first = asyncio.ensure_future(ask(one, 1, -2))
            assert await asyncio.to_thread(server.polled.wait, 60)
            second = asyncio.ensure_future(ask(other, 1, -2))
            batches = other._batches
            assert batches is not None
            while len(batches._stored) < 2:  # noqa: ASYNC110 - no event says that it has found the other's batch
                await asyncio.sleep(0.001)
            server.finish = True
            both = await asyncio.gather(first, second)
        assert [values(said) for said in both] == [[1, "refusal"], [1, "refusal"]]
        assert [sorted(asked) for asked in server.sent()] == [["-2", "1"]]
    for two in zip(*both, strict=True):
        assert sorted(said.consulted.tries for said in two) == [0, 1]
        assert sorted(said.consulted.cost_usd > 0 for said in two) == [False, True]
    assert kept(tmp_path) == []


async def test_an_answer_that_is_no_longer_taken_is_asked_for_anew(tmp_path: Path) -> None:
    def other_form(text: str) -> str:
        if text != "one":
            raise ValueError("a word was wanted")
        return text

    with serving(BatchServer(number_rule)) as server:
        async with endpoint_of(server, tmp_path) as endpoint:
            assert values(await ask(endpoint, 1)) == [1]
            server.rule = lambda _: says("one")
            answer = await endpoint.ask([Message("user", "1")], other_form)
            assert isinstance(answer, Answered)
            assert (answer.value, answer.consulted.tries) == ("one", 1)
            again = await endpoint.ask([Message("user", "1")], other_form)
        assert (again.consulted.tries, again.consulted.cost_usd) == (0, 0.0)
        assert server.sent() == [["1"], ["1"]]


async def test_answers_that_can_never_be_read_are_fetched_a_few_times_and_let_go_of(tmp_path: Path) -> None:
    paused: list[float] = []

    async def sleep(seconds: float) -> None:
        paused.append(seconds)

    with serving(BatchServer(number_rule)) as server:
        server.written = lambda _: "<html>"
        async with endpoint_of(server, tmp_path, sleep=sleep) as endpoint:
            (late,) = await ask(endpoint, 1)
        assert values([late]) == ["outage"]
        assert "fetched 4 times and cannot be read" in late.reason  # type: ignore[union-attr]
        assert paused == [0.01, 0.02, 0.04]
        assert kept(tmp_path) == [], "nothing more can be had of it"
        server.written = json.dumps
        async with endpoint_of(server, tmp_path) as endpoint:
            assert values(await ask(endpoint, 1)) == [1]


async def test_a_file_that_cannot_be_let_go_of_keeps_nobody_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails_to_drop(files: BatchFiles, key: str) -> None:
        raise OSError("the disk is gone")

    monkeypatch.setattr(BatchFiles, "drop", fails_to_drop)
    with serving(BatchServer(number_rule)) as server:
        server.refuses = "too large"
        async with endpoint_of(server, tmp_path) as endpoint:
            (refused,) = await ask(endpoint, 1)
            assert values([refused]) == ["rejected"]
            assert "too large" in refused.reason  # type: ignore[union-attr]
            server.refuses = ""
            assert values(await ask(endpoint, 2)) == [2], "and others are asked further"


def test_no_file_of_a_batch_comes_back_that_another_process_let_go_of(tmp_path: Path) -> None:
    one, other = (BatchFiles(tmp_path, base_url="http://h/v1", memory=AnswerCache(None)) for _ in range(2))
    batch = one.create(["a", "b", "c"])
    one.claim(batch, own_keys=())
    assert other.settle(batch.key, {"a"}, last=False) == {"a"}
    assert one.settle(batch.key, {"a", "b"}, last=False) == {"b"}, "the other has settled it"
    (left,) = one.pending()
    assert left.questions == ["c"]
    other.drop(batch.key)
    one.write(batch)
    assert one.settle(batch.key, {"c"}, last=False) == set()
    assert (one.pending(), list(tmp_path.glob("*.json"))) == ([], [])


async def test_a_batch_of_which_nothing_came_troubles_nobody_who_asked(tmp_path: Path) -> None:
    with serving(BatchServer(lambda _: Drops())) as server:
        async with endpoint_of(server, tmp_path, batch_gather_s=600, batch_questions=200) as endpoint:
            answers = await ask(endpoint, *range(200))
    assert set(values(answers)) == {"outage"}
    assert kept(tmp_path) == []


async def test_no_batch_has_more_questions_than_the_settings_say(tmp_path: Path) -> None:
    with serving(BatchServer(number_rule)) as server:
        async with endpoint_of(server, tmp_path, batch_questions=3) as endpoint:
            assert values(await ask(endpoint, *range(40))) == list(range(40))
        sizes = [len(asked) for asked in server.sent()]
    assert max(sizes) == 3
    assert sum(sizes) == 40


def test_batches_need_a_place_that_outlives_the_process() -> None:
    endpoint: list[Any] = ["endpoint.base_url=http://h/v1", "endpoint.model=m", "endpoint.remembered=false"]
    with pytest.raises(SettingsError, match=r"endpoint\.remembered = true"):
        resolve(environment={}, overrides=[*endpoint, "endpoint.batch=true"])
