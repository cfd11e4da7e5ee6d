"""A vision-language model: what it reads is what transformers' own model reads, and what it samples is what is scored."""

import asyncio
from io import BytesIO
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
from PIL import Image

from fakes.vision_model import write_vision_model
from hindcast.actors.engines.in_process import InProcessEngine
from hindcast.actors.engines.slots import CacheSlots
from hindcast.actors.episodes.answerers import PolicyAnswerer
from hindcast.actors.episodes.prompt_reader import Situation
from hindcast.app.runs.fork import settings_of_fork
from hindcast.app.runs.runs import list_runs
from hindcast.app.runs.selection import select_run
from hindcast.app.settings.checks.cross_checks import find_conflicts
from hindcast.app.system.model_check import check_model
from hindcast.core.domain.observation import Observation, Page
from hindcast.core.domain.sampling import Sampling
from hindcast.core.domain.task import Task
from hindcast.core.errors import BlobCorrupt, BlobMissing, ModelFileError, PictureUnreadable, SettingsError
from hindcast.core.models.adapter import ALL_LINEAR, add_adapter, initialize_adapter
from hindcast.core.models.logprobs import SampleToScore, score
from hindcast.core.models.policy import LoadedPolicy, encode_weights, load_policy, load_weights
from hindcast.core.models.vision import (
    ImageProcessor,
    ProcessedImage,
    freeze_tower,
    is_of_tower,
    picture_inputs,
)
from hindcast.core.prompts.chat_frame import encode_text
from hindcast.core.prompts.prompt import build_prompt
from hindcast.core.settings.schema import PolicySettings, Settings
from hindcast.events.catalogue import EpisodeRequested
from hindcast.events.catalogue.episode import ShownPicture
from hindcast.learner.buffer.state import BufferState
from hindcast.learner.forward_passes import ScreenshotStore
from hindcast.storage.blobs.store import BlobStore

pytestmark = pytest.mark.torch

PAGE = "page Shop\nlink Brass lamp [3] <|image_pad|><|vision_start|>\nbutton Add to cart [4]"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_vision_model(tmp_path_factory.mktemp("vision"))


@pytest.fixture(scope="module")
def policy(folder: Path) -> LoadedPolicy:
    return load_policy(folder)


@pytest.fixture(scope="module")
def eyes(folder: Path) -> ImageProcessor:
    return ImageProcessor(folder)


def image(colour: str, size: tuple[int, int] = (160, 105)) -> bytes:
    """A screenshot: one colour with a black button."""
    drawn = Image.new("RGB", size, colour)
    drawn.paste((0, 0, 0), (20, 30, 60, 50))
    file = BytesIO()
    drawn.save(file, "JPEG", quality=60)
    return file.getvalue()


def prompt(policy: LoadedPolicy, *pictures: ProcessedImage, answers: int = 0) -> list[int]:
    standing = [token for picture in pictures for token in picture.ids]
    return build_prompt(
        policy.tokenizer,
        instruction="Buy the lamp.",
        answers=["do()"] * answers,
        page_text=PAGE,
        max_tokens=400,
        picture=standing,
    ).ids


def test_an_image_comes_to_the_same_patches_and_digest_each_time(eyes: ImageProcessor, folder: Path) -> None:
    first, again = eyes.look(image("red")), ImageProcessor(folder).look(image("red"))
    assert first.digest == again.digest != eyes.look(image("blue")).digest
    assert first.ids == again.ids
    assert len(first.ids) - 2 == first.grid[1] * first.grid[2] // 4
    with pytest.raises(PictureUnreadable, match="cannot be read"):
        eyes.look(image("red")[:40])


def test_text_of_pages_never_stands_for_a_picture(policy: LoadedPolicy, eyes: ImageProcessor) -> None:
    assert not set(eyes.marks) & set(encode_text(policy.tokenizer, PAGE))
    seen = eyes.look(image("red"))
    ids = prompt(policy, seen)
    start = ids.index(eyes.marks[0])
    assert ids[start : start + len(seen.ids)] == seen.ids
    assert [token for token in ids if token not in eyes.marks] == prompt(policy)


