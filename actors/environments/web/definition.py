"""Definition of one task in a task file. It is complete, and recorded in the log as `Task.goal`.

It never contains secrets. Where one is needed (login, reset, HTTP probes) it is named as `${NAME}`, the name of an
environment variable, and inserted when the site uses it (`secrets`).
"""

import re
from typing import Any, Literal
from urllib.parse import urlsplit

import msgspec

from hindcast.actors.environments.base import ResetSemantics
from hindcast.core.errors import SettingsError
from hindcast.core.structs import convert

NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
"""Names and families appear in addresses and settings: `web/reading:3`."""
PLACEHOLDER = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
WEB = ("http", "https")


class Definition(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Base of the parts of a task file: no unknown keys; defaults are omitted when written."""


class Check(Definition, frozen=True, kw_only=True):
    """A condition at the end of an episode: where to look, and what must be found there."""

    of: Literal["answer", "url", "text", "value", "count", "script", "http"]
    """The answer; the final address; the visible text, the field values or the number of the elements that `selector` finds;
    the result of `script` in the page; the response to an HTTP GET of `address`.
    """
    selector: str = ""
    """CSS, or another selector of Playwright's."""
    script: str = ""
    """A JavaScript expression."""
    at: str = ""
    """The page to look at, relative to the start; opened anew at the end. Empty: the final page of the episode."""
    address: str = ""
    """Address for `http`: absolute, or relative to the start."""
    headers: dict[str, str] = {}
    """Headers for `http`; may name secrets."""
    field: str = ""
    """For `http`: path into a JSON response, by dots: `items.0.title`. Empty: the whole text."""
    exact: str | None = None
    """The text equals this, ignoring case and extra spaces."""
    contains: str | None = None
    """The text contains this, ignoring case and extra spaces."""
    regex: str | None = None
    """Matches anywhere in the text, as Python's `re.search`."""
    number: float | None = None
    """The only number in the text is this one."""
    tolerance: float = 0.0
    """Largest allowed distance from `number`."""


UNCHECKED = Check(of="answer", contains="")
"""Holds for any answer: a placeholder for a task whose check comes from a recording, or that has none."""


class Step(Definition, frozen=True, kw_only=True):
    """One action in a browser: exactly one of the verbs, with `value` for those that enter something."""

    goto: str = ""
    """An address, absolute or relative to the start."""
    fill: str = ""
    """Selector of a field."""
    click: str = ""
    """Selector of the element to click."""
    select: str = ""
    """Selector of a dropdown; `value` is the option's label or value."""
    press: str = ""
    """A key, such as Enter."""
    wait: str = ""
    """Selector of an element that must become visible before the next step."""
    value: str = ""
    """The value to enter; may name secrets."""


class Login(Definition, frozen=True, kw_only=True):
    """How the browser logs in before the episode begins: by steps, or by a state saved with `hindcast login`."""

    steps: tuple[Step, ...] = ()
    state: str = ""
    """Name of a saved state, under `secrets/logins` of the home."""
    signed_in: str = ""
    """Selector of an element of the start page that is visible only while logged in; if it is not, the login failed or expired."""


class Reset(Definition, frozen=True, kw_only=True):
    """How the back end is reset: by a command, or by an HTTP call that must answer 2xx."""

    command: tuple[str, ...] = ()
    """Program and arguments; no shell. It sees the environment of the process, secrets included."""
    url: str = ""
    """Address of the call; may name secrets, as headers and body may."""
    method: Literal["POST", "GET", "PUT", "DELETE"] = "POST"
    headers: dict[str, str] = {}
    body: str = ""


class WebTask(Definition, frozen=True, kw_only=True):
    """One task on one site."""

    name: str
    """Unique in its file."""
    family: str = "tasks"
    """Groups tasks for results and curricula."""
    instruction: str
    """The agent's instruction."""
    start: str
    """Address where an episode begins."""
    origins: tuple[str, ...] = ()
    """Where it may navigate, as scheme://host:port; empty: the start's origin."""
    checks: tuple[Check, ...] = ()
    """What the rule judge checks at the end."""
    need: Literal["all", "any"] = "all"
    """Whether all checks must hold, or any one."""
    judge: str = ""
    """In place of checks: the judge that decides, such as orm."""
    resets: ResetSemantics = "none"
    """The state that an episode begins in: its own (`per_episode`: by `reset`, or because the site keeps all state in the
    browser's session); that of one reset before the first episode (`per_batch`); the one that the last episode left (`none`).
    """
    reset: Reset | Literal["none"] = "none"
    """How the back end is reset to that state."""
    parallel: bool = False
    """Whether episodes may use one back end concurrently, because they only read, or change only their own data."""
    fingerprint: str = ""
    """Selector of what must be the same at each start; empty: the whole first page."""
    login: Login | None = None
    max_steps: int = 20
    """Steps after which an episode is truncated."""
    viewport: tuple[int, int] = (1280, 1024)
    """Width and height of the window in pixels."""

    @property
    def exclusive(self) -> bool:
        """Whether its reset would destroy the state of other running episodes."""
        return self.resets == "per_episode" and self.reset != "none" and not self.parallel

    @property
    def shares(self) -> bool:
        """Whether episodes see the changes of others."""
        return self.resets != "per_episode" and not self.parallel


class DefinitionError(Exception):
    """What is wrong with a definition: `key`, then the reason."""

    def __init__(self, key: str, reason: str) -> None:
        super().__init__(f"{key}: {reason}")


def task_of(content: dict[str, Any]) -> WebTask:
    """Parse and check a definition. Raises DefinitionError."""
    try:
        task = convert(content, WebTask)
    except msgspec.ValidationError as error:
        raise DefinitionError(*_key_and_reason(str(error))) from error
    _check_task(task)
    if not task.origins:
        task = msgspec.structs.replace(task, origins=(origin_of(task.start),))
    return task


def tasks_of(contents: tuple[dict[str, Any], ...]) -> tuple[WebTask, ...]:
    """The definitions in the settings. Raises SettingsError, naming the task and the key."""
    tasks: dict[str, WebTask] = {}
    for number, content in enumerate(contents):
        task_path = f"web.tasks, task {content.get('name') or number + 1!r}"
        try:
            task = task_of(content)
        except DefinitionError as wrong:
            raise SettingsError(f"{task_path}: {wrong}") from wrong
        if task.name in tasks:
            raise SettingsError(f"{task_path}: name: another task has this name")
        tasks[task.name] = task
    return tuple(tasks.values())


def to_plain_values(task: WebTask) -> dict[str, Any]:
    """A definition in the values that JSON and TOML have, so that it equals itself when read back."""
    content: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(task))
    return content


