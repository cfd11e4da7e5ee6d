"""The answer parser: a policy's answer to an action, and back. A small grammar: nothing in an answer is ever evaluated.

It reads three dialects, after any number of comment lines (`# Element: …`, `# Note: …`): WebRL's (`do(action="Click",
element="7")`, `exit(message="…")`), BrowserGym's (`click('12')`) and WebShop's (`click[buy now]`), both in
`core.grammar.dialects`. No answer has two readings: BrowserGym has no functions `do` and `exit`,
and only WebShop uses brackets. An answer that fits none is a `ParseFailure`; parsing never raises.

It reads an answer that is more than one call as WebRL's released parser does (THUDM/VisualAgentBench, VAB-WebArena-Lite,
`create_webrl_id_based_action`): text may precede the call, also in a comment line; of several calls the last one counts,
`exit` before `do`; only comments may follow. Quoted text is never a call. docs/planners/webrl.md counts the remaining
differences of the two parsers.

In the form `text` the whole answer is the action of a text environment: a choice of the page, or what is typed into its field
(`core.grammar.dialects.read_text`). Otherwise it is the action alone, or in the thinking form of WebAgent-R1 (arXiv 2505.16421) a thought before it:

    <think>The link Brass lamp [7] is what the task names.</think>
    <answer># Element: Brass lamp [7]
    do(action="Click", element="7")</answer>
"""

import re
from collections.abc import Sequence
from typing import Any, Literal

from hindcast.core.domain.action import ACTIONS, Action, ParseFailure
from hindcast.core.domain.observation import Node, Page
from hindcast.core.grammar.calls import (
    Call,
    MalformedCall,
    abbreviated,
    checked,
    quoted,
    read_call,
    skip_space,
)
from hindcast.core.grammar.dialects import read_bracketed, read_browsergym, read_text, write_browsergym

Dialect = Literal["webrl", "browsergym"]

ELEMENT_TEXT_CHARS = 40
"""Most characters of the element's text in the comment before a formatted action."""
NOTE_CHARS = 80
"""Most characters of a page's line that is quoted before a message."""
MAX_ANSWER_CHARS = 20_000
"""Longer answers are parse failures."""

_CALL_KEY = re.compile(r"exit\(|do\(")


def parse_answer(text: str, page: Page | None = None) -> Action | ParseFailure:
    """Parse an answer. `page` is the page that it answers, which WebShop's dialect needs."""
    if len(text) > MAX_ANSWER_CHARS:
        return ParseFailure(reason=f"answer has {len(text)} characters, at most {MAX_ANSWER_CHARS} are read")
    if skip_space(text) == len(text) and _CALL_KEY.search(text) is None:
        return ParseFailure(reason='expected a call such as do(action="Click", element="7"), found nothing')
    if (bracketed := read_bracketed(_without_comments(text), page)) is not None:
        return bracketed
    try:
        return _only_call(text, read_call(text))
    except MalformedCall as unreadable:
        reason = str(unreadable)
    call = _last_call(text)
    if call is not None:
        try:
            return _only_call(text, call)
        except MalformedCall as unreadable:
            reason = str(unreadable)
    return ParseFailure(reason=reason)


def _only_call(text: str, call: Call) -> Action:
    """Read the action of a call. Raises MalformedCall if more than comments follows it."""
    rest = text[skip_space(text, call.end) :].strip()
    if rest:
        raise MalformedCall(f"expected one call, found {abbreviated(rest)} after it")
    name, (positional, keywords), _ = call
    if name == "do":
        return _webrl(positional, keywords)
    if name == "exit":
        return Action(name="exit", argument=keywords.get("message", _only(positional, "message")))
    action = read_browsergym(name, (positional, keywords))
    if action is not None:
        return action
    if _fold(name) in _NAMES and not positional:
        return _webrl([name], keywords)
    raise MalformedCall(f"expected do(…) or exit(…), found {abbreviated(name)}(…)")


def _last_call(text: str) -> Call | None:
    """Find the last `exit(…)` in a text, else its last `do(…)`; None if it has neither.

    Quoted calls do not count. A malformed call ends with its line at the latest.
    """
    last_calls: dict[str, Call] = {}
    position = 0
    while (key := _CALL_KEY.search(text, position)) is not None:
        try:
            call = read_call(text, key.start())
        except MalformedCall as unreadable:
            line_end = text.find("\n", key.end())
            position = max(key.end(), min(unreadable.at, line_end if line_end >= 0 else len(text)))
        else:
            last_calls[call.name] = call
            position = call.end
    return last_calls.get("exit", last_calls.get("do"))


def format_answer(action: Action, page: Page, dialect: Dialect = "webrl") -> str:
    """Format an action as demonstrations answer it: a comment, then the call that `parse_answer` reads back.

    The comment quotes the element, or the page's line that contains the message. A small model learns far sooner to find
    the place first and then to copy the id or value from it.

    >>> from hindcast.core.domain.observation import Page
    >>> print(format_answer(Action(name="Click", element=7), Page(url="", title="", nodes=())))
    # Element: [7]
    do(action="Click", element="7")
    """
    call = write_browsergym(action) if dialect == "browsergym" else _write_webrl(action)
    if action.name == "exit":
        return call if action.argument is None else f"{_note(page, action.argument)}{call}"
    if action.element is None:
        return call
    node = next((node for node in page.nodes if node.id == action.element), None)
    return f"# Element: {_comment(node)}[{action.element}]\n{call}"


