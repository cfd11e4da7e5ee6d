"""A checked task of WebArena's file format: what an evaluator needs, and where the task takes place.

Format: `config_files/test.raw.json` of WebArena and `test_webarena_lite.raw.json` of VisualAgentBench (Apache-2.0). Calls
of helper functions, such as `func:shopping_get_latest_order_url()`, are parsed and never run as Python.
"""

import ast
from collections.abc import Mapping
from typing import Any, Literal, cast, get_args

import msgspec

from hindcast.actors.environments.webarena.matchers import Rules

PREFIX = "func:"
PAGE = "__page__"
"""Argument that means the page itself."""
LAST_URL = "__last_url__"
"""Replaced in an argument by the page's address."""

PARAMETERS: Mapping[str, int] = {
    "shopping_get_latest_order_url": 0,
    "shopping_get_sku_latest_review_author": 1,
    "shopping_get_sku_latest_review_rating": 1,
    "reddit_get_post_url": 1,
    "gitlab_get_project_memeber_role": 2,
}
"""Helper functions of the task files and their numbers of arguments; names are spelt as there."""


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """A call of a helper function."""

    name: str
    arguments: tuple[str, ...]


def read_call(text: str) -> Call:
    """Parse the call after `func:`.

    Raises:
        ValueError: it is no call, or its function or arguments are unknown; the message says which.

    >>> read_call("func:reddit_get_post_url('__last_url__')")
    Call(name='reddit_get_post_url', arguments=('__last_url__',))
    """
    try:
        node = ast.parse(text.removeprefix(PREFIX).strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ValueError("it is no call of a function") from error
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name) or node.keywords:
        raise ValueError("it is no plain call of a function")
    name = node.func.id
    if name not in PARAMETERS:
        raise ValueError(f"there is no function {name!r}; there are: {', '.join(PARAMETERS)}")
    if len(node.args) != PARAMETERS[name]:
        raise ValueError(f"{name} has {PARAMETERS[name]} arguments, not {len(node.args)}")
    return Call(name=name, arguments=tuple(map(_call_argument, node.args)))


def _call_argument(node: ast.expr) -> str:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.Name) and node.id == PAGE:
        return PAGE
    raise ValueError(f"an argument must be a text in quotes or {PAGE}")


Check = Literal["string_match", "url_match", "program_html"]
Approach = Literal["exact_match", "must_include", "fuzzy_match"]

SITES = ("shopping", "shopping_admin", "reddit", "gitlab", "wikipedia", "map")
"""Names in `sites`, in the order of the benchmark's own documentation."""
LOCATORS = ("document.", "[...document.", PREFIX)
"""Beginnings of a locator that is not empty."""
NOTES = ("EXACT", "GOLD in PRED")
NOT_APPLICABLE = "N/A"


class Requirement(msgspec.Struct, frozen=True, kw_only=True):
    """What a text must be like, in one of the ways to compare."""

    approach: Approach
    references: tuple[str, ...]
    """The texts to compare with; one for `exact_match`."""
    whole: bool = False
    """Whether `references` was a single text: `fuzzy_match: "N/A"` asks whether a task was found impossible."""


class PageCheck(msgspec.Struct, frozen=True, kw_only=True):
    """One entry of `program_html`: where to look at the end, and what must be there."""

    url: str
    """An address, `last`, or a call of a helper function."""
    locator: str
    """A JavaScript expression, a call of a helper function, or empty for the whole page."""
    prepare: tuple[str, ...] = ()
    """Expressions to run before it (`prep_actions`)."""
    required: Requirement


class Evaluation(msgspec.Struct, frozen=True, kw_only=True):
    """The task's `eval`, as evaluators read it."""

    rules: Rules
    checks: tuple[Check, ...]
    """The checks; the score is their product."""
    answers: tuple[Requirement, ...] = ()
    impossible: str = ""
    """Why a task is impossible, if it is (`string_note`)."""
    address: str = ""
    note: str = ""
    """One of `NOTES`, or empty."""
    targets: tuple[PageCheck, ...] = ()


class WebArenaTask(msgspec.Struct, frozen=True, kw_only=True):
    """A checked task."""

    number: int
    """`task_id` in the file."""
    sites: tuple[str, ...]
    start: tuple[str, ...]
    """Addresses to begin at, a tab each."""
    intent: str
    login: tuple[str, ...]
    """Sites to log in to: those that `storage_state` is named after."""
    evaluation: Evaluation


class Malformed(Exception):
    """A task that is not in the format; names the key, its value and what is wrong."""

    def __init__(self, key: str, value: object, wrong: str) -> None:
        value_text = repr(value)
        super().__init__(
            f"{key} = {value_text if len(value_text) <= 120 else value_text[:117] + '…'}: {wrong}"
        )


def read_task(raw: object) -> WebArenaTask:
    """Parse a task of the file.

    Raises:
        Malformed: a key is missing, of the wrong type, or has a value that cannot be evaluated.
    """
    if not isinstance(raw, dict):
        raise Malformed("the entry", raw, "a task is an object")
    if raw.get("geolocation") is not None:
        raise Malformed("geolocation", raw["geolocation"], "only null is known")
    sites = _texts(raw, "sites", "")
    for site in sites:
        if site not in SITES:
            raise Malformed("sites", list(sites), f"{site!r} is no site; there are: {', '.join(SITES)}")
    if not sites:
        raise Malformed("sites", [], "a task takes place somewhere")
    login = _login(raw)
    return WebArenaTask(
        number=_of_kind(raw, "task_id", int, ""),
        sites=sites,
        start=tuple(address.strip() for address in _filled(raw, "start_url", "").split("|AND|")),
        intent=_filled(raw, "intent", ""),
        login=login if _of_kind(raw, "require_login", bool, "") else (),
        evaluation=_evaluation(
            _of_kind(raw, "eval", dict, ""), "lite" if "old_task_id" in raw else "webarena"
        ),
    )