def test_the_page_gives_way_to_a_picture_and_not_the_picture(
    policy: LoadedPolicy, eyes: ImageProcessor
) -> None:
    seen = eyes.look(image("red"))
    needed = len(prompt(policy, seen))
    cut = build_prompt(
        policy.tokenizer, instruction="Buy the lamp.", answers=[], page_text=PAGE, max_tokens=needed - 5, picture=seen.ids
    )  # fmt: skip
    assert cut.truncated
    assert len(cut.ids) == needed - 5
    assert sum(token in eyes.marks for token in cut.ids) == len(seen.ids)


def test_a_prompt_reads_as_the_models_own_template_and_forward_pass_have_it(
    policy: LoadedPolicy, eyes: ImageProcessor
) -> None:
    seen = eyes.look(image("red"))
    ids = torch.tensor([prompt(policy, seen)])
    kinds = (ids == eyes.marks[1]).int()
    with torch.no_grad():
        own = policy.model(
            input_ids=ids,
            pixel_values=seen.patches,
            image_grid_thw=torch.tensor([seen.grid]),
            mm_token_type_ids=kinds,
        ).logits
        ours = policy.model(**picture_inputs(policy.model, ids, [seen], [ids.shape[1]])).logits
        blind = policy.model(input_ids=ids).logits
    policy.model.base_model.rope_deltas = None  # what transformers remembers of its own call
    assert torch.equal(own, ours)
    assert (own - blind).abs().max() > 0.01


async def test_answers_to_pictures_in_a_batch_are_scored_at_what_they_were_sampled(
    folder: Path, policy: LoadedPolicy, eyes: ImageProcessor
) -> None:
    red, blue = eyes.look(image("red")), eyes.look(image("blue", (90, 160)))
    asked = [(red,), (), (blue,), (red, blue)]
    sampling = [Sampling(temperature=1.0, max_tokens=10 + 3 * n, seed=n) for n in range(len(asked))]
    prompts = [prompt(policy, *pictures, answers=n) for n, pictures in enumerate(asked)]
    async with InProcessEngine(folder, PolicySettings(threads=1)) as engine:
        assert (await engine.see(image("red"))).digest == red.digest
        together = await asyncio.gather(
            *(engine.generate_seeing(*each) for each in zip(prompts, asked, sampling, strict=True))
        )
        alone = [await engine.generate_seeing(*each) for each in zip(prompts, asked, sampling, strict=True)]
        other = await engine.generate_seeing(
            prompts[0], (red._replace(digest="", patches=-red.patches),), sampling[0]
        )
    assert [one.token_ids for one in together] == [one.token_ids for one in alone]
    assert other.logprobs != alone[0].logprobs, "the same tokens stand for another picture"
    samples = [
        SampleToScore(ids, one.token_ids, pictures=pictures)
        for ids, one, pictures in zip(prompts, together, asked, strict=True)
    ]
    with torch.no_grad():
        scored = score(policy.model, samples, temperature=1.0, tokens_per_forward=4096)
    for values, one in zip(scored, together, strict=True):
        assert values.tolist() == pytest.approx(one.logprobs, abs=1e-4)


