"""Several policy servers: who is asked, who is waited for, and what becomes of one that cannot take new weights."""

import asyncio
import errno
import shutil
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

import hindcast.actors.engines.vllm.engine as engine_module
from fakes.policy_serving import RUN, asking, kept
from fakes.policy_stand_in import standing_in
from fakes.tiny_policy import write_tiny_policy
from hindcast.actors.engines.vllm.server import ServerTroubled, VllmServer
from hindcast.actors.engines.vllm.weights import WholeWeights, label_of
from hindcast.actors.policy_servers.weight_delivery import CHANGING, PublishedFile, offered
from hindcast.events.catalogue import PolicyServerTroubled, WeightsPublished
from hindcast.events.envelope import BlobRef
from hindcast.events.log.memory import MemoryLog
from hindcast.events.log.run_identity import log_name
from stories.synthetic_run import a_run, record

pytestmark = pytest.mark.torch


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_policy(tmp_path_factory.mktemp("policy") / "tiny")


async def test_an_episode_stays_with_its_server(policy: Path) -> None:
    told: list[PolicyServerTroubled] = []
    async with asking(policy, told, straggler_timeout_s=60) as found:
        for number in range(12):
            for step in range(3):
                await found.ask(f"ep_{number}", [number + 1, step + 1])
        numbers = [{prompt[0] for prompt in server.asked} for server in found.servers]
        assert numbers[0] | numbers[1] == set(range(1, 13))
        assert not numbers[0] & numbers[1]
        assert numbers[0]
        assert numbers[1]
    assert not told


async def test_new_weights_wait_for_a_server_that_is_only_later(policy: Path) -> None:
    told: list[PolicyServerTroubled] = []
    async with asking(policy, told, straggler_timeout_s=3600) as found, asyncio.TaskGroup() as tasks:
        sooner, later = found.servers
        sooner.label = label_of(RUN, 1)
        looked = later.looks
        adopting = tasks.create_task(found.engine.adopt(1, policy))
        await later.seen(lambda: later.looks > looked + 2)
        assert not adopting.done()
        later.label = label_of(RUN, 1)
        async with asyncio.timeout(60):
            await adopting
        assert found.engine.version == 1
    assert not told


async def test_a_server_that_stays_behind_holds_nobody_up_and_comes_back_with_the_weights(
    policy: Path,
) -> None:
    told: list[PolicyServerTroubled] = []
    async with asking(policy, told, straggler_timeout_s=0.1) as found, asyncio.TaskGroup() as tasks:
        ahead, behind = found.servers
        key = found.key_of(behind)
        await behind.answer("/pause", None)  # as it is left when it cannot load
        behind.label = CHANGING
        waiting = tasks.create_task(found.ask(key, [5]))
        await behind.seen(lambda: [5] in behind.asked)
        ahead.label = label_of(RUN, 1)
        async with asyncio.timeout(60):
            await found.engine.adopt(1, policy)
            assert await waiting == [1, 1], "what it held was taken back and asked of the other"
            assert await found.ask(key, [6]) == [1, 1]
        assert [6] not in behind.asked
        assert [(fact.server, fact.trouble) for fact in told] == [(behind.address, "behind")]

        ahead.label = label_of(RUN, 2)
        async with asyncio.timeout(60):
            await found.engine.adopt(2, policy)
        assert len(told) == 1, "it is known to be in trouble: said once, and not waited for again"

        behind.label = label_of(RUN, 2)
        await behind.answer("/resume", None)
        async with asyncio.timeout(60):
            while [7] not in behind.asked:
                assert await found.ask(key, [7]) == [2, 2]
        await found.ask(key, [8])
        assert [8] in behind.asked
    assert len(told) == 1


async def test_a_server_that_hangs_holds_up_no_look_at_another_and_is_waited_for_once(
    policy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_module, "LOOK_S", 3600.0)
    told: list[PolicyServerTroubled] = []
    async with asking(policy, told, straggler_timeout_s=1.0) as found, asyncio.timeout(60):
        sound, hung = found.servers
        hung.hangs = True
        sound.label = label_of(RUN, 1)
        await found.engine.adopt(1, policy)
        assert [(fact.server, fact.trouble) for fact in told] == [(hung.address, "unreachable")]
        for number in range(5, 25):  # in between it is looked at in vain
            assert await found.ask(found.key_of(hung), [number]) == [1, 1], "the other one answers"
        sound.label = label_of(RUN, 2)
        await found.engine.adopt(2, policy)
    assert len(told) == 1