def origin_of(url: str) -> str:
    """Scheme, host and port of an address.

    >>> origin_of("http://127.0.0.1:8080/notes?page=2")
    'http://127.0.0.1:8080'
    """
    address = urlsplit(url)
    return f"{address.scheme}://{address.netloc}"


def secrets_named(definition: Definition) -> set[str]:
    """The environment variables that a definition, or a part of one, names."""
    return set(PLACEHOLDER.findall(msgspec.json.encode(definition).decode()))


def _key_and_reason(message: str) -> tuple[str, str]:
    """Split msgspec's message into key and reason."""
    reason, _, path = message.partition(" - at `$")
    key = path.rstrip("`").lstrip(".")
    return key or "the task", reason[:1].lower() + reason[1:]


def _check_task(task: WebTask) -> None:
    for key, name in (("name", task.name), ("family", task.family)):
        if not NAME.fullmatch(name):
            raise DefinitionError(
                key, f"{name!r} must be small letters, digits, `-` and `_`, a letter or digit first"
            )
    if not task.instruction.strip():
        raise DefinitionError("instruction", "is empty")
    _check_address("start", task.start)
    for origin in task.origins:
        _check_address("origins", origin)
        if urlsplit(origin).path not in ("", "/") or urlsplit(origin).query:
            raise DefinitionError(
                "origins", f"{origin!r} is an address; an origin ends with its host and port"
            )
    if task.origins and origin_of(task.start) not in {origin_of(origin) for origin in task.origins}:
        raise DefinitionError("origins", f"lacks {origin_of(task.start)}, where the task starts")
    if not 1 <= task.max_steps <= 1000:
        raise DefinitionError("max_steps", f"{task.max_steps} must be 1 to 1000")
    if not all(200 <= side <= 4000 for side in task.viewport):
        raise DefinitionError(
            "viewport", f"{list(task.viewport)} must be width and height in pixels, 200 to 4000"
        )
    if task.judge and task.checks:
        raise DefinitionError(
            "judge", f"{task.judge!r} and checks are given; a verdict comes from one of them"
        )
    if not task.judge and not task.checks:
        raise DefinitionError(
            "checks", "there are none, and no judge: nothing decides whether an episode succeeded"
        )
    if task.judge == "rules":
        raise DefinitionError("judge", "'rules' is the judge that reads checks: give checks instead")
    for number, check in enumerate(task.checks):
        _check_check(f"checks[{number}]", check)
    _check_reset(task)
    if task.login is not None:
        _check_login(task.login)
    public = msgspec.structs.replace(task, reset="none", login=None, checks=())
    for name in secrets_named(public):
        raise DefinitionError(
            f"${{{name}}}", "only login, reset and headers name secrets: all else is shown and recorded"
        )