def test_a_picture_token_that_was_sampled_is_read_as_text_and_learned_from(
    policy: LoadedPolicy, eyes: ImageProcessor
) -> None:
    seen, pad = eyes.look(image("red")), eyes.marks[1]
    pictures = [(seen,), (), (seen,)]
    prompts, answer = [prompt(policy, *each) for each in pictures], [9, pad, pad, 10]
    slots = CacheSlots(policy.model, len(prompts))
    with torch.inference_mode():
        read = [slots.prefill(tuple(ids), each) for ids, each in zip(prompts, pictures, strict=True)]
        for ids, (states, _) in zip(prompts, read, strict=True):
            slots.admit(states, len(ids))
        logits = [torch.cat([after for _, after in read])]
        logits += [slots.step(torch.tensor([token] * len(prompts))) for token in answer[:-1]]
    sampled = torch.log_softmax(torch.stack(logits, 1), -1)[:, range(len(answer)), answer]
    samples = [SampleToScore(ids, answer, pictures=each) for ids, each in zip(prompts, pictures, strict=True)]
    scored = torch.stack(score(policy.model, samples, temperature=1.0, tokens_per_forward=4096))
    assert torch.allclose(scored, sampled, atol=1e-4)


def test_the_language_part_learns_from_pictures_and_the_tower_stays(
    folder: Path, eyes: ImageProcessor
) -> None:
    model = load_policy(folder).model
    freeze_tower(model)
    seen = eyes.look(image("red"))
    (values,) = score(
        model,
        [SampleToScore([5, *seen.ids, 6], [7, 8], pictures=(seen,))],
        temperature=1.0,
        tokens_per_forward=512,
    )
    values.sum().backward()
    learned = {name for name, value in model.named_parameters() if value.grad is not None}
    assert learned == {name for name, _ in model.named_parameters() if not is_of_tower(name)}
    add_adapter(model, rank=2, alpha=2, targets=[ALL_LINEAR])
    initialize_adapter(model, seed=1)
    adapted = {name for name, value in model.named_parameters() if value.requires_grad}
    assert adapted
    assert not any(is_of_tower(name) for name in adapted)


def test_published_weights_are_taken_over_whole(folder: Path, policy: LoadedPolicy, tmp_path: Path) -> None:
    file = tmp_path / "weights.safetensors"
    file.write_bytes(encode_weights(policy.model))
    again = load_policy(write_vision_model(tmp_path / "other", seed=2)).model
    load_weights(again, file)
    assert encode_weights(again) == file.read_bytes()


def test_an_album_says_which_picture_is_missing_damaged_or_another(
    folder: Path, eyes: ImageProcessor, tmp_path: Path
) -> None:
    blobs = BlobStore(tmp_path / "blobs")
    ref = blobs.put(image("red"))
    seen = eyes.look(image("red"))
    shown = ShownPicture(blob=ref, tokens=len(seen.ids), digest=seen.digest)
    album = ScreenshotStore(folder, blobs)
    assert torch.equal(album.seen([shown])[0].patches, seen.patches)
    with pytest.raises(PictureUnreadable, match="when the policy read it"):
        album.seen([ShownPicture(blob=ref, tokens=len(seen.ids), digest="0" * 64)])
    file = blobs.path(ref)
    file.chmod(0o600)
    file.write_bytes(image("blue"))
    with pytest.raises(BlobCorrupt, match="training on a step needs"):
        album.seen([shown])
    file.unlink()
    with pytest.raises(BlobMissing, match="nothing else is lost"):
        album.seen([shown])


def settings_for(folder: Path, **actors: object) -> Settings:
    return Settings.model_validate({"policy": {"base": str(folder), "threads": 1}, "actors": actors})


def test_the_check_answers_a_screenshot_and_says_what_it_takes(folder: Path) -> None:
    shown = settings_for(folder, screenshot_observation="newest")
    findings = {finding.part: finding for finding in check_model(folder, shown)}
    assert "failed" not in {finding.verdict for finding in findings.values()}
    assert findings["use"].verdict == findings["pictures"].verdict == "ok"
    assert "Qwen2_5_VLForConditionalGeneration" in findings["model"].result
    assert "of 1024 tokens" in findings["pictures"].result
    assert "answers to a screenshot" in findings["use"].result
    blind = {finding.part: finding for finding in check_model(folder, settings_for(folder))}
    assert "is shown none" in blind["model"].result
    assert "pictures" not in blind


