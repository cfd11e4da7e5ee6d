"""A policy version and its exported folder play alike: the same actions on the same pages, in a real browser."""

import asyncio
from pathlib import Path

import pytest
import torch

from hindcast.actors.agents.served_policy import serve_policy
from hindcast.actors.engines.in_process import InProcessEngine
from hindcast.actors.environments.store.tasks import StoreTasks
from hindcast.app.evaluation.evaluation import plan_requests, play
from hindcast.app.exports.policy_folder import PolicyVersion, write_policy_folder
from hindcast.app.settings.configuration import resolve
from hindcast.core.models.folders import base_policy_folder
from hindcast.core.models.policy import load_policy, save_weights
from hindcast.core.settings.schema import Settings

pytestmark = [pytest.mark.torch, pytest.mark.browser, pytest.mark.timeout(600)]

SETTINGS = resolve(
    overrides=["actors.page_timeout_s=60", "actors.action_timeout_s=60", "actors.screenshots=off"]
).settings


async def played(folder: Path | None, weights: Path | None, settings: Settings = SETTINGS) -> list[str]:
    """A few greedy episodes: their pages, actions and outcomes. `folder` None: the policy behind the settings' endpoint."""
    requests = plan_requests(
        StoreTasks(SETTINGS.sites),
        episodes=4,
        families=["find_price", "add_to_cart"],
        temperature=0.0,
        lease_s=SETTINGS.episode_lease_s,
    )
    tally = await play(requests, folder=folder, weights=weights, settings=settings)
    assert tally.lost == 0, tally.lost_because
    return sorted(str(one) for one in tally.decided)


async def test_an_exported_version_plays_as_the_version(tmp_path: Path) -> None:
    model = load_policy(base_policy_folder()).model
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for value in model.parameters():
            value.add_(torch.randn(value.shape, generator=generator) * value.std() * 0.1)
    save_weights(model, tmp_path / "weights")
    version = PolicyVersion(
        run="run-1",
        recipe="mgrpo",
        version=1,
        update=4,
        position=9,
        log_digest="ab" * 32,
        sha256="cd" * 32,
        weights=tmp_path / "weights",
        base_weights=None,
        settings=SETTINGS,
        evaluation=None,
        code_rev="",
    )
    write_policy_folder(version, tmp_path / "out")
    exported = await played(tmp_path / "out", None)
    assert exported == await played(base_policy_folder(), tmp_path / "weights")
    assert exported != await played(base_policy_folder(), None)
    assert exported == await played_as_served(tmp_path / "out"), "eval --policy endpoint:… of `policy serve`"


async def played_as_served(folder: Path) -> list[str]:
    """The same episodes by the policy's server, as a model behind an endpoint."""
    address: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    async with InProcessEngine(folder, SETTINGS.policy) as engine, asyncio.TaskGroup() as tasks:
        serving = tasks.create_task(
            serve_policy(engine, SETTINGS.actors, host="127.0.0.1", port=0, ready=address.set_result)
        )
        endpoint = {"base_url": await address, "model": "policy", "system_prompt": False}
        asked = Settings.model_validate(SETTINGS.model_dump() | {"endpoint": endpoint})
        found = await played(None, None, asked)
        serving.cancel()
    return found
