"""Adapters on policy servers: each version under a name of its own, asked for by it, and believed by it alone."""

import asyncio
import itertools
import json
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from safetensors.numpy import save

from fakes.policy_serving import RUN, asking, kept
from fakes.policy_stand_in import SERVED, standing_in
from fakes.tiny_policy import write_tiny_policy
from hindcast.actors.engines.base import Generation
from hindcast.actors.engines.vllm.generate_wire import read_answer
from hindcast.actors.engines.vllm.server import VllmServer
from hindcast.actors.engines.vllm.weights import Adapters, Unusable, WrongVersion, label_of
from hindcast.actors.policy_servers.command import (
    LORA_RANKS,
    for_adapters,
    server_command,
    server_environment,
)
from hindcast.app.settings.configuration import resolve
from hindcast.core.errors import SettingsError
from hindcast.core.models.adapter_file import CONFIG
from hindcast.core.settings.schema import Settings
from hindcast.events.catalogue import PolicyServerTroubled

pytestmark = pytest.mark.torch

PEFT = {"peft_type": "LORA", "r": 4, "lora_alpha": 8}
NAMES = Adapters(RUN)


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_policy(tmp_path_factory.mktemp("policy") / "tiny")


def adapter(version: int) -> bytes:
    written: bytes = save({"factor": np.full(4, version, dtype=np.float32)}, {CONFIG: json.dumps(PEFT)})
    return written


def name(version: int) -> str:
    return label_of(RUN, version)


def answer(model: str, *labels: str) -> bytes:
    """One token for each label."""
    tokens = list(range(7, 7 + len(labels)))
    choice: dict[str, Any] = {
        "token_ids": tokens,
        "logprobs": {"content": [{"token_id": token, "logprob": -0.5} for token in tokens]},
        "finish_reason": "length",
        "weight_versions": [
            {"version": label, "start": place, "end": place + 1} for place, label in enumerate(labels)
        ],
    }
    return msgspec.json.encode({"model": model, "choices": [choice]})


def test_an_answer_is_of_the_adapter_that_was_named_on_the_first_weights() -> None:
    for asked, model in ((5, name(5)), (0, SERVED)):
        read = read_answer(answer(model, name(0), name(0)), weights=NAMES, requested=asked, stops=())
        assert read == Generation(
            token_ids=[7, 8], logprobs=[-0.5] * 2, versions=[asked] * 2, finish="length"
        )


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (answer(SERVED, name(0)), "answers as 'policy', where adapter"),
        (answer(name(4), name(0)), "where adapter .*:5' was asked for"),
        (answer("run-2:5", name(0)), "where adapter .*:5' was asked for"),
        (answer(name(5), name(0), name(5)), "where adapters stand on .*:0"),
        (answer(name(5), "default"), "which are not run"),
    ],
)
def test_an_answer_of_another_adapter_or_on_other_weights_is_not_believed(content: bytes, why: str) -> None:
    with pytest.raises(WrongVersion, match=why):
        read_answer(content, weights=NAMES, requested=5, stops=())


def test_an_answer_whose_tokens_have_no_labels_is_not_used() -> None:
    unlabelled = answer(name(5), name(0)).replace(b'"weight_versions"', b'"versions"')
    with pytest.raises(Unusable, match="versions of 0"):
        read_answer(unlabelled, weights=NAMES, requested=5, stops=())


async def test_each_version_is_loaded_under_a_name_of_its_own_beside_the_one_before(tmp_path: Path) -> None:
    async with (
        standing_in() as server,
        VllmServer(server.address) as asked,
        kept(tmp_path, lora_rank=4) as found,
        asyncio.TaskGroup() as tasks,
    ):
        keeping = tasks.create_task(found.keeper.keep(asked, found.wanted))
        await server.seen(lambda: server.label == name(0))
        assert Path(server.folder) == found.base
        server.cannot_pause = True  # from here on nothing may stop what it samples
        for version in range(1, 5):
            await found.publish(version, adapter(version))
            await server.seen(lambda newest=version: name(newest) in server.adapters)
        await server.seen(lambda: set(server.adapters) == {name(3), name(4)})
        newest = Path(server.adapters[name(4)])
        assert json.loads((newest / "adapter_config.json").read_text()) == PEFT
        assert (newest / "adapter_model.safetensors").read_bytes() == adapter(4)
        assert len(list(newest.parent.iterdir())) == 4, "what an answer under way may need again stays"

        server.cannot_pause = False
        server.label, server.adapters = "default", {}  # as after a restart of its own
        await server.seen(lambda: name(4) in server.adapters)
        assert server.label == name(0)
        assert set(server.adapters) == {name(4)}
        assert not await found.troubles()
        keeping.cancel()


