"""Reads state files and checks them completely before anything starts."""

import re
from collections.abc import Iterator
from functools import lru_cache
from hashlib import sha256
from importlib.resources import files
from pathlib import Path

import msgspec

from hindcast.actors.scaffold.states import ActionRule, SiteState, SiteStates
from hindcast.core.domain.action import ACTIONS
from hindcast.core.errors import SettingsError
from hindcast.core.structs import convert
from hindcast.core.text.plain_values import parse_toml

SHIPPED = {
    "laser": {"store": "store.toml", "webshop": "webshop.toml"},
    "laser/2": {"store": "store.2.toml", "webshop": "webshop.toml"},
}
"""Values of `scaffold.states` that select shipped files, by environment. A file that a value names never changes: steps of
recorded runs name it with its digest."""


def site_states(states: str, environment: str) -> SiteStates | None:
    """Return the states of an environment under `scaffold.states`; None if it has none.

    Raises:
        SettingsError: the file cannot be read, or a rule in it is invalid.
    """
    if not states:
        return None
    if states in SHIPPED:
        name = SHIPPED[states].get(environment)
        return _shipped(name) if name else None
    site = read_states(Path(states))
    return site if site.environment == environment else None


def check_states(states: str) -> None:
    """Read every file that a setting names. Raises SettingsError."""
    if states in SHIPPED:
        for name in SHIPPED[states].values():
            _shipped(name)
    elif states:
        read_states(Path(states))


@lru_cache(maxsize=16)
def read_states(path: Path) -> SiteStates:
    """Read the states from a user's file. Raises SettingsError."""
    try:
        return parse_states(path.read_text(encoding="utf-8"), source=str(path))
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(
            f"scaffold.states: the state file {path} cannot be read ({error}). Give the path of a file, or "
            f"{' or '.join(map(repr, SHIPPED))} for the shipped files."
        ) from error


@lru_cache(maxsize=16)
def _shipped(name: str) -> SiteStates:
    return parse_states((files("hindcast.actors.scaffold.sites") / name).read_text(), source=name)


def parse_states(text: str, *, source: str) -> SiteStates:
    """Parse states from TOML. Raises SettingsError naming the file, the state and the rule."""
    try:
        site = convert(parse_toml(text), SiteStates)
    except msgspec.ValidationError as error:
        raise SettingsError(f"the state file {source} is invalid: {error}") from error
    except ValueError as error:
        raise SettingsError(f"the state file {source} is not TOML: {error}") from error
    problems = list(_problems(site))
    if problems:
        raise SettingsError("\n".join(f"the state file {source}: {problem}" for problem in problems))
    digest = sha256(text.encode()).hexdigest()[:8]
    return msgspec.structs.replace(site, rules=f"{Path(source).stem}@{digest}")


def _problems(site: SiteStates) -> Iterator[str]:
    names = [state.name for state in site.state]
    if not names:
        yield "it has no [[state]]"
    for name in sorted({name for name in names if names.count(name) > 1}):
        yield f"two states are called {name!r}"
    for group, rules in site.groups.items():
        for rule in rules:
            yield from _action_problems(rule, f"group {group!r}")
    for state in site.state:
        yield from _state_problems(site, state)
    if site.backup is not None:
        yield from _backup_problems(site)


def _state_problems(site: SiteStates, state: SiteState) -> Iterator[str]:
    path = f"state {state.name!r}"
    if not state.path and not state.shows:
        yield f"{path} has neither path nor shows, so it would match every page: add one of them"
    yield from _pattern_problems(state.path, f"{path}, path")
    elements = (*state.shows, *(state.candidate.reads if state.candidate else ()))
    for rule_element in (*elements, state.after) if state.after else elements:
        yield from _pattern_problems(rule_element.text, path)
    unknown = sorted(set(state.uses) - set(site.groups))
    if unknown:
        yield f"{path} uses {', '.join(map(repr, unknown))}, which are not groups; groups: {', '.join(site.groups) or 'none'}"
        return
    own_count = len(state.actions)
    rules = site.rules_of(state)
    for rule in rules[len(rules) - own_count :]:
        yield from _action_problems(rule, path)
    known_rules = [rule for rule in rules if rule.action in ACTIONS]
    if all(rule.needs_element or (rule.quotes and not rule.arguments) for rule in known_rules):
        yield (
            f"{path} allows no action that is possible on every page: add an action without an element, such as Go_backward or "
            "Wait, or exit with arguments or any text"
        )
    for name in sorted({rule.action for rule in known_rules}):
        if len({rule.is_fixed for rule in known_rules if rule.action == name}) == 2:
            yield f"{path} allows {name} with given arguments and with any text: choose one of the two"


def _action_problems(rule: ActionRule, path: str) -> Iterator[str]:
    takes = ACTIONS.get(rule.action)
    if takes is None:
        yield f"{path} allows {rule.action!r}, which is not an action; actions: {', '.join(ACTIONS)}"
        return
    if takes.element == "none" and (rule.kind or rule.text):
        yield f"{path}: {rule.action} takes no element, but kind or text is given"
    if takes.argument == "none" and (rule.arguments or rule.quotes):
        yield f"{path}: {rule.action} takes no argument, but arguments or quotes are given"
    for pattern in (rule.text, *(quote.text for quote in rule.quotes)):
        yield from _pattern_problems(pattern, f"{path}, {rule.action}")


def _backup_problems(site: SiteStates) -> Iterator[str]:
    assert site.backup is not None
    takes = ACTIONS.get(site.backup.action)
    if takes is None or takes.element == "required" or takes.argument == "none":
        fitting = [
            name
            for name, arguments in ACTIONS.items()
            if arguments.element != "required" and arguments.argument != "none"
        ]
        yield f"[backup] action {site.backup.action!r} must take an argument and no element: {', '.join(fitting)}"
    if not any(state.candidate for state in site.state):
        yield "[backup] chooses a candidate, but no state shows one: give a state a [state.candidate]"
    if not any(state.searching for state in site.state):
        yield "[backup] needs a state with searching = true, and there is none"


def _pattern_problems(pattern: str, path: str) -> Iterator[str]:
    try:
        re.compile(pattern)
    except re.error as error:
        yield f"{path}: {pattern!r} is not a regular expression: {error}"