def test_the_check_says_what_keeps_a_model_from_being_shown_screenshots(
    folder: Path, model_families: dict[str, Path]
) -> None:
    text = model_families["qwen2"]
    told = [
        *check_model(text, settings_for(text, screenshot_observation="newest")),
        *check_model(folder, settings_for(folder, screenshot_observation="newest", max_prompt_tokens=40)),
    ]
    failed = [finding.result for finding in told if finding.part == "pictures"]
    assert "reads no pictures" in failed[0]
    assert "more than half of" in failed[1]
    with pytest.raises(ModelFileError, match="reads no pictures"):
        ImageProcessor(text)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"policy": {"engine": "vllm"}}, "policy.engine"),
        ({"actors": {"framing": "webrl/1", "renderer": "webrl/2"}}, "actors.framing"),
        ({"storage": {"keep_page_episodes": 9}}, "storage.keep_page_episodes"),
        ({"learner": {"processes": 2}}, "learner.processes"),
        ({"learner": {"algorithm": "webrl", "phase_episodes": 8}}, "learner.algorithm"),
        ({"relabeler": {"kind": "rules"}}, "relabeler.kind"),
        ({"judge": {"judges": ["rules", "orm"]}, "learner": {"orm_every": 8}}, "learner.orm_every"),
    ],
)
def test_settings_that_do_not_go_with_screenshots_are_refused(changes: dict[str, Any], said: str) -> None:
    assert not find_conflicts(Settings.model_validate(changes))
    actors = {**changes.get("actors", {}), "screenshot_observation": "newest"}
    (told,) = find_conflicts(Settings.model_validate({**changes, "actors": actors}))
    assert told.startswith(f"actors.screenshot_observation = 'newest' contradicts {said}")


def test_a_text_policy_is_shown_no_screenshots_be_it_the_shipped_one_or_a_forks(tmp_path: Path) -> None:
    chosen = ["actors.screenshot_observation=newest"]
    with pytest.raises(SettingsError, match="reads no pictures"):
        select_run(tmp_path, name=None, recipe="mgrpo", overrides=chosen)
    assert not list_runs(tmp_path)
    state = BufferState()
    state.resolved = Settings().model_dump(mode="json")
    with pytest.raises(ModelFileError, match="reads no pictures"):
        settings_of_fork(state, chosen, recipe="mgrpo", here={})


async def test_a_step_without_its_picture_is_answered_on_its_text_and_says_so(
    folder: Path, eyes: ImageProcessor, tmp_path: Path
) -> None:
    shown = settings_for(folder, screenshot_observation="newest", max_answer_tokens=4).actors
    task = Task(environment="store", family="find", seed=1, instruction="Buy the lamp.", goal={}, max_steps=3)
    request = EpisodeRequested(
        episode="ep", task=task, group="g", member=0, group_size=1, attempt=0, origin="online",
        temperature=1.0, phase=0, min_version=0, lease_s=60.0,
    )  # fmt: skip
    blob = BlobStore(tmp_path).put(image("red"))
    page = Page(url="http://shop.example", title="Shop", nodes=())
    blind = Situation(
        index=0, instruction=task.instruction, observation=Observation(page=page, digest=""), answers=(), actions=()
    )  # fmt: skip
    seeing = msgspec.structs.replace(blind, image=image("red"), image_blob=blob)
    async with InProcessEngine(folder, PolicySettings(threads=1)) as engine:
        answerer = PolicyAnswerer(request, engine=engine, settings=shown, run_seed=1)
        with_picture, without = await answerer.answer(seeing), await answerer.answer(blind)
    seen = eyes.look(image("red"))
    assert with_picture.pictures == (ShownPicture(blob=blob, tokens=len(seen.ids), digest=seen.digest),)
    assert without.pictures == ()
    assert [token for token in with_picture.prompt.ids if token not in eyes.marks] == without.prompt.ids
    assert with_picture.prompt.ids.count(eyes.marks[1]) == len(seen.ids) - 2