async def test_the_first_weights_as_published_are_no_adapter_and_others_that_are_none_are_a_trouble(
    tmp_path: Path,
) -> None:
    whole: bytes = save({"weight": np.zeros(4, dtype=np.float32)})
    async with (
        standing_in() as server,
        VllmServer(server.address) as asked,
        kept(tmp_path, lora_rank=4) as found,
        asyncio.TaskGroup() as tasks,
    ):
        await found.publish(0, whole)
        keeping = tasks.create_task(found.keeper.keep(asked, found.wanted))
        await server.seen(lambda: server.label == name(0))
        await found.publish(1, whole)
        trouble = await found.next_trouble()
        assert trouble.trouble == "no_weights"
        assert "not an adapter" in trouble.detail
        await found.publish(2, adapter(2))
        await server.seen(lambda: set(server.adapters) == {name(2)})
        keeping.cancel()


async def test_a_server_that_was_not_started_for_adapters_is_a_trouble_that_says_how(tmp_path: Path) -> None:
    async with (
        standing_in() as server,
        VllmServer(server.address) as asked,
        kept(tmp_path, lora_rank=4) as found,
        asyncio.TaskGroup() as tasks,
    ):
        keeping = tasks.create_task(found.keeper.keep(asked, found.wanted))
        await server.seen(lambda: server.label == name(0))
        server.cannot_load = True
        await found.publish(1, adapter(1))
        trouble = await found.next_trouble()
        assert trouble.trouble == "refused"
        assert "LoRA is not enabled" in trouble.detail
        assert "VLLM_ALLOW_RUNTIME_LORA_UPDATING=True" in trouble.detail
        server.cannot_load = False
        await server.seen(lambda: name(1) in server.adapters)
        keeping.cancel()


async def test_a_question_names_the_adopted_version_and_none_before_the_first(policy: Path) -> None:
    told: list[PolicyServerTroubled] = []
    async with asking(policy, told, straggler_timeout_s=60, weights=NAMES) as found, asyncio.timeout(60):
        first, second = found.servers
        assert await found.ask(found.key_of(first), [5]) == [0, 0]
        for server in found.servers:
            server.adapters = {name(1): "", name(2): ""}
        assert await found.ask(found.key_of(first), [6]) == [0, 0], "nobody has adopted another one yet"
        await found.engine.adopt(2, policy)
        assert await found.ask(found.key_of(first), [7]) == [2, 2]
        assert await found.ask(found.key_of(second), [8]) == [2, 2]
        assert (first.named, second.named) == ([None, None, name(2)], [name(2)])
    assert not told


async def test_an_answer_under_way_ends_with_the_adapter_it_began_with(policy: Path) -> None:
    told: list[PolicyServerTroubled] = []
    async with asking(policy, told, straggler_timeout_s=60, weights=NAMES) as found, asyncio.timeout(60):
        first, second = found.servers
        first.adapters = second.adapters = {name(1): ""}
        await found.engine.adopt(1, policy)
        await first.answer("/pause", None)
        held = asyncio.ensure_future(found.ask(found.key_of(first), [5]))
        await first.seen(lambda: [5] in first.asked)
        first.adapters = second.adapters = {name(2): ""}
        await found.engine.adopt(2, policy)
        await first.answer("/resume", None)
        assert await held == [1, 1]
        assert await found.ask(found.key_of(first), [6]) == [2, 2]
    assert not told


