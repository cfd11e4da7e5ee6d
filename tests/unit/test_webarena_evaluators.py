"""WebArena's evaluators on stored evidence: what each way to compare lets pass and what it does not."""

from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hindcast.actors.environments.webarena.evaluators import evaluate, questions
from hindcast.actors.environments.webarena.matchers import is_word, tokenize
from hindcast.actors.environments.webarena.probes import (
    MAX_ALL_BYTES,
    MAX_CHARACTERS,
    ProbedPage,
    decode_probes,
    encode_probes,
)
from hindcast.actors.environments.webarena.tasks import goal_of
from hindcast.actors.judges.rules import RuleJudge
from hindcast.actors.judges.strict import StrictJudge
from hindcast.core.domain.evidence import Evidence
from hindcast.core.domain.task import Task
from stories.webarena_tasks import only_task, raw_task, verdict


def asking(folder: Path, *, lite: bool = True, **references: Any) -> Task:
    """A task whose answer is compared with these."""
    note = references.pop("string_note", "")
    return only_task(folder, raw_task(lite=lite, eval={"reference_answers": references, "string_note": note}))


def ending(folder: Path, address: str, note: str | None, *, lite: bool = True) -> Task:
    """A task that is done where it ends."""
    wanted = {"eval_types": ["url_match"], "reference_answers": None, "reference_url": address}
    return only_task(folder, raw_task(lite=lite, eval=wanted | ({"url_note": note} if note else {})))


def showing(folder: Path, required: dict[str, Any], *, lite: bool = True) -> Task:
    """A task that is done by what a page shows."""
    target = {"url": "last", "locator": "document.title", "required_contents": required}
    wanted = {"eval_types": ["program_html"], "reference_answers": None, "program_html": [target]}
    return only_task(folder, raw_task(lite=lite, eval=wanted))


