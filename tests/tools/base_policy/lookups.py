"""Generated look-up tasks: which id carries this text, what stands beside it, what is still to be done.

They teach reading and nothing else: no site, no choice that could be wrong. Every string may be new.
"""

from collections.abc import Callable
from random import Random

from hindcast.actors.environments.base import DemonstratedStep
from hindcast.core.domain.action import Action
from hindcast.core.domain.observation import Node, Page
from hindcast.core.grammar.answer_parser import format_answer
from tools.base_policy import words
from tools.base_policy.pages import Draft, find, node

_PROPERTIES = (
    "price", "rating", "weight", "colour", "size", "material", "origin", "warranty", "width", "height", "date", "status",
    "owner", "city", "address", "phone", "email", "number", "age", "total", "delivery", "care", "author", "year",
)  # fmt: skip

_COMMON = (
    "the", "a", "to", "and", "then", "find", "click", "on", "select", "choose", "with", "by", "of", "in", "for", "from",
    "user", "named", "called", "item", "button", "link", "entry", "icon", "tab", "list", "menu", "that", "says", "below",
    "between", "switch", "expand", "navigate", "through", "press", "open", "it", "is", "which", "at", "until", "you",
)  # fmt: skip

Lookup = Callable[[Random, Draft], tuple[str, tuple[str, ...], Page, Action]]
"""Draws instruction, earlier answers, page and right action."""


def lookup(random: Random, vocabulary: tuple[str, ...] = ()) -> DemonstratedStep:
    """One look-up of a random kind."""
    name = random.choices(tuple(LOOKUPS), weights=[weight for weight, _ in LOOKUPS.values()])[0]
    instruction, answers, page, action = LOOKUPS[name][1](random, Draft(random, vocabulary))
    return DemonstratedStep(instruction, answers, page, action, f"lookup/{name}")


def _click(random: Random, draft: Draft) -> tuple[str, tuple[str, ...], Page, Action]:
    """Click the one thing that carries a text, among others that look alike."""
    draft.nodes = draft.filler(draft.size())
    text = draft.fresh()
    kind = random.choice(("link", "link", "button", "button", "clickable", "checkbox", "radio"))
    draft.insert(_target(random, kind, text))
    for _ in range(random.choice((0, 0, 1, 2, 4))):
        draft.insert(_target(random, random.choice((kind, "link", "button")), draft.alike(text)))
    page = draft.page()
    said = random.choice((
        'Click on the "{}" {}.', 'Click the {1} "{0}".', "Click on {}.", 'Find and click the {1} "{0}".', "Open {}.",
        'Press "{}".', 'Click {} and then stop.', 'Go to "{}".', 'Choose {} on this page.', "{}",
    )).format(text, "link" if kind == "link" else "button")  # fmt: skip
    return said, (), page, Action(name="Click", element=find(page, text))


def _mention(random: Random, draft: Draft) -> tuple[str, tuple[str, ...], Page, Action]:
    """An instruction in words never met, one phrase of which stands on the page: that is what is meant."""
    draft.nodes = draft.filler(draft.size())
    text = draft.fresh(3)
    draft.insert(_target(random, random.choice(("link", "button", "clickable", "clickable", "radio")), text))
    for _ in range(random.choice((0, 0, 1, 2))):
        draft.insert(_target(random, random.choice(("link", "clickable")), draft.alike(text)))
    page = draft.page()
    before, after = (_words(random, draft, most) for most in ((2, 9), (0, 5)))
    meant = f'"{text}"' if random.random() < 0.5 else text
    said = f"{before[:1].upper()}{before[1:]} {meant}{' ' if after else ''}{after}"
    return said + random.choice((".", "", "!")), (), page, Action(name="Click", element=find(page, text))


def _words(random: Random, draft: Draft, most: tuple[int, int]) -> str:
    """Between so and so many words, common ones among them."""
    return " ".join(
        random.choice(_COMMON) if random.random() < 0.6 else draft.fresh(1)
        for _ in range(random.randint(*most))
    )