async def test_what_is_held_back_goes_on_after_everything_else_of_an_adoption(policy: Path) -> None:
    """A step of new weights comes after the fact that they were adopted, though a server is left aside and that is told."""
    told: list[PolicyServerTroubled] = []
    order: list[str] = []

    class Slow(list[PolicyServerTroubled]):
        def append(self, fact: PolicyServerTroubled) -> None:
            told.append(fact)
            order.append(f"told while the engine has {found.engine.version}")

    async with asking(policy, Slow(), straggler_timeout_s=0.1) as found, asyncio.timeout(60):
        ahead, _ = found.servers
        ahead.label = label_of(RUN, 1)
        held = asyncio.ensure_future(found.ask(found.key_of(ahead), [5]))
        held.add_done_callback(lambda _: order.append("a step"))
        await ahead.seen(lambda: [5] in ahead.asked)
        await found.engine.adopt(1, policy)
        order.append("adopted")
        assert await held == [1, 1]
    assert order == ["told while the engine has 0", "adopted", "a step"]
    assert [fact.trouble for fact in told] == ["behind"]


async def test_streamed_weights_arrive_with_their_digest_and_a_server_that_cannot_take_them_reads_a_folder(
    tmp_path: Path,
) -> None:
    async with kept(tmp_path, transfer="stream") as found, standing_in() as able, standing_in() as plain:
        plain.extended = False
        content = bytes(range(256)) * 40_000  # of more than one part
        await found.publish(1, content)
        for server in (able, plain):
            async with VllmServer(server.address) as reached:
                await found.keeper.bring_up_to_date(reached, found.wanted)
            assert server.label == label_of(RUN, 1)
        assert able.received == content
        assert not able.folder
        assert not plain.received
        assert (Path(plain.folder) / "model.safetensors").read_bytes() == content
        assert not await found.troubles()


async def test_a_file_that_was_damaged_is_not_loaded_from_a_stream(tmp_path: Path) -> None:
    async with kept(tmp_path, transfer="stream") as found, standing_in() as server:
        await found.publish(1, b"weights")
        published = found.wanted.published
        assert published is not None
        assert isinstance(published.fact, WeightsPublished)
        offer_of = PublishedFile(tmp_path / "damaged", published.fact.weights)
        offer_of.path.write_bytes(b"weighty")
        async with (
            VllmServer(server.address) as reached,
            offered(offer_of, to=server.address, timeout_s=60) as offer,
        ):
            with pytest.raises(ServerTroubled, match="another SHA-256"):
                await reached.receive_weights(offer, timeout_s=60)
            with pytest.raises(ServerTroubled):
                await reached.receive_weights(msgspec.structs.replace(offer, token="0" * 32), timeout_s=60)
        assert not server.received


async def test_who_connects_and_is_silent_is_not_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "weights"
    path.write_bytes(b"weights")
    file = PublishedFile(path, BlobRef("0" * 64, 7))
    async with asyncio.timeout(30), offered(file, to="http://127.0.0.1:9", timeout_s=0.2) as offer:
        reader, writer = await asyncio.open_connection(offer.host, offer.port)
        assert await reader.read() == b"", "closed, with nothing sent"
        writer.close()


async def test_a_tied_head_is_packed_again_and_a_cpu_server_that_cannot_is_refused(tmp_path: Path) -> None:
    """On a GPU the head is the embedding itself."""
    async with kept(tmp_path, tied=True) as found, standing_in() as server:
        await found.publish(1, b"weights")
        async with VllmServer(server.address) as reached:
            await found.keeper.bring_up_to_date(reached, found.wanted)
            assert server.repacked == 1
            server.extended = False
            await found.publish(2, b"later weights")
            with pytest.raises(ServerTroubled, match="keeps the old head"):
                await found.keeper.bring_up_to_date(reached, found.wanted)
            assert server.label == CHANGING, "nothing is sampled from weights of two versions"
            server.device = "cuda"
            await found.keeper.bring_up_to_date(reached, found.wanted)
            assert server.label == label_of(RUN, 2)