def page_of(characters: int) -> str:
    """A page as sites make them, of about so many characters."""
    chance = Random(characters)
    row = '<tr class="data-row"><td class="col-id">{}</td><td><a href="/order/{}/view">Order of {}</a></td></tr>\n'
    rows = [
        row.format(chance.random(), chance.getrandbits(40), chance.random())
        for _ in range(characters // 140 + 1)
    ]
    return "".join(rows)[:characters]


def seen(text: str | None, **more: Any) -> tuple[ProbedPage, ...]:
    return (ProbedPage(url="http://forum.test:9999/", found=text, **more),)


@pytest.mark.parametrize(
    ("lite", "references", "good", "bad"),
    [
        (True, {"exact_match": "Yes"}, '"yes"', "yes, it is"),
        (True, {"exact_match": "N/A"}, "N/A", "not there"),
        (False, {"exact_match": "Yes"}, " 'YES' ", "no"),
        # a single word is a word in Lite, and only a single character in WebArena
        (True, {"must_include": ["5"]}, "It has 5.", "It has 15"),
        (True, {"must_include": ["39.64"]}, "It costs $39.64.", "It costs $139.64."),
        (True, {"must_include": ["65 |OR| 3"]}, "3 of them", "30 of them"),
        (True, {"must_include": ["Sean Miller", "sean@x.com"]}, "sean miller <sean@x.com>", "sean miller"),
        (True, {"must_include": "yjlou"}, "by yjlou", "by yjlouis"),
        (False, {"must_include": ["5"]}, "It has 5, I think", "It has 15"),
        (False, {"must_include": ["39.64"]}, "It costs $139.64.", "It costs $40"),
        (False, {"must_include": ["5", "6"]}, "15 and 16", "15 and 17"),
        # Lite also counts the parts of a word between slashes
        (True, {"must_include": ["Rachel"]}, "T. Gannon/Rachel/Anna", "T. Gannon/Rachelle"),
        (True, {"must_include": ["n/a"]}, "the phone is n/a", "the phone is n / a"),
        (True, {"must_include": ["65 |OR| 3"]}, "2/3", "2/33"),
        # WebArena knows alternatives on pages only: in an answer the reference is the whole text
        (False, {"must_include": ["65 |OR| 3"]}, "65 |or| 3", "65"),
        (False, {"must_include": ["65 |OR| 3"]}, "it is 65 |OR| 3", "1365 apples"),
        (True, {"fuzzy_match": "N/A", "string_note": "there is none"}, "N/A", ""),
    ],
)
def test_an_answer_is_compared_as_its_release_does(
    tmp_path: Path, lite: bool, references: dict[str, Any], good: str, bad: str
) -> None:
    task = asking(tmp_path, lite=lite, **references)
    assert verdict(task, answer=good).outcome == "success"
    failed = verdict(task, answer=bad)
    assert (failed.outcome, failed.reward) == ("failure", 0.0)


def test_who_gave_no_answer_has_failed(tmp_path: Path) -> None:
    assert verdict(asking(tmp_path, must_include=["5"])).outcome == "failure"
    assert verdict(asking(tmp_path, fuzzy_match=["five"])).outcome == "failure"


@pytest.mark.parametrize(
    ("lite", "address", "note", "good", "bad"),
    [
        (
            True,
            "__REDDIT__/f/books",
            None,
            "http://forum.test:9999/f/books/",
            "http://forum.test:9999/f/books?a=1",
        ),
        (
            True,
            "__REDDIT__/f/books",
            "EXACT",
            "http://forum.test:9999/f/books",
            "http://forum.test:9999/f/book",
        ),
        (
            True,
            "__REDDIT__/f/a |OR| __REDDIT__/f/b",
            "GOLD in PRED",
            "http://forum.test:9999/f/b/12/title",
            "http://forum.test:9999/f/c",
        ),
        (
            True,
            "__REDDIT__/?q=a&s=b",
            "GOLD in PRED",
            "http://forum.test:9999/?q=a&s=b&p=1",
            "http://forum.test:9999/?s=b&q=a",
        ),
        (
            False,
            "__REDDIT__/?q=a&s=b",
            None,
            "http://forum.test:9999/?s=b&q=a",
            "http://forum.test:9999/?q=a",
        ),
        (
            False,
            "__REDDIT__/f/a?s=x |OR| __REDDIT__/f/b?s=y",
            "GOLD in PRED",
            "http://forum.test:9999/f/b?s=x",
            "http://forum.test:9999/f/b?s=z",
        ),
        (False, "__REDDIT__/f/a", "EXACT", "http://forum.test:9999/f/a/", "http://forum.test:9999/f/a/b"),
        # only a slash at the end of the whole address is dropped
        (
            False,
            "__REDDIT__/f/a/?s=x",
            None,
            "http://forum.test:9999/f/a/?s=x",
            "http://forum.test:9999/f/a?s=x",
        ),
        (False, "__REDDIT__/f/a/", None, "http://forum.test:9999/f/a/b?s=x", "http://forum.test:9999/f/b"),
        # the parameters of a path's last segment are no part of it
        (
            False,
            "__REDDIT__/f/a;v=1?s=x",
            None,
            "http://forum.test:9999/f/a;v=2?s=x",
            "http://forum.test:9999/f/b;v=1?s=x",
        ),
    ],
)
def test_where_an_episode_ended_is_compared_as_its_release_does(
    tmp_path: Path, lite: bool, address: str, note: str | None, good: str, bad: str
) -> None:
    task = ending(tmp_path, address, note, lite=lite)
    assert verdict(task, ended=good).outcome == "success"
    assert verdict(task, ended=bad).outcome == "failure"


@pytest.mark.parametrize(
    ("lite", "required", "good", "bad"),
    [
        (True, {"exact_match": "Good idea"}, "good idea", "good idea "),
        (False, {"exact_match": "Good idea"}, "good idea ", "bad idea"),
        (True, {"must_include": ["red |OR| blue", "a b"]}, "blue a b", "blueish a b"),
        (False, {"must_include": ["A & B"]}, "a &amp; b", "a and b"),
        (True, {"must_include": ["@vinta"]}, "by @vinta!", "by vinta"),
    ],
)
def test_what_a_page_shows_is_compared_as_its_release_does(
    tmp_path: Path, lite: bool, required: dict[str, Any], good: str, bad: str
) -> None:
    task = showing(tmp_path, required, lite=lite)
    assert verdict(task, looks=seen(good)).outcome == "success"
    assert verdict(task, looks=seen(bad)).outcome == "failure"


def test_every_check_must_hold(tmp_path: Path) -> None:
    task = only_task(
        tmp_path,
        raw_task(
            eval={
                "eval_types": ["string_match", "url_match"],
                "reference_answers": {"exact_match": "Yes"},
                "reference_url": "__REDDIT__/f/books",
            }
        ),
    )
    there, elsewhere = "http://forum.test:9999/f/books", "http://forum.test:9999/"
    assert verdict(task, answer="Yes", ended=there).outcome == "success"
    assert verdict(task, answer="Yes", ended=elsewhere).outcome == "failure"
    assert verdict(task, answer="No", ended=there).outcome == "failure"


def test_what_only_an_endpoint_can_tell_is_undecided_and_asked(tmp_path: Path) -> None:
    task = asking(tmp_path, fuzzy_match=["13 min", "by car"])
    evidence = Evidence(answer="Thirteen minutes by car", final_url="", probes={})
    undecided = evaluate(task, evidence)
    assert (undecided.outcome, undecided.reward) == ("undecided", 0.0)
    assert "endpoint" in undecided.reason
    [question] = questions(task, evidence)
    assert (question.reference, question.answer) == ("13 min, by car", "thirteen minutes by car")
    assert question.words == task.instruction
    assert evaluate(task, evidence, {question: True}).outcome == "success"
    assert evaluate(task, evidence, {question: False}).outcome == "failure"


def test_webarena_asks_about_one_reference_at_a_time(tmp_path: Path) -> None:
    task = asking(tmp_path, lite=False, fuzzy_match=["13 min", "by car"])
    evidence = Evidence(answer="13 min by car", final_url="", probes={})
    one, other = questions(task, evidence)
    assert (one.reference, other.reference) == ("13 min", "by car")
    assert evaluate(task, evidence, {one: True}).outcome == "undecided"
    assert evaluate(task, evidence, {one: True, other: False}).outcome == "failure"


def test_a_reason_why_a_task_is_impossible_is_asked_about(tmp_path: Path) -> None:
    task = asking(tmp_path, fuzzy_match="N/A", string_note="orders cannot be added")
    evidence = Evidence(answer="I cannot add orders", final_url="", probes={})
    [question] = questions(task, evidence)
    assert (question.kind, question.reference) == ("impossible", "orders cannot be added")
    assert evaluate(task, evidence, {question: True}).outcome == "success"


def test_nothing_is_asked_where_a_check_has_failed(tmp_path: Path) -> None:
    task = asking(tmp_path, must_include=["Acadia"], fuzzy_match=["10h 33min"])
    evidence = Evidence(answer="Yellowstone, ten hours", final_url="", probes={})
    assert evaluate(task, evidence).outcome == "failure"
    assert questions(task, evidence) == ()


def test_a_page_that_nobody_could_look_at_leaves_the_episode_undecided(tmp_path: Path) -> None:
    task = showing(tmp_path, {"must_include": ["red"]})
    judgment = verdict(task, looks=seen(None, problem="net::ERR_CONNECTION_REFUSED"))
    assert judgment.outcome == "undecided"
    assert "net::ERR_CONNECTION_REFUSED" in judgment.reason
    assert verdict(task).outcome == "undecided"


@pytest.mark.parametrize("lite", [True, False])
@pytest.mark.parametrize("length", [20_000, 150_001, 1_000_000])
def test_a_whole_page_is_read_to_its_end(tmp_path: Path, lite: bool, length: int) -> None:
    page = page_of(length)
    task = showing(tmp_path, {"must_include": ["mouth guard", "teal"]}, lite=lite)
    assert verdict(task, looks=seen(f"mouth guard {page} teal")).outcome == "success"
    assert (
        verdict(task, looks=seen(f"mouth guard {page} {'tealish' if lite else 'tea'}")).outcome == "failure"
    )


@pytest.mark.parametrize("lite", [True, False])
def test_of_a_text_too_long_to_be_stored_the_passages_that_decide_are(tmp_path: Path, lite: bool) -> None:
    task = showing(tmp_path, {"must_include": ["a & b", "5"]}, lite=lite)
    mine, noise = "a & b" if lite else "a &amp; b", Random(0).randbytes(2 * MAX_ALL_BYTES).hex()
    assert verdict(task, looks=seen(f"{noise} {mine} {noise} 5 {noise}")).outcome == "success"
    assert verdict(task, looks=seen(f"{mine} {noise} x")).outcome == ("failure" if lite else "success")
    assert verdict(task, looks=seen(f"{noise} 5 x")).outcome == "failure"
    [kept] = decode_probes(
        Evidence(
            answer=None,
            final_url="",
            probes=encode_probes(seen(f"{noise} {mine} {noise}"), goal_of(task).evaluation),
        )
    )
    assert kept.excerpt
    assert len(kept.found or "") < 10_000


def test_a_text_longer_than_what_is_read_decides_only_by_what_it_holds(tmp_path: Path) -> None:
    task = showing(tmp_path, {"must_include": ["red"]})
    assert verdict(task, looks=seen("red " + "x" * MAX_CHARACTERS)).outcome == "success"
    assert verdict(task, looks=seen("x" * MAX_CHARACTERS + " red")).outcome == "undecided"


def test_a_text_cut_by_an_earlier_version_stays_as_it_was_recorded(tmp_path: Path) -> None:
    task = showing(tmp_path, {"must_include": ["red"]})
    recorded = {"looks": [{"url": "http://forum.test/", "found": "x" * 150_000, "cut": True, "problem": ""}]}
    judgment = evaluate(task, Evidence(answer=None, final_url="", probes=recorded))
    assert (judgment.outcome, "cut at 150000 characters" in judgment.reason) == ("undecided", True)


def test_texts_of_all_looks_fit_into_one_event(tmp_path: Path) -> None:
    targets = [
        {"url": "last", "locator": "", "required_contents": {"must_include": [f"number {number}"]}}
        for number in range(9)
    ]
    entry = raw_task(
        eval={"eval_types": ["program_html"], "reference_answers": None, "program_html": targets}
    )
    task = only_task(tmp_path, entry)
    looks = tuple(
        ProbedPage(url="http://forum.test/", found=f"{page_of(400_000)} number {number}")
        for number in range(9)
    )
    probes = encode_probes(looks, goal_of(task).evaluation)
    assert len(msgspec.msgpack.encode(probes)) <= MAX_ALL_BYTES + 2000
    kept = decode_probes(Evidence(answer=None, final_url="", probes=probes))
    assert kept[0] == looks[0]
    assert kept[-1].excerpt
    assert verdict(task, looks=looks).outcome == "success"
    assert verdict(task, looks=(*looks[:-1], looks[0])).outcome == "failure"
    without = decode_probes(Evidence(answer=None, final_url="", probes=encode_probes(looks)))
    assert (without[0], without[-1].cut) == (looks[0], True)


def test_half_a_character_from_a_page_can_be_recorded() -> None:
    [look] = decode_probes(Evidence(answer=None, final_url="", probes=encode_probes(seen("a\ud800b"))))
    assert look.found == "a?b"


def test_the_rule_judges_know_the_environment(tmp_path: Path) -> None:
    task = asking(tmp_path, exact_match="Yes")
    evidence = Evidence(answer="yes", final_url="", probes={})
    for judge in (RuleJudge(), StrictJudge()):
        assert judge.evaluate(task, evidence).outcome == "success"


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("no. 5 is here. yes", ["no", ".", "5", "is", "here", ".", "yes"]),
        ("12. maple ave. 5. 6", ["12.", "maple", "ave.", "5", ".", "6"]),
        ("is. 0. .", ["is", ".", "0.", "."]),
        ("a.com,,design hollister's. min", ["a.com", ",", ",design", "hollister", "'s", ".", "min"]),
        (
            "costs $5. yes (no. 7.) b. yes b. 6",
            ["costs", "$", "5", ".", "yes", "(", "no", ".", "7", ".", ")", "b.", "yes", "b", ".", "6"],
        ),
        (
            "at 10:30. it, p.m. and etc. e.g. a",
            ["at", "10:30.", "it", ",", "p.m.", "and", "etc", ".", "e.g", ".", "a"],
        ),
        ("a11yproject.com, n/a", ["a11yproject.com", ",", "n/a"]),
        ("it's 10:30; don't", ["it", "'s", "10:30", ";", "do", "n't"]),
        ('<b class="x">9.99</b>', ["<", "b", "class=", '"', "x", '"', ">", "9.99", "<", "/b", ">"]),
    ],
)
def test_words_are_those_of_the_penn_treebank(text: str, tokens: list[str]) -> None:
    assert tokenize(text) == tokens


@given(st.text(alphabet="ab5.,'\"- $@<>()!", max_size=40))
def test_no_text_is_lost_between_words(text: str) -> None:
    assert "".join(tokenize(text)) == "".join(text.split())


def test_only_one_token_is_a_word() -> None:
    assert is_word("-79.933")
    assert not is_word("sean@x.com")
    assert not is_word("")
