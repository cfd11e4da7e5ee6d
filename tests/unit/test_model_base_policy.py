from pathlib import Path
from random import Random

import msgspec
import pytest
import torch
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from fakes.tiny_policy import write_tiny_policy
from hindcast.actors.environments.base import DemonstratedStep
from hindcast.actors.environments.early_stopping_demonstrator import HASTY, LEAVE, OF
from hindcast.core.domain.action import Action
from hindcast.core.domain.observation import Page
from hindcast.core.grammar.answer_parser import format_answer, parse_answer
from hindcast.core.models.folders import base_policy_folder
from hindcast.core.models.policy import load_policy, state_digest
from hindcast.core.models.tokenizer import load_tokenizer
from hindcast.core.prompts.rendering import RENDERERS
from tools.base_policy.batches import STRIDE, collate
from tools.base_policy.folder import export
from tools.base_policy.lookups import LOOKUPS, lookup
from tools.base_policy.measuring import exactness
from tools.base_policy.mix import choose
from tools.base_policy.questions import questions
from tools.base_policy.samples import SampleFileError, append_samples, encode, read_samples
from tools.base_policy.training import Plan, train

pytestmark = pytest.mark.torch


@pytest.fixture(scope="module")
def tokenizer() -> PreTrainedTokenizerFast:
    loaded: PreTrainedTokenizerFast = PreTrainedTokenizerFast.from_pretrained(base_policy_folder())
    return loaded


def test_the_shipped_tokenizer_is_what_its_folder_asks_for() -> None:
    """It is loaded without asking which class that is: asking takes torch."""
    folder = base_policy_folder()
    ours, asked = load_tokenizer(folder), AutoTokenizer.from_pretrained(folder, local_files_only=True)
    assert type(ours) is type(asked)
    assert ours.init_kwargs == asked.init_kwargs
    assert ours.get_vocab() == asked.get_vocab()


def _named(page: Page, number: int | None) -> str:
    return next(node.text for node in page.nodes if node.id == number)


def test_look_ups_are_answerable_from_instruction_and_page() -> None:
    random, kinds = Random(4), set()
    for _ in range(400):
        sample = lookup(random, ("Norda", "lamp"))
        kinds.add(sample.source)
        action = sample.action
        assert parse_answer(format_answer(action, sample.page)) == action
        if action.name == "exit":
            assert action.argument is not None
            assert action.argument in RENDERERS["lines/1"](sample.page)
        elif action.argument is not None:
            assert action.argument in sample.instruction
        else:
            assert _named(sample.page, action.element) is not None
    assert kinds == {f"lookup/{name}" for name in LOOKUPS}


def test_the_same_seed_draws_the_same_look_ups() -> None:
    assert [lookup(Random(9)) for _ in range(5)] == [lookup(Random(9)) for _ in range(5)]


def test_further_questions_are_answered_on_the_page_they_are_asked_about() -> None:
    random = Random(6)
    for _ in range(100):
        page = lookup(random).page
        for instruction, action in questions(random, page, 6):
            if action.name == "exit":
                assert action.argument in RENDERERS["lines/1"](page)
            else:
                assert _named(page, action.element) in instruction


def test_a_sample_is_read_exactly_as_an_actor_would_read_it(tokenizer: PreTrainedTokenizerFast) -> None:
    sample = lookup(Random(3))
    further = questions(Random(3), sample.page, 2)
    encoded = encode(tokenizer, sample, further)
    answers = [
        tokenizer.decode(
            [token for token, answered in zip(encoded.ids, encoded.answered, strict=True) if answered]
        )
    ]
    expected = [sample.action, *(action for _, action in further)]
    assert answers == ["".join(f"{format_answer(action, sample.page)}<|end|>" for action in expected)]
    start = encoded.answered.index(True)
    assert tokenizer.decode(encoded.ids[:start]).endswith("<|end|><|assistant|>")


def test_a_batch_marks_the_tokens_that_predict_answers_and_no_padding(
    tokenizer: PreTrainedTokenizerFast,
) -> None:
    random = Random(7)
    samples = [encode(tokenizer, lookup(random)) for _ in range(5)]
    batch = collate(samples, pad=0)
    assert batch.ids.shape[1] % STRIDE == 0
    for row, sample in enumerate(samples):
        targets = batch.ids[row, 1:]
        answer = [token for token, answered in zip(sample.ids, sample.answered, strict=True) if answered]
        assert targets[batch.answer[row]].tolist() == answer
        assert int(batch.answer[row].sum() + batch.prompt[row].sum()) == len(sample.ids) - 1


