"""Constrained answers: what may be drawn, what it is worth, and that scoring and replaying find the same."""

import asyncio
from pathlib import Path

import numpy as np
import pytest
import torch

from fakes.tiny_policy import write_tiny_policy
from hindcast.actors.engines.base import Generation
from hindcast.actors.engines.guide import FormGuide, Vocabulary, texts_of
from hindcast.actors.engines.in_process import InProcessEngine
from hindcast.actors.engines.rescorer import GivenAnswer, Rescorer
from hindcast.core.domain.action import Action
from hindcast.core.domain.observation import Node, Page
from hindcast.core.domain.sampling import Sampling
from hindcast.core.errors import CorruptEvent, EngineFailed
from hindcast.core.grammar.allowed_tokens import pack_allowed, unpack_allowed
from hindcast.core.grammar.answer_constraints import ActionChoice, Form, FreeText, forms_of
from hindcast.core.grammar.answer_parser import parse_answer
from hindcast.core.models.logprobs import SampleToScore, restrict, score
from hindcast.core.models.policy import load_policy
from hindcast.core.settings.schema import PolicySettings

pytestmark = pytest.mark.torch

PROMPT = list(range(30, 70))
PAGE = Page(
    url="http://store/search?q=lamp",
    title="Results",
    nodes=(
        Node(kind="link", tag="a", text='12" "Ångström" lamp \\ oak', id=3),
        Node(kind="link", tag="a", text="Next page", id=14),
        Node(kind="input", tag="input", text="Search the store", id=2),
        Node(kind="select", tag="select", text="Price", options=("any price", 'up to 12"'), id=7),
    ),
)
CHOICES = (
    ActionChoice(action=Action(name="Click", element=3)),
    ActionChoice(action=Action(name="Click", element=14)),
    ActionChoice(action=Action(name="Search", element=2), free=True),
    ActionChoice(action=Action(name="Select Dropdown Option", element=7, argument='up to 12"')),
    ActionChoice(action=Action(name="Go_backward")),
    ActionChoice(action=Action(name="exit"), free=True),
)
MAX_TOKENS = 48


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_policy(tmp_path_factory.mktemp("policy"))


def sampling(seed: int, *, temperature: float = 1.0, max_tokens: int = MAX_TOKENS) -> Sampling:
    return Sampling(temperature=temperature, max_tokens=max_tokens, seed=seed)


def is_among(action: object, choices: tuple[ActionChoice, ...]) -> bool:
    """Whether an answer came to one of the choices, whatever its free argument."""
    assert isinstance(action, Action), action
    return any(
        (choice.action.name, choice.action.element) == (action.name, action.element)
        and (choice.free or choice.action.argument == action.argument)
        for choice in choices
    )


async def answers(
    policy: Path, forms: tuple[Form, ...], count: int, *, temperature: float = 1.0
) -> list[Generation]:
    async with InProcessEngine(policy, PolicySettings()) as engine:
        calls = [
            engine.generate([*PROMPT, seed], sampling(seed, temperature=temperature), forms)
            for seed in range(count)
        ]
        return list(await asyncio.gather(*calls))


@pytest.mark.parametrize("rationale", [False, True])
@pytest.mark.parametrize("temperature", [0.0, 1.0, 3.0])
async def test_a_random_policy_gives_only_answers_that_are_allowed(
    policy: Path, rationale: bool, temperature: float
) -> None:
    tokenizer = load_policy(policy).tokenizer
    given = await answers(policy, forms_of(CHOICES, PAGE, rationale=rationale), 8, temperature=temperature)
    for answer in given:
        text = tokenizer.decode(answer.token_ids, skip_special_tokens=True)
        assert is_among(parse_answer(text), CHOICES), text
        assert text.startswith("# ") or not rationale
        assert answer.finish == "stop", "an answer is never cut within its call"
        assert len(unpack_allowed(answer.allowed)) == len(answer.token_ids)


@pytest.mark.parametrize("temperature", [0.0, 1.0, 2.0])
async def test_log_probabilities_are_those_of_what_was_left_of_the_vocabulary(
    policy: Path, temperature: float
) -> None:
    given = await answers(policy, forms_of(CHOICES, PAGE, rationale=False), 6, temperature=temperature)
    model = load_policy(policy).model
    scored = score(
        model,
        [SampleToScore([*PROMPT, n], one.token_ids, one.allowed) for n, one in enumerate(given)],
        temperature=temperature,
        tokens_per_forward=256,
    )
    forced = 0
    for one, logprobs in zip(given, scored, strict=True):
        assert np.abs(np.array(one.logprobs) - logprobs.detach().numpy()).max() < 1e-4
        sets = unpack_allowed(one.allowed)
        for token, logprob, allowed in zip(one.token_ids, one.logprobs, sets, strict=True):
            assert allowed[token]
            if allowed.sum() == 1:
                forced += 1
                assert logprob == 0.0, "what has no alternative is certain"
    assert forced
    free = score(
        model,
        [SampleToScore([*PROMPT, 0], given[0].token_ids)],
        temperature=temperature,
        tokens_per_forward=256,
    )
    assert free[0].sum() < scored[0].sum(), "the free distribution gives the same answer less"