async def test_a_server_without_the_adapter_is_behind_and_comes_back_with_it(policy: Path) -> None:
    told: list[PolicyServerTroubled] = []
    async with asking(policy, told, straggler_timeout_s=60, weights=NAMES) as found, asyncio.timeout(60):
        sound, restarted = found.servers
        sound.adapters = restarted.adapters = {name(1): ""}
        await found.engine.adopt(1, policy)
        restarted.adapters = {}
        key = found.key_of(restarted)
        assert await found.ask(key, [5]) == [1, 1]
        assert [5] in sound.asked
        assert [(fact.server, fact.trouble) for fact in told] == [(restarted.address, "behind")]
        assert "has version 0 where version 1 is due" in told[0].detail
        restarted.adapters = {name(1): ""}
        while [6] not in restarted.asked:
            assert await found.ask(key, [6]) == [1, 1]
    assert len(told) == 1


async def test_a_server_that_has_only_newer_adapters_is_asked_for_those_and_its_answer_held_back(
    policy: Path,
) -> None:
    told: list[PolicyServerTroubled] = []
    async with asking(policy, told, straggler_timeout_s=60, weights=NAMES) as found, asyncio.timeout(60):
        first, second = found.servers
        first.adapters = second.adapters = {name(1): ""}
        await found.engine.adopt(1, policy)
        first.adapters = {name(2): "", name(3): ""}
        held = asyncio.ensure_future(found.ask(found.key_of(first), [5]))
        await first.seen(lambda: [5] in first.asked)
        assert first.named == [name(1), name(3)]
        second.adapters = {name(2): "", name(3): ""}
        assert found.engine.version == 1
        assert not held.done()
        await found.engine.adopt(3, policy)
        assert await held == [3, 3]
    assert not told


async def test_a_server_whose_weights_below_are_nobodys_has_no_version(policy: Path) -> None:
    async with standing_in() as server, VllmServer(server.address) as asked:
        server.adapters = {name(3): "", label_of("run-2", 9): "", "of a user": ""}
        shown = {}
        for label in ("default", name(1), label_of("run-2", 0), name(0)):
            server.label = label
            shown[label] = await NAMES.shown_by(asked, timeout_s=60)
        assert shown == {"default": None, name(1): None, label_of("run-2", 0): None, name(0): 3}
        server.adapters = {}
        assert await NAMES.shown_by(asked, timeout_s=60) == 0


def test_the_server_is_started_for_the_adapters_that_are_trained(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    settings = Settings.model_validate(
        {"learner": {"lora_rank": 9}, "vllm": {"arguments": ["--max-loras=3"]}}
    )
    command = server_command(Path("/v/bin/python"), tmp_path, port=81, settings=settings)
    assert dict(itertools.pairwise(command))["--max-lora-rank"] == "16"
    assert "--enable-lora" in command
    assert command.index("--max-loras") < command.index("--max-loras=3"), "who says it last is heard"
    assert server_environment(settings, {})["VLLM_ALLOW_RUNTIME_LORA_UPDATING"] == "True"
    assert "--enable-lora" not in server_command(
        Path("/v/bin/python"), tmp_path, port=81, settings=Settings()
    )
    assert server_environment(Settings(), {})["VLLM_ALLOW_RUNTIME_LORA_UPDATING"] == "False"
    for rank in LORA_RANKS:
        assert for_adapters(rank)[2] == str(rank)


@pytest.mark.parametrize(
    ("override", "why"),
    [
        ("learner.lora_rank=513", "up to rank 512"),
        ("vllm.pause=wait", "answers under way end with the one they began with"),
        ("vllm.arguments=--max-lora-rank=64", "Hindcast gives itself"),
    ],
)
def test_adapters_that_cannot_be_served_are_refused_at_configuration_time(override: str, why: str) -> None:
    with pytest.raises(SettingsError, match=why):
        resolve(environment={}, overrides=["policy.engine=vllm", "learner.lora_rank=8", override])
    resolve(environment={}, overrides=["learner.lora_rank=8", override])
    resolve(environment={}, overrides=["policy.engine=vllm", "learner.lora_rank=8"])