def _check_address(key: str, url: str) -> None:
    try:
        address = urlsplit(url)
        usable = address.scheme in WEB and bool(address.hostname) and address.port != 0
    except ValueError:
        usable = False
    if not usable:
        raise DefinitionError(key, f"{url!r} is no address such as http://127.0.0.1:8080/")
    if address.username is not None or address.password is not None:
        raise DefinitionError(key, "holds a user name or password, and is recorded: use a login")


_NEEDS = {
    "text": "selector",
    "value": "selector",
    "count": "selector",
    "script": "script",
    "http": "address",
}
_BELONGS = {
    "selector": ("text", "value", "count"),
    "script": ("script",),
    "at": ("text", "value", "count", "script"),
    "address": ("http",),
    "headers": ("http",),
    "field": ("http",),
}


def _check_check(key: str, check: Check) -> None:
    needed = _NEEDS.get(check.of)
    if needed and not getattr(check, needed):
        raise DefinitionError(f"{key}.{needed}", f"is missing: of = {check.of!r} needs it")
    for name, kinds in _BELONGS.items():
        if getattr(check, name) and check.of not in kinds:
            raise DefinitionError(
                f"{key}.{name}", f"belongs to of = {' or '.join(map(repr, kinds))}, not {check.of!r}"
            )
    comparisons = [
        name for name in ("exact", "contains", "regex", "number") if getattr(check, name) is not None
    ]
    if len(comparisons) != 1:
        names = " and ".join(comparisons) or "none"
        raise DefinitionError(key, f"needs one of exact, contains, regex and number; found {names}")
    if check.regex is not None:
        try:
            re.compile(check.regex)
        except re.error as error:
            raise DefinitionError(
                f"{key}.regex", f"{check.regex!r} is no regular expression: {error}"
            ) from error
    if check.tolerance and check.number is None:
        raise DefinitionError(f"{key}.tolerance", "belongs to number")
    for name in secrets_named(msgspec.structs.replace(check, headers={})):
        raise DefinitionError(key, f"${{{name}}}: only headers of a check name secrets: all else is recorded")


def _check_reset(task: WebTask) -> None:
    reset = task.reset
    if reset == "none":
        if task.resets == "per_batch":
            raise DefinitionError(
                "reset", "is missing: resets = 'per_batch' says that something resets the site"
            )
        return
    if bool(reset.command) == bool(reset.url):
        raise DefinitionError("reset", "needs a command or a url, one of them")
    if reset.command and (reset.headers or reset.body):
        raise DefinitionError("reset", "headers and body belong to a url, not to a command")
    if reset.url and urlsplit(reset.url).scheme not in WEB and not PLACEHOLDER.match(reset.url):
        raise DefinitionError("reset.url", f"{reset.url!r} is no address such as http://127.0.0.1:8080/reset")
    if task.resets == "none":
        raise DefinitionError(
            "resets", "'none' says that nothing resets the site, and there is a reset: say when"
        )


def _check_login(login: Login) -> None:
    if bool(login.steps) == bool(login.state):
        raise DefinitionError("login", "needs steps or a state, one of them")
    if login.state and not NAME.fullmatch(login.state):
        raise DefinitionError(
            "login.state", f"{login.state!r} is no name of a saved state; hindcast login makes one"
        )
    if login.state and not login.signed_in:
        raise DefinitionError("login.signed_in", "is missing: without it an expired state would go unnoticed")
    check_steps("login.steps", login.steps)


def check_steps(key: str, steps: tuple[Step, ...]) -> None:
    """Check that each step does one thing. Raises DefinitionError."""
    for number, step in enumerate(steps):
        verbs = [verb for verb in VERBS if getattr(step, verb)]
        if len(verbs) != 1:
            raise DefinitionError(
                f"{key}[{number}]", f"needs one of {', '.join(VERBS)}; found {' and '.join(verbs) or 'none'}"
            )
        if step.value and verbs[0] not in ("fill", "select"):
            raise DefinitionError(f"{key}[{number}].value", f"belongs to fill and select, not to {verbs[0]}")


VERBS = ("goto", "fill", "click", "select", "press", "wait")
"""The verbs of a step."""
