"""Further questions about a page that is being read anyway: one page, many look-ups.

A page is long and an answer short; asking several things about the same page multiplies what is learned from it. It
works on any page, also on recorded ones, and says nothing about how a site is used.
"""

from collections import Counter
from random import Random

from hindcast.core.domain.action import Action
from hindcast.core.domain.observation import Node, Page
from tools.base_policy import words

_CLICK = ('Click on "{}".', "Click {}.", "Open {}.", "Press {}.", 'Go to "{}".', "Choose {}.")
_TYPE = ('Enter "{1}" into {0}.', "Type {1} into {0}.", 'Set {0} to "{1}".', "Fill {0} with {1}.")
_SEARCH = ('Search for "{1}" in {0}.', "Look for {1} with {0}.")
_SELECT = ('Select "{1}" in {0}.', "Set {0} to {1}.", "Choose {1} as {0}.")
_READ = ("What is the {}?", "Find the {}.", "Tell me the {}.", 'What stands behind "{}"?')
_AFTER = ('What stands right after "{}"?', "What comes after {}?", "Read what follows {}.")


def questions(random: Random, page: Page, most: int) -> list[tuple[str, Action]]:
    """Up to `most` instructions about the page with their answers, in random order."""
    counts = Counter(node.text for node in page.nodes)
    possible = [index for index, node in enumerate(page.nodes) if node.text and counts[node.text] == 1]
    random.shuffle(possible)
    asked: list[tuple[str, Action]] = []
    for index in possible:
        if len(asked) == most:
            break
        question = _about(random, page, index)
        if question is not None:
            asked.append(question)
    return asked


def _about(random: Random, page: Page, index: int) -> tuple[str, Action] | None:
    node = page.nodes[index]
    if node.id is None:
        return _read(random, page, index)
    if node.kind in ("input", "textarea"):
        text = words.phrase(random, 3) if random.random() < 0.5 else _other_text(random, page)
        if random.random() < 0.3:
            said = random.choice(_SEARCH).format(node.text, text)
            return said, Action(name="Search", element=node.id, argument=text)
        return random.choice(_TYPE).format(node.text, text), Action(
            name="Type", element=node.id, argument=text
        )
    if node.kind == "select" and node.options:
        option = random.choice(node.options)
        said = random.choice(_SELECT).format(node.text, option)
        return said, Action(name="Select Dropdown Option", element=node.id, argument=option)
    return random.choice(_CLICK).format(node.text), Action(name="Click", element=node.id)


def _read(random: Random, page: Page, index: int) -> tuple[str, Action] | None:
    """What stands behind the colon of a text, or in the text after it."""
    label, colon, value = page.nodes[index].text.partition(": ")
    if colon and value:
        return random.choice(_READ).format(label), Action(name="exit", argument=value)
    following: Node | None = page.nodes[index + 1] if index + 1 < len(page.nodes) else None
    if following is None or not following.text or len(following.text) > 60 or len(label) > 60:
        return None
    return random.choice(_AFTER).format(label), Action(name="exit", argument=following.text)


def _other_text(random: Random, page: Page) -> str:
    return random.choice([node.text for node in page.nodes if node.text])[:40].strip() or "x"
