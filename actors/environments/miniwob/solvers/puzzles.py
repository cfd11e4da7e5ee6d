"""Small sums, guesses and a terminal: tasks with a computation before the input."""

import itertools
import re
from collections.abc import Sequence

from hindcast.actors.environments.miniwob.solvers.page_queries import (
    Solve,
    between,
    click,
    enter,
    fill,
    find,
    first,
    live,
    press,
    submit,
)
from hindcast.core.domain.action import Action
from hindcast.core.domain.observation import Page


def _sum(instruction: str, page: Page, earlier: Sequence[Action]) -> Action:
    match = re.search(r"(\d+) ([-+x]) (\d+) =", " ".join(node.text for node in page.nodes))
    if match is None:
        return click(None)
    one, two = int(match.group(1)), int(match.group(3))
    return fill(page, [str({"+": one + two, "-": one - two, "x": one * two}[match.group(2)])], earlier)


def _equation(instruction: str, page: Page, earlier: Sequence[Action]) -> Action:
    match = re.search(r"(x|\d+) ([-+]) (x|\d+) = (\d+)", " ".join(node.text for node in page.nodes))
    if match is None:
        return click(None)
    left, sign, right, total = match.groups()
    if left == "x":
        x = int(total) - int(right) if sign == "+" else int(total) + int(right)
    else:
        x = int(total) - int(left) if sign == "+" else int(left) - int(total)
    return fill(page, [str(x)], earlier)


def _guess(instruction: str, page: Page, earlier: Sequence[Action]) -> Action:
    """Halve the interval. Each guess but the last shows by its successor in which direction it was wrong."""
    if earlier and earlier[-1].name == "Type":
        return submit(page)
    guesses = [int(action.argument or 0) for action in earlier if action.name == "Type"]
    low, high = 0, 9
    for guess, following in itertools.pairwise(guesses):
        low, high = (guess + 1, high) if following > guess else (low, guess - 1)
    answer = " ".join(node.text for node in page.nodes)
    if guesses:
        low, high = (guesses[-1] + 1, high) if "higher than" in answer else (low, guesses[-1] - 1)
    return enter(first(live(page, "input")), str((low + high) // 2))


def _generate(instruction: str, page: Page, earlier: Sequence[Action]) -> Action:
    number = first(int(node.text) for node in page.nodes if node.text.isdecimal())
    bound = re.search(r"(less|greater) than (\d+)", instruction)
    if number is None:
        fits = False
    elif bound:
        fits = number < int(bound.group(2)) if bound.group(1) == "less" else number > int(bound.group(2))
    else:
        fits = number % 2 == (1 if "odd" in instruction else 0)
    return click(find(page, "Submit" if fits else "Generate", "button"))


def _terminal(instruction: str, page: Page, earlier: Sequence[Action]) -> Action:
    """List the files, then remove one with the extension. The terminal takes single keys."""
    keys = [*"ls", "Enter"]
    if len(earlier) >= len(keys):
        screen = " ".join(node.text for node in page.nodes)
        files = between(screen, "user$ ls ", " user$").split()
        ending = re.search(r"extension (\.\S+)", instruction)
        fitting = [
            name
            for name in files
            if (name.endswith(ending.group(1)) if ending is not None else "." not in name)
        ]
        if not fitting:
            return click(None)
        keys += [*f"rm {fitting[0]}", "Enter"]
    at = len(earlier)
    key = "Space" if keys[at] == " " else keys[at]
    return press(key, None if at else first(live(page, "input")))


SOLUTIONS: dict[str, Solve] = {
    "simple-arithmetic": _sum,
    "simple-algebra": _equation,
    "guess-number": _guess,
    "generate-number": _generate,
    "terminal": _terminal,
}
"""Solutions by family."""