def _write_webrl(action: Action) -> str:
    if action.name == "exit":
        return "exit()" if action.argument is None else f"exit(message={quoted(action.argument)})"
    parts = [f"action={quoted(action.name)}"]
    if action.argument is not None:
        parts.append(f"argument={quoted(action.argument)}")
    if action.element is not None:
        parts.append(f'element="{action.element}"')
    return f"do({', '.join(parts)})"


def _comment(node: Node | None) -> str:
    if node is None:
        return ""
    text = " ".join((node.text or node.attributes.get("class", "")).split())[:ELEMENT_TEXT_CHARS].rstrip()
    return f"{text} " if text else ""


def _note(page: Page, message: str) -> str:
    """Quote the page's first line that contains the message; also the line before if it is nothing but the message."""
    pattern = re.compile(rf"(?<!\w){re.escape(message)}(?!\w)")
    before = ""
    for node in page.nodes:
        text = " ".join(node.text.split())
        if message and len(text) <= NOTE_CHARS and pattern.search(text):
            line = f"{before} | {text}" if text == message and 0 < len(before) <= NOTE_CHARS else text
            return f"# Note: {line}\n"
        before = text
    return ""


def _without_comments(text: str) -> str:
    """Remove lines that are comments or Markdown code fences."""
    return "\n".join(line for line in text.split("\n") if not line.lstrip().startswith(("#", "```"))).strip()


def _fold(name: str) -> str:
    return name.strip().lower().replace("_", " ")


_NAMES = {_fold(name): name for name in ACTIONS} | {"switch tab": "Tab_focus"}
"""Action by folded name. `Switch Tab` is its name in the prompt of WebRL's and WebArena-Lite's released code."""


def _webrl(positional: list[str], keywords: dict[str, str]) -> Action:
    if "action" not in keywords and positional:
        keywords = {"action": _only(positional, "action") or "", **keywords}
    if "action" not in keywords:
        raise MalformedCall('do(…) lacks its action, such as action="Click"')
    action_name = keywords["action"].strip()
    argument = keywords.get("argument", keywords.get("message"))
    # WebRL's prompt names the key here, and its parser reads no element: do(action="Press Enter")
    if action_name.lower().startswith("press "):
        action_name, argument = "Press", action_name[len("press ") :]
        keywords = {**keywords, "element": ""}
    name = _NAMES.get(_fold(action_name))
    if name is None:
        raise MalformedCall(f"unknown action {abbreviated(action_name)}; known are {', '.join(ACTIONS)}")
    return checked(name, keywords.get("element"), argument)


def _only(positional: list[str], name: str) -> str | None:
    """Return the only positional value, if any. Raises MalformedCall for several."""
    if len(positional) > 1:
        raise MalformedCall(f"expected at most {name}=…, found {len(positional)} values")
    return positional[0] if positional else None


AnswerForm = Literal["plain", "thinking", "text"]

_END_OF_THOUGHT = "</think>"
_THINKING = re.compile(r"\s*<think>(?P<thought>.*?)</think>\s*<answer>(?P<answer>.*)</answer>\s*", re.DOTALL)
_TAG = re.compile(r"</?(?:think|answer)>")


def parse_form(text: str, form: AnswerForm, page: Page | None = None) -> Action | ParseFailure:
    """Parse an answer in this form, given for a page."""
    if form == "plain":
        return parse_answer(text, page)
    if form == "text":
        return read_text(text, page)
    match = _THINKING.fullmatch(text)
    if match is None:
        return ParseFailure(reason="expected <think>…</think><answer>…</answer> and nothing else")
    return parse_answer(match["answer"], page)


def put_in_form(answer: str, form: AnswerForm, *, thought: str = "") -> str:
    """Put a demonstration's answer into this form, with its thought if the form has one.

    >>> put_in_form("exit()", "thinking", thought="All is done.")
    '<think>All is done.</think>\\n<answer>exit()</answer>'
    """
    if form != "thinking":
        return answer
    return f"<think>{_TAG.sub(' ', thought)}</think>\n<answer>{answer}</answer>"


def split_form(text: str) -> tuple[str, str]:
    """Split a text in the thinking form into thought and answer; any other text is all answer.

    >>> split_form("<think>All is done.</think>\\n<answer>exit()</answer>")
    ('All is done.', 'exit()')
    """
    match = _THINKING.fullmatch(text)
    return ("", text) if match is None else (match["thought"], match["answer"])


def first_answer_token(tokenizer: Any, token_ids: Sequence[int]) -> int:
    """Find the index of the first token after the closed thought; 0 without one  # token_ids: [tokens].

    Bisects over prefixes, so that it decodes only a logarithmic number of times.
    """
    if _END_OF_THOUGHT not in tokenizer.decode(token_ids, skip_special_tokens=True):
        return 0
    low, high = 1, len(token_ids)
    while low < high:
        middle = (low + high) // 2
        if _END_OF_THOUGHT in tokenizer.decode(token_ids[:middle], skip_special_tokens=True):
            high = middle
        else:
            low = middle + 1
    return low
