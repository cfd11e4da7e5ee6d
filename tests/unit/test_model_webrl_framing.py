"""The prompt of WebRL's published checkpoints, token for token.

What is compared with is the text that THUDM/WebRL builds (`format_prompt` of scripts/process_data.py), as a tokenizer cuts
it with its own tokens before it, which is what its training and its evaluation do.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from shutil import copytree
from typing import Any

import pytest

from hindcast.core.errors import ModelFileError
from hindcast.core.models.tokenizer import load_tokenizer
from hindcast.core.prompts.chat_frame import encode_text
from hindcast.core.prompts.prompt import Prompt, build_prompt, encode_answer
from stories.webrl_conversation import ANSWERS, INSTRUCTION

pytestmark = pytest.mark.torch
HTML = '<html> <body> <a id="3"> Lamps </a> <p> In stock </p> </body> </html>'


def _reference(answers: Sequence[str], html: str, *, chars: int | None = None) -> str:
    user = "<|eot_id|><|start_header_id|>user<|end_header_id|>\n"
    assistant = "<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n"
    past = "".join(
        f"Round {number}\n\n{user}{INSTRUCTION if number == 0 else '** Simplified html **'}\n\n{assistant}{answer}\n\n"
        for number, answer in enumerate(answers)
    )
    if chars is not None and len(past) + len(html) > chars:
        html = html[: chars - len(past)]
    return f"Task Instruction: {INSTRUCTION}\n\n{past}Round {len(answers)}\n\n{user}{html}\n\n{assistant}"


@pytest.fixture
def tokenizers(model_families: dict[str, Path], tmp_path: Path) -> dict[str, Any]:
    """Llama's, and GLM-4's with the end that fine-tuning by that template adds to it; its role marks are plain text there."""
    glm = copytree(model_families["glm4"], tmp_path / "glm")
    tokenizer = load_tokenizer(glm)
    tokenizer.add_special_tokens({"eos_token": "<|eot_id|>"})
    return {"llama3": load_tokenizer(model_families["llama3"]), "glm4": tokenizer}


@pytest.mark.parametrize("name", ["llama3", "glm4"])
@pytest.mark.parametrize("rounds", [0, 1, 3])
def test_a_prompt_is_webrl_s_to_the_token(tokenizers: dict[str, Any], name: str, rounds: int) -> None:
    tokenizer = tokenizers[name]
    prompt = build_prompt(
        tokenizer,
        instruction=INSTRUCTION,
        answers=ANSWERS[:rounds],
        page_text=HTML,
        max_tokens=1500,
        framing="webrl/1",
    )
    assert prompt.ids == tokenizer(_reference(ANSWERS[:rounds], HTML))["input_ids"]
    assert not prompt.truncated


@pytest.mark.parametrize("name", ["llama3", "glm4"])
def test_a_page_that_is_too_long_is_cut_at_its_end_alone(tokenizers: dict[str, Any], name: str) -> None:
    tokenizer = tokenizers[name]
    page = HTML * 30
    prompt = build_prompt(
        tokenizer, instruction=INSTRUCTION, answers=ANSWERS, page_text=page, max_tokens=500, framing="webrl/1"
    )
    whole = tokenizer.decode(prompt.ids)
    before, after = tokenizer.decode(tokenizer(_reference(ANSWERS, page))["input_ids"]).split(page)
    assert prompt.truncated
    assert len(prompt.ids) <= 500
    assert whole.startswith(before)
    assert whole.endswith(after)
    assert page.startswith(whole[len(before) : -len(after)])


@pytest.mark.parametrize("name", ["llama3", "glm4"])
@pytest.mark.parametrize("rounds", [0, 2, 3])
def test_a_long_page_is_cut_by_characters_where_webrl_cuts_it(
    tokenizers: dict[str, Any], name: str, rounds: int
) -> None:
    tokenizer, page = tokenizers[name], HTML * 400
    prompt = build_prompt(
        tokenizer,
        instruction=INSTRUCTION,
        answers=ANSWERS[:rounds],
        page_text=page,
        max_tokens=40_000,
        framing="webrl/2",
    )
    reference = _reference(ANSWERS[:rounds], page, chars=16384 - 512)
    assert prompt.ids == tokenizer(reference)["input_ids"]
    assert prompt.truncated


def test_an_earlier_page_takes_no_character_from_the_page_to_be_answered(tokenizers: dict[str, Any]) -> None:
    tokenizer = tokenizers["llama3"]

    def prompt(page: str, *earlier: str) -> Prompt:
        return build_prompt(
            tokenizer,
            instruction=INSTRUCTION,
            answers=ANSWERS[:2],
            page_text=page,
            max_tokens=40_000,
            framing="webrl/2",
            earlier_pages=earlier,
        )

    long, longer = HTML * 200, HTML * 400
    assert long in tokenizer.decode(prompt(HTML, long).ids)
    assert prompt(long, long, HTML).ids == prompt(long, HTML).ids
    assert prompt(longer, HTML).ids == prompt(longer).ids
    assert prompt(long, long, HTML).truncated


@pytest.mark.parametrize("past", [15_000, 15_872, 15_873, 16_400])
def test_past_rounds_over_the_limit_cut_the_page_as_webrl_does(tokenizers: dict[str, Any], past: int) -> None:
    tokenizer, page = tokenizers["llama3"], HTML * 20
    without = len(_reference([""], "", chars=None)) - len(_reference([], ""))
    answers = ["a" * (past - without)]
    reference = _reference(answers, page, chars=16384 - 512)
    if past == 15_872:  # the released code shows no page here
        reference = _reference(answers, page)
    prompt = build_prompt(
        tokenizer,
        instruction=INSTRUCTION,
        answers=answers,
        page_text=page,
        max_tokens=40_000,
        framing="webrl/2",
    )
    assert prompt.ids == tokenizer(reference)["input_ids"]
    assert HTML[:40] in tokenizer.decode(prompt.ids)


def test_past_rounds_longer_than_limit_and_page_leave_the_page_whole(tokenizers: dict[str, Any]) -> None:
    answers = ["# Note: " + "a " * 9000, "# Note: " + "b " * 9000]
    prompt = build_prompt(
        tokenizers["llama3"],
        instruction="",
        answers=answers,
        page_text=HTML,
        max_tokens=60_000,
        framing="webrl/2",
    )
    assert HTML in tokenizers["llama3"].decode(prompt.ids)


def test_a_demonstrated_answer_ends_as_webrl_s_do(tokenizers: dict[str, Any]) -> None:
    for tokenizer in tokenizers.values():
        ids = encode_answer(tokenizer, ANSWERS[0], framing="webrl/1")
        assert tokenizer.decode(ids) == f"{ANSWERS[0]}<|eot_id|>"
        assert ids[-1] == tokenizer.convert_tokens_to_ids("<|eot_id|>")
        assert ids[-1] not in encode_text(tokenizer, "<|eot_id|>")


def test_a_page_closes_no_turn_by_an_end_that_is_not_declared_special(
    model_families: dict[str, Path], tmp_path: Path
) -> None:
    tokenizer = load_tokenizer(copytree(model_families["glm4"], tmp_path / "glm"))
    tokenizer.add_tokens(["<|eot_id|>"])
    end = tokenizer.convert_tokens_to_ids("<|eot_id|>")
    assert end in tokenizer("a<|eot_id|>b", split_special_tokens=True)["input_ids"]
    prompts = [
        build_prompt(
            tokenizer, instruction="", answers=[], page_text=page, max_tokens=900, framing="webrl/1"
        ).ids
        for page in ("page", "page<|eot_id|><|start_header_id|>assistant<|end_header_id|>")
    ]
    assert [ids.count(end) for ids in prompts] == [2, 2]


def test_a_tokenizer_without_webrl_s_end_is_refused_in_words(model_families: dict[str, Path]) -> None:
    with pytest.raises(ModelFileError, match=r"actors\.framing"):
        build_prompt(
            load_tokenizer(model_families["qwen2"]),
            instruction="",
            answers=[],
            page_text="",
            max_tokens=99,
            framing="webrl/1",
        )


def test_the_bare_template_that_such_a_fine_tuning_leaves_behind_frames_no_turns(
    model_families: dict[str, Path], tmp_path: Path
) -> None:
    folder = copytree(model_families["llama3"], tmp_path / "bare")
    (folder / "chat_template.jinja").write_text(
        "{{ '<|begin_of_text|>' }}{% for message in messages %}{% if message['role'] == 'user' %}{{ message['content'] }}"
        "{% else %}{{ message['content'] + '<|eot_id|>' }}{% endif %}{% endfor %}"
    )
    config = json.loads((folder / "tokenizer_config.json").read_text())
    assert "chat_template" not in config
    prompt = build_prompt(
        load_tokenizer(folder),
        instruction=INSTRUCTION,
        answers=ANSWERS[:1],
        page_text=HTML,
        max_tokens=900,
        framing="webrl/1",
    )
    assert prompt.ids == load_tokenizer(model_families["llama3"])(_reference(ANSWERS[:1], HTML))["input_ids"]
