"""How the learner computes: what leaves every bit as it is, what is within rounding, and adapters from update to engine."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import PeftModel
from safetensors.torch import load, save

from hindcast.app.system.progress import Progress
from hindcast.core.errors import ModelFileError
from hindcast.core.models.adapter import adapter_of
from hindcast.core.models.adapter_file import adapter_config, write_adapter_folder
from hindcast.core.models.logprobs import SampleToScore, score
from hindcast.core.models.policy import load_policy, load_weights, weights_of
from hindcast.events.catalogue import CheckpointSaved, MismatchExceeded, UpdateApplied, WeightsPublished
from hindcast.events.envelope import BlobRef
from hindcast.learner.verify.comparison import weights_distance
from hindcast.learner.verify.verify import verify
from hindcast.storage.audit.audit import audit
from hindcast.storage.checkpoints import load_checkpoint
from stories.training_story import Bench, bench, events_of, learn, settings_with

pytestmark = pytest.mark.torch

LORA: dict[str, Any] = {"lora_rank": 4, "lora_alpha": 8, "learning_rate": 0.02}
ASKED = [SampleToScore([11, 40, 77, 12, 90], [33, 21, 8]), SampleToScore([14, 13], [150])]


async def learned(folder: Path, *, updates: int = 4, **learner: Any) -> Bench:
    made = await bench(folder, batches=updates // 2, settings=settings_with(**learner))
    await learn(made, until=updates)
    return made


async def facts_of(made: Bench, kind: type) -> list[Any]:
    return [recorded.fact for recorded in await events_of(made.log) if isinstance(recorded.fact, kind)]


async def states_of(made: Bench) -> list[str]:
    return [fact.after for fact in await facts_of(made, UpdateApplied)]


async def newest(made: Bench) -> WeightsPublished:
    found: WeightsPublished = (await facts_of(made, WeightsPublished))[-1]
    return found


def scores(model: Any) -> list[float]:
    with torch.no_grad():
        found = score(model, ASKED, temperature=1.0, tokens_per_forward=64)
    return torch.cat(found).tolist()


@pytest.mark.parametrize(
    "learner",
    [{"gradient_checkpointing": True}, {"offload_optimizer": True}],
    ids=lambda one: next(iter(one)),
)
async def test_saving_memory_changes_no_bit(tmp_path: Path, learner: dict[str, Any]) -> None:
    plain = await learned(tmp_path / "plain")
    saving = await learned(tmp_path / "saving", **learner)
    assert await states_of(saving) == await states_of(plain)
    assert (await verify(saving.log, saving.blobs, policy=saving.policy)).identical


async def test_bf16_learns_the_same_within_its_rounding_and_verifies_bit_by_bit(tmp_path: Path) -> None:
    plain = await learned(tmp_path / "plain")
    rounded = await learned(tmp_path / "rounded", precision="bf16")
    assert await states_of(rounded) != await states_of(plain)
    weights = [one.blobs.get((await newest(one)).weights) for one in (plain, rounded)]
    assert 0 < weights_distance(*weights) < 0.02
    assert (await verify(rounded.log, rounded.blobs, policy=rounded.policy)).identical


async def test_an_adapter_learns_beside_frozen_weights_and_verifies_bit_by_bit(tmp_path: Path) -> None:
    made = await learned(tmp_path, **LORA)
    base = load_policy(made.policy).model
    found = load_policy(made.policy).model
    published = await newest(made)
    load_weights(found, made.blobs.path(published.weights))
    assert published.weights.size < made.blobs.path(await base_of(made)).stat().st_size
    changed = {name for name, value in weights_of(found).items() if not value.equal(weights_of(base)[name])}
    assert changed
    assert all("proj" in name or "feed_forward" in name for name in changed)
    saved = (await facts_of(made, CheckpointSaved))[-1]
    tensors = load_checkpoint(made.blobs, saved.blob).tensors
    assert all(".lora_" in name for name in tensors)
    assert (await verify(made.log, made.blobs, policy=made.policy)).identical
    resumed = await verify(made.log, made.blobs, policy=made.policy, since=len(made.log.events))
    assert resumed.identical


async def base_of(made: Bench) -> Any:
    return (await facts_of(made, WeightsPublished))[0].weights


async def test_the_reference_is_the_policy_without_its_adapter(tmp_path: Path) -> None:
    """The KL to version 0 is none before the first update, and is there once the adapter says something."""
    made = await learned(tmp_path, **LORA, kl_coefficient=0.1, minibatches=2)
    kls = [fact.metrics["kl"] for fact in await facts_of(made, UpdateApplied)]
    assert kls[0] == 0.0
    assert kls[-1] > 0.0


async def test_peft_itself_reads_what_was_published(tmp_path: Path) -> None:
    made = await learned(tmp_path, **LORA)
    published = made.blobs.path((await newest(made)).weights)
    write_adapter_folder(published, tmp_path / "adapter")
    ours, theirs = load_policy(made.policy).model, load_policy(made.policy).model
    before = scores(ours)
    load_weights(ours, published)
    read = PeftModel.from_pretrained(theirs, str(tmp_path / "adapter")).eval()
    assert scores(read.get_base_model()) == pytest.approx(scores(ours), abs=1e-5)
    assert scores(ours) != pytest.approx(before, abs=1e-3)


async def test_whoever_samples_takes_one_adapter_after_another_and_whole_weights_again(
    tmp_path: Path,
) -> None:
    made = await learned(tmp_path, **LORA)
    versions = [fact.weights for fact in await facts_of(made, WeightsPublished)]
    model = load_policy(made.policy).model
    found = []
    for ref in (*versions, *reversed(versions)):
        load_weights(model, made.blobs.path(ref))
        found.append(scores(model))
    assert found == found[::-1]
    assert found[0] != found[1] != found[2]
    assert not adapter_of(model)


def damages(ref: BlobRef, made: Bench) -> Iterator[tuple[bytes, str]]:
    """Adapters that somebody wrote wrongly: their digest is as it should be, and what they hold is not."""
    path = made.blobs.path(ref)
    config, tensors = json.dumps(adapter_config(path)), load(path.read_bytes())
    lacking = sorted(tensors)[0]
    for changed, said in (
        ({name: value for name, value in tensors.items() if name != lacking}, f"{lacking} is missing"),
        (tensors | {lacking: tensors[lacking][:, :1].contiguous()}, f"{lacking} has shape"),
        (tensors | {f"{lacking}.more": torch.zeros(1)}, "is no part of an adapter"),
    ):
        yield save(changed, {"adapter_config": config}), said
    yield save(tensors, {"adapter_config": config.replace('"r": 4', '"r": 0')}), "without a readable config"


async def test_another_model_s_adapter_is_refused_and_whole_weights_are_none(tmp_path: Path) -> None:
    made = await learned(tmp_path, updates=2, **LORA)
    other = await learned(
        tmp_path / "other", updates=2, **LORA | {"lora_targets": ["q_proj"], "lora_rank": 2}
    )
    model = load_policy(made.policy).model
    del model.model.layers[3]
    with pytest.raises(ModelFileError, match="layers that the model lacks"):
        load_weights(model, made.blobs.path((await newest(made)).weights))
    whole = load_policy(made.policy).model
    for change, said in damages((await newest(made)).weights, made):
        (tmp_path / "damaged").write_bytes(change)
        with pytest.raises(ModelFileError, match=said):
            load_weights(whole, tmp_path / "damaged")
    with pytest.raises(ModelFileError, match="whole weights"):
        write_adapter_folder(other.blobs.path(await base_of(other)), tmp_path / "none")
    bad = settings_with(**LORA | {"lora_targets": ["no_such_layer"]})
    refused = await bench(tmp_path / "refused", batches=1, settings=bad)
    with pytest.raises(ModelFileError, match="no_such_layer"):
        await learn(refused, until=1)


async def test_a_sampler_that_computes_otherwise_than_the_learner_raises_the_alarm(tmp_path: Path) -> None:
    """The sampler's log-probabilities are float32's, the learner's bf16's: a little apart, and nothing where both are
    the same."""
    apart = await learned(tmp_path / "apart", updates=2, precision="bf16", mismatch_alarm=1e-9)
    updates, alarms = await facts_of(apart, UpdateApplied), await facts_of(apart, MismatchExceeded)
    assert [one.update for one in alarms] == [1, 2]
    assert [one.mismatch_kl for one in alarms] == [one.metrics["mismatch_kl"] for one in updates]
    progress = Progress()
    lines = [progress.apply(recorded) for recorded in await events_of(apart.log)]
    assert sum("ALARM" in (line or "") for line in lines) == 2
    assert not (await audit(apart.log, apart.blobs, pages=False)).defects
    for name, learner in {
        "calm": {"precision": "bf16", "mismatch_alarm": 1.0},
        "same": {"mismatch_alarm": 1e-9},
    }.items():
        quiet = await learned(tmp_path / name, updates=2, **learner)
        assert not await facts_of(quiet, MismatchExceeded)