def test_demonstrations_survive_their_file_and_a_damaged_line_is_named(tmp_path: Path) -> None:
    path = tmp_path / "demonstrations.jsonl"
    samples = [lookup(Random(seed)) for seed in range(3)]
    append_samples(path, samples[:2])
    append_samples(path, samples[2:])
    assert list(read_samples(path)) == samples
    with path.open("ab") as file:
        file.write(b'{"instruction": 3}\n')
    with pytest.raises(SampleFileError, match="line 4"):
        list(read_samples(path))
    with pytest.raises(SampleFileError, match="cannot be read"):
        list(read_samples(tmp_path / "absent.jsonl"))


def test_only_the_first_episodes_of_the_families_named_are_imitated() -> None:
    family, limit = "store/find_price", 3
    samples = [
        lookup(Random(seed)).__class__(
            "i", (), lookup(Random(seed)).page, lookup(Random(seed)).action, source, seed
        )
        for seed in range(limit + 5)
        for source in (family, "store/compare")
    ]
    mix = choose(samples, imitated={family: limit}, share=0.5, page_share=0.1, vocabulary=())
    assert {sample.source for sample in mix.demonstrations} == {family}
    assert {sample.seed for sample in mix.demonstrations} == set(range(limit))
    assert len(mix.pages) == len(samples)


def test_demonstrators_in_haste_leave_instead_of_the_last_action_on_a_page() -> None:
    def episode(family: str) -> list[DemonstratedStep]:
        page = lookup(Random(0)).page
        actions = (Action(name="Search", element=1, argument="a"), Action(name="Click", element=2), LEAVE)
        return [DemonstratedStep("i", (), page, action, family, seed=7) for action in actions]

    calm, hasty = episode("store/find_price"), episode("store/buy")
    mix = choose(
        calm + hasty,
        imitated={"store/find_price": 1, "store/buy": 1},
        share=0.5,
        page_share=0.1,
        vocabulary=(),
        hasty=["store/buy"],
    )
    assert [sample for sample in mix.demonstrations if sample.source == "store/find_price"] == calm
    others = [sample for sample in mix.demonstrations if sample.source == "store/buy"]
    assert others.count(hasty[0]) == OF
    assert others.count(hasty[1]) == OF - HASTY
    leaving = msgspec.structs.replace(hasty[1], action=LEAVE)
    assert others.count(leaving) == OF  # early ones, and the proper ends, which here see the same page


def test_shipping_rounds_the_weights_once_and_for_all(tmp_path: Path) -> None:
    folder = write_tiny_policy(tmp_path / "trained")
    export(folder, tmp_path / "shipped")
    export(tmp_path / "shipped", tmp_path / "again")
    shipped, again = (load_policy(tmp_path / name).model for name in ("shipped", "again"))
    assert state_digest(shipped) == state_digest(again)
    assert all(value.dtype == torch.float32 for value in shipped.parameters())


@pytest.mark.slow
def test_a_few_seconds_of_training_lower_the_loss_and_are_measured(tmp_path: Path) -> None:
    folder = write_tiny_policy(tmp_path / "policy")
    before = state_digest(load_policy(folder).model)
    mix = choose((), imitated={}, share=0.0, page_share=0.0, vocabulary=())
    train(folder, mix, Plan(minutes=0.1, rate=2e-3, seed=1, batch_tokens=1024, workers=1, fused=False))
    assert state_digest(load_policy(folder).model) != before
    samples = [lookup(Random(seed)) for seed in range(20)]
    found = exactness(folder, samples)
    assert sum(kind.samples for kind in found.values()) == 20


def test_the_shipped_policy_reads_pages_it_has_never_seen() -> None:
    random = Random(-1)
    samples = [lookup(random) for _ in range(300)]
    found = exactness(base_policy_folder(), samples)
    assert sum(kind.exact for kind in found.values()) >= 0.74 * 300
    for kind in ("check", "search", "select", "read", "read_property"):
        exact, count = found[f"lookup/{kind}"]
        assert exact >= 0.8 * count
