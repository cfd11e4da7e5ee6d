"""Thoughts of demonstrations in the thinking form: a few true sentences that lead to the action.

For cloning with long chains of thought (WebAgent-R1, arXiv 2505.16421, section 3.4), which the paper takes from a large
model. Here a thought states only facts of page, task and action: the page, the element's text, whether the task names it,
and the conclusion. A pure function: equal situations give equal thoughts.
"""

import re

from hindcast.core.domain.action import Action
from hindcast.core.domain.observation import Node, Page
from hindcast.core.prompts.rendering.lines import render_line

QUOTED_CHARS = 60
"""Most characters of a page's text that a thought quotes."""
_WORDS = re.compile(r"\w+")


def reason_for(action: Action, *, page: Page, instruction: str, steps: int) -> str:
    """Write the thought before an action; `steps` is the number of earlier steps.

    >>> from hindcast.core.domain.observation import Node
    >>> lamp = Node(kind="link", tag="a", text="Brass lamp", id=7)
    >>> page = Page(url="", title="Lamps", nodes=(lamp,))
    >>> reason_for(Action(name="Click", element=7), page=page, instruction="Buy the brass lamp.", steps=0)
    'The page is Lamps. It shows link Brass lamp [7]. The task names Brass lamp. So I click on it.'
    """
    opening = f"The page is {_quote(page.title)}." if page.title else f"This is step {steps + 1}."
    node = next((candidate for candidate in page.nodes if candidate.id == action.element), None)
    return " ".join([opening, *_looked_at(action, node, page, instruction), _conclusion(action)])


def _looked_at(action: Action, node: Node | None, page: Page, instruction: str) -> list[str]:
    sentences = []
    if node is not None and node.id is not None:
        sentences.append(
            f"It shows {_quote(render_line(node))}." if node.text else f"It has {node.kind} [{node.id}]."
        )
        if _names(instruction, node.text):
            sentences.append(f"The task names {_quote(node.text)}.")
    if action.argument is not None and _names(instruction, action.argument):
        sentences.append(f"The task gives {_quote(action.argument)}.")
    elif action.name == "exit" and action.argument and _shown(page, action.argument):
        sentences.append(f"It shows {_quote(action.argument)}.")
    return sentences


def _conclusion(action: Action) -> str:
    text = "" if action.argument is None else _quote(action.argument)
    match action.name:
        case "exit":
            return f"So I answer {text}." if text else "So I end here."
        case "Click" | "Right Click" | "Hover":
            return f"So I {action.name.lower()} on it."
        case "Type" | "Search":
            return f"So I {action.name.lower()} {text} there."
        case "Select Dropdown Option":
            return f"So I select {text} there."
        case "Press":
            return f"So I press {text}."
        case name:
            return f"So I do {name} {text}".rstrip() + "."


def _names(instruction: str, text: str) -> bool:
    """Whether the instruction contains these words in sequence, in any case."""
    phrase, words = _folded(text), _folded(instruction)
    return bool(phrase) and f" {phrase} " in f" {words} "


def _shown(page: Page, text: str) -> bool:
    return any(_names(node.text, text) for node in page.nodes)


def _folded(text: str) -> str:
    return " ".join(_WORDS.findall(text.lower()))


def _quote(text: str) -> str:
    folded = " ".join(text.split())
    return folded if len(folded) <= QUOTED_CHARS else folded[: QUOTED_CHARS - 1].rstrip() + "…"
