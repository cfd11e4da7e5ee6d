"""Prompt of WebRL's released outcome reward model, token by token: intent, action history, the last page as HTML.

Text, order and line breaks are those of THUDM/WebRL, `scripts/process_data.py` (`rm_format`, `add_overall_reward`), on which
the published checkpoint (Llama-3.1-8B) was trained. An episode that ended by its limit or an early stop gets an empty last
action, like the stop action that the released loop appends.

Four things differ on purpose, because a page or an answer could forge another part of the prompt by them:
- contents have no special tokens: text such as `<|eot_id|>` is encoded as plain text;
- the page is escaped (`webrl/3`): one line of HTML in which no text opens a tag;
- an action is one line, whatever line breaks it has, not only `\\n`;
- a line of intent or history that begins like a part of the prompt gets `# ` before it.
A prompt that is too long loses the end of its page. The released code cuts the prompt's own end, and so reads the probability
in the middle of a page.
"""

import re
from collections.abc import Sequence
from typing import Any

import msgspec

from hindcast.core.domain.observation import Page
from hindcast.core.errors import ModelFileError, SettingsError
from hindcast.core.ids import digest_hex
from hindcast.core.prompts.chat_frame import WEBRL_END, WEBRL_ROLE, encode_frame, encode_text
from hindcast.core.prompts.prompt import Prompt
from hindcast.core.prompts.rendering import RENDERERS
from hindcast.core.prompts.verdict_prompt import NO, YES

WEBRL_ORM = "webrl_orm"
"""Name of the judge."""
FORMAT = "webrl_orm/1"
"""Name and version: any change of the prompt needs a new version."""
RENDERER = "webrl/3"
SYSTEM = (
    "You are an expert in evaluating the performance of a website navigation agent. The agent is designed to help a human user "
    "navigate the website to complete a task. Given the user\u2019s intent, the agent's action history, and the final state of "
    "the screen, your goal is to decide whether the agent\u2019s execution is successful or not. You must respond with YES or NO."
)
INTENT, ACTIONS, SCREEN = "The User Intent:", "Action History:", "The Current Screenshot:"

PROMPT_DIGEST = digest_hex(msgspec.json.encode([FORMAT, RENDERER, SYSTEM, INTENT, ACTIONS, SCREEN, YES, NO]))
"""Digest of the format, part of the judge's identity."""

_BEGIN = "<|begin_of_text|>"
_BREAKS = re.compile(r"[\r\v\f\x1c-\x1e\x85\u2028\u2029]+")
_PART = re.compile(rf"^(?={INTENT}|{ACTIONS}|{SCREEN})", re.MULTILINE)


def build_webrl_verdict_prompt(
    tokenizer: Any,
    *,
    instruction: str,
    answers: Sequence[str],
    ended_itself: bool,
    page: Page,
    max_tokens: int,
) -> Prompt:
    """Build the prompt of an episode with `answers` (oldest first) that ended on `page`, at most `max_tokens` long.

    `ended_itself`: whether the last answer or the page ended the episode.

    Raises:
        ModelFileError: the tokenizer lacks Llama 3's role marks.
        SettingsError: instruction and answers leave no room for the page.
    """
    opening, to_user, closing = _frame(tokenizer)
    history = render_history(instruction, answers if ended_itself else [*answers, ""])
    history_ids = encode_text(tokenizer, history)
    content_ids = encode_text(tokenizer, history + RENDERERS[RENDERER](page).strip())
    room = max_tokens - len(opening) - len(to_user) - len(closing)
    if room <= len(history_ids):
        raise SettingsError(
            f"instruction and actions take {len(history_ids)} tokens, which leaves none of {max_tokens} for the page. Raise "
            "judge.webrl_orm_tokens."
        )
    return Prompt(ids=[*opening, *to_user, *content_ids[:room], *closing], truncated=len(content_ids) > room)


def render_history(instruction: str, answers: Sequence[str]) -> str:
    """Render the user's turn before the page, including its leading line breaks."""
    actions = "".join(f"{_one_line(answer)}\n" for answer in answers)
    intent = _PART.sub("# ", _BREAKS.sub("\n", instruction.strip()))
    return f"\n\n{INTENT}\n{intent}\n\n{ACTIONS}\n{actions}\n{SCREEN}\n"


def _one_line(answer: str) -> str:
    """Put an answer on one line of the history: its own lines are joined by `; `."""
    return _PART.sub("# ", _BREAKS.sub(" ", "; ".join(answer.split("\n"))).strip())


def _frame(tokenizer: Any) -> tuple[list[int], list[int], list[int]]:
    """Return the token ids of the system turn, of the start of the user's turn, and of its end."""
    system, user, assistant = map(WEBRL_ROLE.format, ("system", "user", "assistant"))
    vocabulary = tokenizer.get_vocab()
    missing = [mark for mark in (_BEGIN, WEBRL_END, *WEBRL_ROLE.split("{}")) if mark not in vocabulary]
    if missing:
        raise ModelFileError(
            f"the judge {WEBRL_ORM} reads a prompt in Llama 3's turns, and this model's tokenizer does not know "
            f"{', '.join(missing)}. Set judge.webrl_orm to the folder of WebRL's published outcome reward model."
        )
    opening = [*encode_frame(tokenizer, f"{_BEGIN}{system}"), *encode_text(tokenizer, f"\n\n{SYSTEM}")]
    closing = [*encode_frame(tokenizer, f"{WEBRL_END}{assistant}"), *encode_text(tokenizer, "\n\n")]
    return opening, encode_frame(tokenizer, f"{WEBRL_END}{user}"), closing