def _click_in_turn(random: Random, draft: Draft) -> tuple[str, tuple[str, ...], Page, Action]:
    """Click several things in the order given: which is next stands in the earlier answers."""
    draft.nodes = draft.filler(draft.size())
    texts = [draft.fresh(3) for _ in range(random.randint(2, 4))]
    shuffled = random.sample(texts, len(texts))
    draft.insert(*(_target(random, random.choice(("link", "button")), text) for text in shuffled))
    page = draft.page()
    done = random.randint(0, len(texts) - 1)
    actions = [Action(name="Click", element=find(page, text)) for text in texts]
    joined = random.choice((", then ", " and then ", ", after that ")).join(
        random.choice(("click {}", "press {}")).format(f'"{text}"' if random.random() < 0.5 else text)
        for text in texts
    )
    answers = tuple(format_answer(action, page) for action in actions[:done])
    return f"{joined[0].upper()}{joined[1:]}.", answers, page, actions[done]


def _type(random: Random, draft: Draft) -> tuple[str, tuple[str, ...], Page, Action]:
    """Fill one to three fields, then press the button; the fields show what they hold."""
    draft.nodes = draft.filler(draft.size() // 2)
    labels = [draft.fresh(2) for _ in range(random.randint(1, 3))]
    values = [random.choice((words.phrase, words.phrase, _one))(random, 3) for _ in labels]
    button = random.choice(("Submit", "Save", "Login", "OK", "Search", draft.fresh(2)))
    done = random.randint(0, len(labels))
    anonymous = len(labels) == 1 and random.random() < 0.4
    fields = [
        node(
            random.choice(("input", "input", "textarea")),
            "" if anonymous else label,
            value=value if i < done else "",
        )
        for i, (label, value) in enumerate(zip(labels, values, strict=True))
    ]
    if anonymous:
        draft.nodes = [item for item in draft.nodes if item.kind not in ("input", "textarea")]
    draft.insert_together(*fields, node("button", button))
    page = draft.page()
    names = ["" if anonymous else label for label in labels]
    kinds = ("input", "textarea")
    actions = [
        Action(name="Type", element=find(page, name, kinds), argument=value)
        for name, value in zip(names, values, strict=True)
    ]
    actions.append(Action(name="Click", element=find(page, button, ("button",))))
    if anonymous:
        said = random.choice(
            ('Enter "{}" into the text field', "Type {} into the text field", 'Write "{}" in the field')
        )
        said = said.format(values[0])
    else:
        part = random.choice(('the {0} "{1}"', '"{1}" into {0}', "{1} as {0}", '{0}: "{1}"', "the {0} {1}"))
        said = "Enter " + " and ".join(
            part.format(name, value) for name, value in zip(names, values, strict=True)
        )
    said += random.choice((" and press {}.", ' and click "{}".', ", then press {}.")).format(button)
    answers = tuple(format_answer(action, page) for action in actions[:done])
    return said, answers, page, actions[done]


def _search(random: Random, draft: Draft) -> tuple[str, tuple[str, ...], Page, Action]:
    """Search for a text."""
    draft.nodes = [item for item in draft.filler(draft.size()) if item.kind not in ("input", "textarea")]
    label = random.choice(("Search", "Search products", "Find", "Query", draft.fresh(1)))
    draft.insert(node("input", label, value=""))
    text = words.phrase(random, 4, draft.vocabulary)
    page = draft.page()
    said = random.choice(
        ("Search for {}.", 'Search for "{}".', "Look for {}.", 'Find "{}" through the search.')
    ).format(text)
    return said, (), page, Action(name="Search", element=find(page, label, ("input",)), argument=text)


def _select(random: Random, draft: Draft) -> tuple[str, tuple[str, ...], Page, Action]:
    """Choose an option of a list, then submit."""
    draft.nodes = draft.filler(draft.size() // 2)
    options = tuple(draft.fresh(2) for _ in range(random.randint(3, 9)))
    wanted = random.choice(options)
    done = random.random() < 0.35
    shown = wanted if done else random.choice([option for option in options if option != wanted])
    label = random.choice(("", draft.fresh(1), draft.fresh(2)))
    if not label:
        draft.nodes = [item for item in draft.nodes if item.kind != "select"]
    button = random.choice(("Submit", "Submit", "OK", "Apply", draft.fresh(1)))
    draft.insert_together(node("select", label, value=shown, options=options), node("button", button))
    page = draft.page()
    choose = Action(name="Select Dropdown Option", element=find(page, label, ("select",)), argument=wanted)
    press = Action(name="Click", element=find(page, button, ("button",)))
    said = random.choice(
        ('Select "{}" from the list', "Select {} from the list", "Choose {}", 'Set {1} to "{0}"')
    )
    said = said.format(wanted, label or "the list") + random.choice(
        (" and click {}.", ' and press "{}".')
    ).format(button)
    return said, (format_answer(choose, page),) if done else (), page, press if done else choose


def _check(random: Random, draft: Draft) -> tuple[str, tuple[str, ...], Page, Action]:
    """Tick several boxes, then submit; what is ticked already stands on the page."""
    texts = [draft.fresh(2) for _ in range(random.randint(3, 10))]
    wanted = random.sample(texts, random.randint(1, min(5, len(texts))))
    done = random.randint(0, len(wanted))
    ticked = set(wanted[:done])
    kind = "checkbox" if len(wanted) > 1 or random.random() < 0.6 else "radio"
    draft.nodes = [node(kind, text, checked=text in ticked) for text in texts]
    for item in draft.filler(random.choice((0, 0, 5, 20))):
        if item.kind not in ("checkbox", "radio"):
            draft.insert(item)
    draft.nodes.append(node("button", "Submit"))
    page = draft.page()
    actions = [Action(name="Click", element=find(page, text, (kind,))) for text in wanted]
    actions.append(Action(name="Click", element=find(page, "Submit", ("button",))))
    said = f"Select {', '.join(wanted)} and click Submit."
    return said, tuple(format_answer(action, page) for action in actions[:done]), page, actions[done]


def _read(random: Random, draft: Draft) -> tuple[str, tuple[str, ...], Page, Action]:
    """Read what stands behind a label and exit with it."""
    draft.nodes = draft.filler(draft.size())
    label, value = draft.fresh(2), _value(random, draft)
    form = random.choice(("{}: {}", "{} {}", "{} - {}"))
    draft.insert(node("text", form.format(label, value)))
    for _ in range(random.randint(0, 3)):
        draft.insert(node("text", form.format(draft.alike(label), _value(random, draft))))
    page = draft.page()
    said = random.choice(
        ("What is the {}?", 'What stands behind "{}"?', "Find the {}.", "Tell me the {}.", "{}?")
    )
    return said.format(label), (), page, Action(name="exit", argument=value)


def _read_property(random: Random, draft: Draft) -> tuple[str, tuple[str, ...], Page, Action]:
    """On the page of one thing, read one of its properties: which one is asked decides, not which comes first."""
    thing = draft.fresh(4)
    form = random.choice(("{}: {}", "{} {}", "{} {}", "{} - {}"))
    labels = [
        random.choice(_PROPERTIES) if random.random() < 0.5 else draft.fresh(2)
        for _ in range(random.randint(2, 6))
    ]
    labels = list(dict.fromkeys(labels))
    values = [_value(random, draft) for _ in labels]
    asked = random.randrange(len(labels))
    texts = [
        node("text", form.format(label[0].upper() + label[1:], value))
        for label, value in zip(labels, values, strict=True)
    ]
    before = draft.filler(random.choice((0, 2, 7)))
    after = draft.filler(random.choice((0, 2, 7)))
    draft.nodes = [*before, node("heading", thing), *texts, *after]
    page = draft.page()
    said = random.choice(
        (
            "What is the {1} of {0}?",
            "What is the {1} of the {0}?",
            "Find the {1} of the {0}.",
            "Tell me the {1} of the {0}.",
            "Look up the {1} of {0}.",
            "{0}: which {1}?",
        )
    )
    answers: tuple[str, ...] = ()
    if random.random() < 0.5:  # as after a search and an opened result
        opened = Action(name="Click", element=random.randrange(40))
        answers = (format_answer(opened, _mentioning(thing, opened.element or 0)),)
    return said.format(thing, labels[asked]), answers, page, Action(name="exit", argument=values[asked])


def _mentioning(text: str, number: int) -> Page:
    """An earlier page with the link that was followed to this one."""
    link = node("link", text)
    return Page(
        url="http://generated/",
        title=text,
        nodes=(Node(kind=link.kind, tag=link.tag, text=text, id=number, value=None, checked=None),),
    )


def _read_row(random: Random, draft: Draft) -> tuple[str, tuple[str, ...], Page, Action]:
    """In a list of entries with the same parts, read one part of one entry; or click in that entry."""
    draft.nodes = []
    names = [draft.fresh(3)]
    names += [
        draft.alike(names[0]) if random.random() < 0.3 else draft.fresh(3)
        for _ in range(random.choice((1, 2, 3, 5, 9)))
    ]
    random.shuffle(names)
    wanted = random.choice(names)
    kind = random.choice(("link", "link", "text", "heading"))
    labels = random.sample(
        ("price", "state", "rating", "date", "number", "owner", "city"), random.randint(1, 3)
    )
    button = random.choice(("", "", "Add to cart", "Remove", "Details"))
    answer = ""
    asked = random.choice(labels)
    labelled = len(labels) > 1 or random.random() < 0.5
    rows: dict[str, int] = {}
    for name in names:
        draft.nodes.append(node(kind, name))
        for label in labels:
            value = _value(random, draft)
            draft.nodes.append(node("text", f"{label}: {value}" if labelled else value))
            if name == wanted and label == asked:
                answer = value
        if button:
            rows[name] = len(draft.nodes)
            draft.nodes.append(node("button", button))
    shift = random.choice((0, 0, 3, 10))
    draft.nodes = draft.filler(shift) + draft.nodes
    page = draft.page()
    if button and random.random() < 0.5:
        said = random.choice(('Click "{1}" of {0}.', "{1}: {0}.", '{1} "{0}".')).format(wanted, button)
        return said, (), page, Action(name="Click", element=page.nodes[rows[wanted] + shift].id)
    said = random.choice(
        ("What is the {1} of {0}?", 'Find the {1} of "{0}".', "Tell me the {1} of {0}.")
    ).format(wanted, asked)
    return said, (), page, Action(name="exit", argument=answer)


def _open_then_read(random: Random, draft: Draft) -> tuple[str, tuple[str, ...], Page, Action]:
    """Not on this page yet: open the entry that is asked for, its part stands there."""
    draft.nodes = draft.filler(draft.size())
    text = draft.fresh(3)
    draft.insert(node("link", text), *(node("link", draft.alike(text)) for _ in range(random.randint(0, 3))))
    page = draft.page()
    said = random.choice(
        ("What is the {1} of {0}?", 'Find the {1} of "{0}".', "Add {0} to the {1}.", "Buy {0} in {1}.")
    )
    return (
        said.format(text, draft.fresh(1)),
        (),
        page,
        Action(name="Click", element=find(page, text, ("link",))),
    )


LOOKUPS: dict[str, tuple[int, Lookup]] = {
    "click": (5, _click),
    "mention": (5, _mention),
    "click_in_turn": (2, _click_in_turn),
    "type": (4, _type),
    "search": (2, _search),
    "select": (2, _select),
    "check": (2, _check),
    "read": (3, _read),
    "read_property": (4, _read_property),
    "read_row": (5, _read_row),
    "open": (2, _open_then_read),
}
"""Kind -> its share and its generator."""


def _target(random: Random, kind: str, text: str) -> Node:
    return node(kind, text, checked=random.random() < 0.2 if kind in ("checkbox", "radio") else None)


def _one(random: Random, most: int) -> str:
    del most
    return words.random_string(random)


def _value(random: Random, draft: Draft) -> str:
    kinds = (
        words.money,
        words.money,
        words.number,
        lambda _: draft.fresh(2),
        lambda _: _measure(random, draft),
    )
    return random.choice(kinds)(random)


def _measure(random: Random, draft: Draft) -> str:
    """A number with a unit."""
    return f"{random.randint(0, 99) / 10} {draft.fresh(1)}"
