"""The critic's values of first states: of the prompt that an actor would read, whoever else is asked about."""

from pathlib import Path

import pytest
import torch

from fakes.tiny_policy import tiny_model, write_tiny_policy
from hindcast.actors.curriculum.feasibility import FirstState
from hindcast.actors.engines.value_models import CriticValuer, OutcomeValuer
from hindcast.actors.environments.store.tasks import StoreTasks
from hindcast.core.domain.observation import Node, Page
from hindcast.core.errors import BlobMissing
from hindcast.core.models.auxiliary import Critic, OutcomeModel, values_of
from hindcast.core.models.policy import encode_weights, load_policy
from hindcast.core.prompts.prompt import build_prompt
from hindcast.core.prompts.rendering import RENDERERS
from hindcast.core.prompts.verdict_prompt import build_verdict_prompt
from hindcast.core.settings.schema import Settings, SiteSettings
from hindcast.events.catalogue import WeightsPublished
from hindcast.events.envelope import BlobRef
from hindcast.storage.blobs.store import BlobStore

pytestmark = pytest.mark.torch

PAGE = Page(url="http://store/", title="Store", nodes=(Node(kind="link", tag="a", text="Cart (0)", id=1),))
SETTINGS = Settings()
TASKS = StoreTasks(SiteSettings(products=40))
STATES = [FirstState(TASKS.task(family, 0), PAGE) for family in ("buy", "find_price", "cancel_order")]


def written(folder: Path, blobs: BlobStore, *, version: int) -> tuple[Critic, WeightsPublished]:
    """A critic whose head depends on its version, and the fact that publishes it."""
    critic = Critic(load_policy(folder).model, "scalar").eval()
    with torch.no_grad():
        critic.head.weight.copy_(torch.linspace(-1, 1, critic.head.weight.numel())[None, :] * version)
    weights = blobs.put(encode_weights(critic))
    return critic, WeightsPublished(version=version, model="critic", weights=weights, update=version)


def test_values_are_those_of_the_critic_on_the_actors_prompt_and_of_the_weights_named(tmp_path: Path) -> None:
    folder, blobs = write_tiny_policy(tmp_path / "tiny"), BlobStore(tmp_path / "blobs")
    valuer = CriticValuer(folder, "scalar", blobs=blobs, settings=SETTINGS)
    tokenizer = load_policy(folder).tokenizer
    found = {}
    for version in (1, 2):
        critic, published = written(folder, blobs, version=version)
        found[version] = valuer.values(STATES, published)
        for state, value in zip(STATES, found[version], strict=True):
            prompt = build_prompt(
                tokenizer,
                instruction=state.task.instruction,
                answers=(),
                page_text=RENDERERS[SETTINGS.actors.renderer](PAGE),
                max_tokens=SETTINGS.actors.max_prompt_tokens,
            )
            with torch.no_grad():
                assert [value] == values_of(critic([prompt.ids]))
            assert 0 < value < 1
            assert valuer.values([state], published) == [value], "whoever else is asked about"
    assert len({*found[1], *found[2]}) == 2 * len(STATES)


def test_weights_that_were_let_go_of_are_missed(tmp_path: Path) -> None:
    folder, blobs = write_tiny_policy(tmp_path / "tiny"), BlobStore(tmp_path / "blobs")
    valuer = CriticValuer(folder, "scalar", blobs=blobs, settings=SETTINGS)
    gone = WeightsPublished(version=1, model="critic", weights=BlobRef("0" * 64, 5), update=1)
    with pytest.raises(BlobMissing):
        valuer.values(STATES, gone)


def test_the_outcome_reward_model_values_an_episode_that_has_only_begun(tmp_path: Path) -> None:
    folder, blobs = write_tiny_policy(tmp_path / "tiny"), BlobStore(tmp_path / "blobs")
    weights = blobs.put(encode_weights(tiny_model(folder, seed=5)))
    published = WeightsPublished(version=4, model="orm", weights=weights, update=9)
    found = OutcomeValuer(folder, blobs=blobs, settings=SETTINGS).values(STATES, published)
    model = OutcomeModel(folder, blobs.path(weights), threads=1)
    for state, value in zip(STATES, found, strict=True):
        prompt = build_verdict_prompt(
            model.tokenizer, instruction=state.task.instruction, answers=(), page=PAGE, max_tokens=1024
        )
        assert value == model.probability(prompt.ids)
        assert 0 < value < 1
    valuer = OutcomeValuer(folder, blobs=blobs, settings=SETTINGS)
    gone = WeightsPublished(version=5, model="orm", weights=BlobRef("0" * 64, 5), update=9)
    with pytest.raises(BlobMissing):
        valuer.values(STATES, gone)