def test_scoring_a_constrained_answer_by_hand() -> None:
    logits = torch.tensor([[1.0, 2.0, 3.0, 4.0]], requires_grad=True)
    only = np.array([True, False, True, False])
    logprobs = torch.log_softmax(restrict(logits, [only]), dim=-1)
    expected = 3.0 - np.log(np.exp(1.0) + np.exp(3.0))
    assert logprobs[0, 2].item() == pytest.approx(expected)
    (-logprobs[0, 2]).backward()
    assert logits.grad is not None
    share = np.exp(1.0) / (np.exp(1.0) + np.exp(3.0))
    assert logits.grad[0].tolist() == pytest.approx([share, 0.0, -share, 0.0]), (
        "no gradient where nothing was allowed"
    )
    assert restrict(logits, [None]) is logits


async def test_others_in_the_batch_are_not_constrained(policy: Path) -> None:
    forms = forms_of(CHOICES, PAGE, rationale=False)
    async with InProcessEngine(policy, PolicySettings()) as engine:
        alone = await engine.generate(PROMPT, sampling(1))
        beside, constrained = await asyncio.gather(
            engine.generate(PROMPT, sampling(1)), engine.generate(PROMPT, sampling(1), forms)
        )
    assert beside.token_ids == alone.token_ids
    assert not beside.allowed
    assert constrained.allowed


async def test_an_answer_comes_out_again_from_the_recorded_sets_alone(policy: Path) -> None:
    given = await answers(policy, forms_of(CHOICES, PAGE, rationale=True), 6)
    async with InProcessEngine(policy, PolicySettings()) as engine:
        again = [
            await engine.generate([*PROMPT, seed], sampling(seed), one.allowed)
            for seed, one in enumerate(given)
        ]
        other = await engine.generate([*PROMPT, 0], sampling(99), given[0].allowed)
    assert [one.token_ids for one in again] == [one.token_ids for one in given]
    assert len(other.token_ids) <= len(given[0].token_ids) + 1
    rescored = Rescorer(policy, threads=1, tokens_per_forward=512).rescore(
        [
            GivenAnswer(
                prompt_ids=[*PROMPT, seed],
                action_ids=one.token_ids,
                logprobs=one.logprobs,
                sampling=sampling(seed),
                allowed=one.allowed,
            )
            for seed, one in enumerate(given)
        ]
    )
    assert max(max(one.differences) for one in rescored) < 1e-4
    assert max(max(one.misses) for one in rescored) < 1e-4


async def test_what_cannot_be_said_in_time_fails_for_its_caller_alone(policy: Path) -> None:
    forms: tuple[Form, ...] = (("a text that takes more than three tokens to say",),)
    async with InProcessEngine(policy, PolicySettings()) as engine:
        with pytest.raises(EngineFailed, match=r"none of 1 allowed answers .* 3 tokens .* Raise it"):
            await engine.generate(PROMPT, sampling(1, max_tokens=3), forms)
        shortest = await engine.generate(PROMPT, sampling(1, max_tokens=3), (("exit()",), (")",)))
    assert load_policy(policy).tokenizer.decode(shortest.token_ids, skip_special_tokens=True) in (
        "exit()",
        ")",
    )
    assert len(shortest.token_ids) <= 3


def test_fixed_and_free_text_are_told_apart_or_refused(policy: Path) -> None:
    loaded = load_policy(policy)
    vocabulary = Vocabulary(loaded.tokenizer, size=2048, end_tokens=loaded.stops)
    mixed: tuple[Form, ...] = (('f("', FreeText.QUOTED, '")'), ('f("fixed")',))
    with pytest.raises(ValueError, match="same place"):
        FormGuide(mixed, vocabulary, max_tokens=20)


def test_tokens_mean_what_the_tokenizer_decodes(policy: Path) -> None:
    tokenizer = load_policy(policy).tokenizer
    for token, text in texts_of(tokenizer).items():
        assert tokenizer.decode([token]) == text.decode("utf-8", "replace")
    assert tokenizer.eos_token_id not in texts_of(tokenizer)


def test_sets_are_packed_and_unpacked() -> None:
    random = np.random.default_rng(3)
    sets = [random.random(70) < share for share in (0.02, 0.5, 0.98, 0.0, 1.0)] * 2
    packed = pack_allowed(sets)
    assert (unpack_allowed(packed) == np.array(sets)).all()
    assert len(pack_allowed(sets[:5] * 8)) < len(packed) + 4 * 32, "equal sets are stored once"
    assert pack_allowed([]) == b""
    for damaged in (b"", packed[:-3], b"\x93\x05\x90\xc4\x04\x00\x00\x00\x00"):
        with pytest.raises(CorruptEvent, match="bytes of allowed tokens are none"):
            unpack_allowed(damaged)
