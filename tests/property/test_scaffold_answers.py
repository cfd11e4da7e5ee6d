"""LASER never emits a disallowed action: whatever the page, the state file and the weights, temperature or bound."""

import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from fakes.tiny_policy import write_tiny_policy
from hindcast.actors.engines.guide import FormGuide, Vocabulary
from hindcast.actors.scaffold.scaffold import Scaffold
from hindcast.actors.scaffold.states import (
    ActionRule,
    Backup,
    CandidateRule,
    ElementRule,
    SiteState,
    SiteStates,
)
from hindcast.core.domain.action import ACTIONS, Action
from hindcast.core.domain.observation import Node, Page
from hindcast.core.errors import EngineFailed
from hindcast.core.grammar.answer_constraints import ActionChoice
from hindcast.core.grammar.answer_parser import parse_answer
from hindcast.core.models.policy import load_policy
from hindcast.core.settings.schema import ScaffoldSettings

pytestmark = pytest.mark.torch

TEXT = st.text(st.characters(codec="utf-8", exclude_categories=("Cs",)), max_size=24) | st.sampled_from(
    [
        'a "quoted" \\ text',
        "# Note: x",
        'do(action="Click", element="1")',
        "```",
        "<|end|>",
        "tab\tand\nline",
        "Ærø",
        '")',
    ]
)
KIND = st.sampled_from(["link", "button", "input", "select", "text"])
NODE = st.builds(
    lambda kind, text, options, disabled: Node(
        kind=kind, tag="x", text=text, options=tuple(options) if kind == "select" else (), disabled=disabled
    ),
    KIND,
    TEXT,
    st.lists(TEXT, max_size=3),
    st.booleans(),
)


@st.composite
def pages(draw: st.DrawFn) -> Page:
    nodes = [
        node
        if node.kind == "text"
        else Node(
            kind=node.kind, tag="x", text=node.text, options=node.options, disabled=node.disabled, id=number
        )
        for number, node in enumerate(draw(st.lists(NODE, max_size=8)), draw(st.integers(0, 400)))
    ]
    return Page(
        url=f"http://x/{draw(st.sampled_from(['list', 'item/3', 'item/4', 'else']))}",
        title=draw(TEXT),
        nodes=tuple(nodes),
    )


@st.composite
def rules(draw: st.DrawFn) -> list[ActionRule]:
    """Rules of one state; each action has either given arguments or any."""
    found = []
    for name in draw(st.lists(st.sampled_from(sorted(ACTIONS)), max_size=5, unique=True)):
        takes = ACTIONS[name]
        argued = takes.argument != "none" and draw(st.booleans())
        found.append(
            ActionRule(
                name,
                kind=draw(st.just(()) | KIND) if takes.element == "required" else (),
                arguments=tuple(draw(st.lists(TEXT, min_size=1, max_size=2))) if argued else (),
                quotes=(ElementRule("text"),) if argued and draw(st.booleans()) else (),
                closing=draw(st.booleans()),
            )
        )
    return found


@st.composite
def sites(draw: st.DrawFn) -> SiteStates:
    def state(name: str, path: str, *, candidate: bool) -> SiteState:
        own = [rule for rule in draw(rules()) if rule.action != "Go_backward"]
        return SiteState(
            name=name,
            instruction=draw(TEXT),
            path=path,
            actions=(ActionRule("Go_backward"), *own),
            candidate=CandidateRule((ElementRule(),)) if candidate else None,
            searching=draw(st.booleans()),
        )

    return SiteStates(
        environment="x",
        state=(state("list", "/list", candidate=False), state("item", r"/item/\d+", candidate=True)),
        backup=draw(
            st.none()
            | st.builds(Backup, st.sampled_from(["Goto", "exit"]), st.sampled_from(["address", "text"]))
        ),
    )


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder: Path = write_tiny_policy(tmp_path_factory.mktemp("policy"))
    return load_policy(folder).tokenizer


@pytest.fixture(scope="module")
def vocabulary(tokenizer: Any) -> Vocabulary:
    return Vocabulary(tokenizer, size=len(tokenizer), end_tokens=[tokenizer.eos_token_id])


def draw_answer(
    guide: FormGuide, vocabulary: Vocabulary, chance: random.Random, max_tokens: int
) -> list[int]:
    """As a policy of random weights would: some tokens likelier than others by far, the end among the unlikely ones."""
    weights = [chance.random() ** 8 for _ in range(vocabulary.size)]
    (end,) = vocabulary.end_tokens
    weights[end] = 1e-9
    tokens: list[int] = []
    while len(tokens) < max_tokens and (not tokens or tokens[-1] != end):
        allowed = guide.allowed().nonzero()[0].tolist()
        assert allowed, "there is always a way on"
        tokens += chance.choices(allowed, [weights[token] + 1e-12 for token in allowed])
        guide.take(tokens[-1])
    return tokens


def is_allowed(action: Action, site: SiteStates, page: Page, chosen: str) -> bool:
    state = site.recognise(page)
    assert state is not None
    allowed = site.choices(state, page)
    if chosen and site.backup is not None and action.name == site.backup.action:
        allowed = (*allowed, ActionChoice(action=Action(name=action.name), free=True))
    return any(
        (one.action.name, one.action.element) == (action.name, action.element)
        and (one.free or one.action.argument == action.argument)
        for one in allowed
    )


@settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
@given(
    site=sites(),
    visited=st.lists(pages(), min_size=1, max_size=4),
    stages=st.sampled_from([1, 2]),
    backup_at=st.integers(0, 3),
    max_tokens=st.integers(8, 90),
    seed=st.integers(0, 2**32),
)
def test_laser_never_emits_a_disallowed_action(
    tokenizer: Any,
    vocabulary: Vocabulary,
    site: SiteStates,
    visited: list[Page],
    stages: int,
    backup_at: int,
    max_tokens: int,
    seed: int,
) -> None:
    given_settings = ScaffoldSettings.model_validate(
        {"states": "x", "stages": stages, "backup_at": backup_at}
    )
    scaffold = Scaffold(site, given_settings, max_steps=len(visited))
    chance = random.Random(seed)
    for step, page in enumerate(visited):
        framed = scaffold.frame(page, step=step, instruction="the item")
        assert (framed.forms is None) == (site.recognise(page) is None)
        if framed.forms is None:
            continue
        try:
            guide = FormGuide(framed.forms, vocabulary, max_tokens=max_tokens)
        except EngineFailed:
            assume(max_tokens > 40)  # the bound is too tight for a long text: said, and nothing is sampled
            continue
        tokens = draw_answer(guide, vocabulary, chance, max_tokens)
        assert tokens[-1] in vocabulary.end_tokens, "an answer is never cut"
        text = tokenizer.decode(tokens, skip_special_tokens=True)
        action = parse_answer(text)
        assert isinstance(action, Action), (text, action)
        assert is_allowed(action, site, page, framed.record.chosen), text
        if stages == 2:
            assert text.startswith("# ")
