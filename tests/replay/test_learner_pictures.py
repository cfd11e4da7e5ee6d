"""Learning from screenshots: recorded by their digests, processed again from their files, verified bit by bit."""

from io import BytesIO
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
from PIL import Image

from fakes.vision_model import write_vision_model
from hindcast.core.domain.arrays import pack_floats, pack_ids, unpack_ids
from hindcast.core.domain.observation import Box, Mark
from hindcast.core.errors import BlobMissing
from hindcast.core.models.logprobs import SampleToScore, score
from hindcast.core.models.policy import encode_weights, load_policy, load_weights, weights_of
from hindcast.core.models.vision import ImageProcessor, is_of_tower
from hindcast.events.catalogue import StepTaken, UpdateApplied, WeightsPublished
from hindcast.events.catalogue.episode import Screenshot, ShownPicture
from hindcast.events.log.memory import MemoryLog
from hindcast.learner.numerics import configure
from hindcast.learner.verify.verify import verify
from hindcast.storage.blobs.store import BlobStore
from stories.training_story import RUN as RUN_ID
from stories.training_story import (
    Bench,
    Member,
    Story,
    Told,
    copy_of,
    events_of,
    informative,
    learn,
    settings_with,
    tell,
)

pytestmark = pytest.mark.torch


class IllustratedStory(Story):
    """Every step but each episode's last was answered to a screenshot of one colour."""

    def __init__(self, policy: Path, blobs: BlobStore) -> None:
        super().__init__(policy)
        self._blobs = blobs
        self._eyes = ImageProcessor(policy)

    def start(self, blobs: BlobStore, settings: Any, **named: Any) -> Told:
        told = super().start(blobs, settings, **named)
        base = blobs.put(encode_weights(self.model))
        return told._replace(fact=msgspec.structs.replace(told.fact, base_policy=base))

    def step(self, episode: str, index: int, member: Member) -> StepTaken:
        plain = super().step(episode, index, member)
        if index == member.steps - 1:
            return plain
        file = BytesIO()
        Image.new("RGB", (60, 60), (self.random.randrange(256), 90, 40)).save(file, "JPEG")
        seen = self._eyes.look(file.getvalue())
        blob = self._blobs.put(file.getvalue())
        prompt = [*seen.ids, *unpack_ids(plain.prompt_ids).tolist()]
        action = unpack_ids(plain.action_ids).tolist()
        with torch.no_grad():
            (logprobs,) = score(
                self.model,
                [SampleToScore(prompt, action, pictures=(seen,))],
                temperature=1.0,
                tokens_per_forward=64,
            )
        marks = (Mark(3, Box(1, 2, 3, 4)),)
        return msgspec.structs.replace(
            plain,
            prompt_ids=pack_ids(prompt),
            logprobs=pack_floats(logprobs.numpy()),
            screenshot=Screenshot(
                image=blob, missing="", when="before", width=60, height=60, scale=1.0, marks=marks
            ),
            pictures=(ShownPicture(blob=blob, tokens=len(seen.ids), digest=seen.digest),),
        )


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_vision_model(tmp_path_factory.mktemp("vision"))


async def illustrated(folder: Path, policy: Path, **learner: Any) -> Bench:
    configure(1)
    blobs = BlobStore(folder / "blobs")
    story, log = IllustratedStory(policy, blobs), MemoryLog(RUN_ID)
    told = [story.start(blobs, settings_with(**learner))]
    for _ in range(2):
        told += story.group(*informative())
    await tell(log, told)
    return Bench(log, blobs, policy, story)


async def facts_of(made: Bench, kind: type) -> list[Any]:
    return [recorded.fact for recorded in await events_of(made.log) if isinstance(recorded.fact, kind)]


@pytest.mark.parametrize("learner", [{}, {"lora_rank": 2}], ids=["whole", "adapter"])
async def test_updates_from_screenshots_verify_bit_by_bit_and_leave_the_tower(
    tmp_path: Path, policy: Path, learner: dict[str, Any]
) -> None:
    made = await illustrated(tmp_path, policy, **learner)
    await learn(made, until=2)
    assert (await verify(made.log, made.blobs, policy=policy)).identical
    updates = await facts_of(made, UpdateApplied)
    assert all(update.metrics["mismatch_max"] < 1e-4 for update in updates[:1])
    published = (await facts_of(made, WeightsPublished))[-1].weights
    base, now = load_policy(policy).model, load_policy(policy).model
    load_weights(now, made.blobs.path(published))
    before = weights_of(base)
    changed = {name for name, value in weights_of(now).items() if not value.equal(before[name])}
    assert changed
    assert not any(is_of_tower(name) for name in changed)


async def test_a_screenshot_that_is_missing_stops_the_learner_in_words_and_nothing_is_lost(
    tmp_path: Path, policy: Path
) -> None:
    made = await illustrated(tmp_path / "one", policy)
    undisturbed = await copy_of(made, tmp_path / "other")
    await learn(undisturbed, until=2)
    shown = next(step for step in await facts_of(made, StepTaken) if step.pictures)
    file = made.blobs.path(shown.pictures[0].blob)
    kept = file.read_bytes()
    file.unlink()
    with pytest.raises(BlobMissing, match="the screenshot that the policy read"):
        await learn(made, until=2)
    file.write_bytes(kept)
    await learn(made, until=2)
    states = [[update.after for update in await facts_of(one, UpdateApplied)] for one in (made, undisturbed)]
    assert states[0] == states[1]
    assert len(states[0]) == 2