def _login(raw: Mapping[str, Any]) -> tuple[str, ...]:
    """The sites in a storage state's name: `./.auth/gitlab.reddit_state.json` is for a login to both."""
    state = raw.get("storage_state")
    if state is None:
        return ()
    name = state.rsplit("/", 1)[-1] if isinstance(state, str) else ""
    sites = tuple(name.removesuffix("_state.json").split("."))
    if not name.endswith("_state.json") or any(site not in SITES for site in sites):
        raise Malformed(
            "storage_state", state, "it must be named after sites, as ./.auth/gitlab.reddit_state.json"
        )
    return sites


def _evaluation(raw: Mapping[str, Any], rules: Rules) -> Evaluation:
    checks = _texts(raw, "eval_types", "eval.")
    for check in checks:
        if check not in get_args(Check):
            check_names = ", ".join(get_args(Check))
            raise Malformed(
                "eval.eval_types", list(checks), f"{check!r} is unknown; there are: {check_names}"
            )
    if not checks:
        raise Malformed("eval.eval_types", [], "nothing would be evaluated")
    note = raw.get("url_note") or ""
    if "url_match" in checks and note and note not in NOTES:
        raise Malformed("eval.url_note", note, f"it must be one of: {', '.join(NOTES)}")
    return Evaluation(
        rules=rules,
        checks=cast(tuple[Check, ...], checks),
        answers=_answers(raw) if "string_match" in checks else (),
        impossible=raw.get("string_note") or "",
        address=_filled(raw, "reference_url", "eval.") if "url_match" in checks else "",
        note=note if "url_match" in checks else "",
        targets=_targets(raw) if "program_html" in checks else (),
    )


def _answers(raw: Mapping[str, Any]) -> tuple[Requirement, ...]:
    answers = _of_kind(raw, "reference_answers", dict, "eval.")
    if not answers:
        raise Malformed("eval.reference_answers", answers, "string_match has nothing to compare with")
    return tuple(
        _requirement(approach, value, "eval.reference_answers") for approach, value in answers.items()
    )


def _targets(raw: Mapping[str, Any]) -> tuple[PageCheck, ...]:
    entries = _of_kind(raw, "program_html", list, "eval.")
    if not entries:
        raise Malformed("eval.program_html", entries, "program_html has nothing to look at")
    return tuple(_target(entry, f"eval.program_html[{number}]") for number, entry in enumerate(entries))


def _target(raw: object, path: str) -> PageCheck:
    if not isinstance(raw, dict):
        raise Malformed(path, raw, "it must be an object")
    url, locator = _filled(raw, "url", f"{path}."), _of_kind(raw, "locator", str, f"{path}.").strip()
    if locator and not locator.startswith(LOCATORS):
        raise Malformed(
            f"{path}.locator", locator, f"it must be empty or begin with one of: {', '.join(LOCATORS)}"
        )
    for key, value in (("url", url), ("locator", locator)):
        if value.startswith(PREFIX):
            try:
                read_call(value)
            except ValueError as error:
                raise Malformed(f"{path}.{key}", value, str(error)) from error
    required = _of_kind(raw, "required_contents", dict, f"{path}.")
    if len(required) != 1:
        raise Malformed(f"{path}.required_contents", required, "it must have one key")
    [(approach, value)] = required.items()
    return PageCheck(
        url=url,
        locator=locator,
        prepare=_texts(raw, "prep_actions", f"{path}.") if "prep_actions" in raw else (),
        required=_requirement(approach, value, f"{path}.required_contents"),
    )


def _requirement(way: str, value: object, path: str) -> Requirement:
    if way not in get_args(Approach):
        raise Malformed(path, {way: value}, f"{way!r} is unknown; there are: {', '.join(get_args(Approach))}")
    approach = cast(Approach, way)
    if isinstance(value, str):
        return Requirement(approach=approach, references=(value,), whole=True)
    if way == "exact_match" or not isinstance(value, list) or not value:
        kind = "a text" if way == "exact_match" else "a list of texts"
        raise Malformed(f"{path}.{way}", value, f"it must be {kind}")
    for item in value:
        if not isinstance(item, str):
            raise Malformed(f"{path}.{way}", value, f"{item!r} is no text")
    return Requirement(approach=approach, references=tuple(value))


def _of_kind(raw: Mapping[str, Any], key: str, kind: type, prefix: str) -> Any:
    if key not in raw:
        raise Malformed(f"{prefix}{key}", None, "it is missing")
    value = raw[key]
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise Malformed(f"{prefix}{key}", value, f"it must be {_NAMES[kind]}")
    return value


def _filled(raw: Mapping[str, Any], key: str, prefix: str) -> str:
    value = cast(str, _of_kind(raw, key, str, prefix))
    if not value.strip():
        raise Malformed(f"{prefix}{key}", value, "it must not be empty")
    return value


def _texts(raw: Mapping[str, Any], key: str, prefix: str) -> tuple[str, ...]:
    value = _of_kind(raw, key, list, prefix)
    if any(not isinstance(text, str) for text in value):
        raise Malformed(f"{prefix}{key}", value, "it must be a list of texts")
    return tuple(value)


_NAMES = {
    int: "a whole number",
    bool: "true or false",
    str: "a text",
    list: "a list",
    dict: "an object",
}