async def test_an_answer_that_is_none_of_vllms_is_a_trouble_in_words() -> None:
    async with standing_in() as server, VllmServer(server.address) as asked:
        looks: dict[str, Callable[[], Awaitable[object]]] = {
            "/weight_info": lambda: asked.label(timeout_s=60),
            "/is_paused": lambda: asked.is_paused(timeout_s=60),
            "/reset_prefix_cache": lambda: asked.forget_prompts(timeout_s=60),
        }
        for path, look in looks.items():
            for answer in ({}, [], {"weight_version": 3, "is_paused": "no", "success": None}):
                server.says = {path: answer}
                with pytest.raises(ServerTroubled, match="did not answer as vLLM does") as raised:
                    await look()
                assert raised.value.trouble == "unusable"


async def test_a_server_of_another_homes_run_of_the_same_name_is_not_believed(policy: Path) -> None:
    logs = []
    for home in (1, 2):  # each with a run of this name, and the same settings
        log = MemoryLog("run-1")
        await record(log, a_run(run="run-1")[:1], seed=home)
        logs.append(await log_name(log))
    ours, theirs = logs
    assert ours != theirs
    assert {name.partition(".")[0] for name in logs} == {"run-1"}
    told: list[PolicyServerTroubled] = []
    async with asking(policy, told, straggler_timeout_s=60, weights=WholeWeights(ours)) as found:
        first, second = found.servers
        first.label = label_of(theirs, 5)
        key = found.key_of(first)
        assert await found.ask(key, [5]) == [0, 0]
        assert [5] in second.asked
        assert [(fact.server, fact.trouble) for fact in told] == [(first.address, "wrong_version")]


@contextmanager
def full_disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    def refuse(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(shutil, "copyfile", refuse)
        yield


async def test_one_server_that_cannot_load_weights_leaves_the_others_theirs(tmp_path: Path) -> None:
    async with (
        standing_in() as sound,
        standing_in() as broken,
        VllmServer(sound.address) as first,
        VllmServer(broken.address) as second,
        kept(tmp_path) as found,
        asyncio.TaskGroup() as tasks,
    ):
        broken.cannot_load = True
        keeping = [tasks.create_task(found.keeper.keep(server, found.wanted)) for server in (first, second)]
        await sound.seen(lambda: sound.label == label_of(RUN, 0))
        await found.publish(1, b"weights")
        await sound.seen(lambda: sound.label == label_of(RUN, 1))
        await broken.seen(lambda: broken.looks > 3)
        assert broken.label == CHANGING
        (trouble,) = await found.troubles()
        assert (trouble.server, trouble.trouble) == (broken.address, "refused")
        assert "no room for these weights" in trouble.detail
        broken.cannot_load = False
        await broken.seen(lambda: broken.label == label_of(RUN, 1))
        assert Path(broken.folder) == Path(sound.folder)
        for task in keeping:
            task.cancel()


async def test_a_full_disk_under_new_weights_is_a_trouble_in_words_and_passes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (
        standing_in() as server,
        VllmServer(server.address) as asked,
        kept(tmp_path) as found,
        asyncio.TaskGroup() as tasks,
    ):
        with full_disk(monkeypatch):
            await found.publish(1, b"weights")
            keeping = tasks.create_task(found.keeper.keep(asked, found.wanted))
            trouble = await found.next_trouble()
            assert trouble.trouble == "no_weights"
            assert "version 1 could not be laid out" in trouble.detail
            assert "No space left on device" in trouble.detail
            assert server.label == "default", "it goes on with what it has"
        await server.seen(lambda: server.label == label_of(RUN, 1))
        assert (Path(server.folder) / "model.safetensors").read_bytes() == b"weights"
        assert len(await found.troubles()) == 1
        keeping.cancel()
