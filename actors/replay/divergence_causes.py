"""Why an episode may have come out differently in a replay. Pure: facts about both times in, words out.

The first cause that holds is named. None is a proof, but each says what to check next.
"""

from collections.abc import Mapping
from typing import Literal

import msgspec

from hindcast.actors.replay.steps import Difference, hangs_on_time
from hindcast.core.domain.task import Task

Kind = Literal["altered", "clock", "deadline", "chance", "version", "steady", "unsteady"]


class Cause(msgspec.Struct, frozen=True, kw_only=True):
    """A likely cause of a difference: its kind, and an explanation."""

    kind: Kind
    words: str


class Surroundings(msgspec.Struct, frozen=True, kw_only=True):
    """What pages depend on, in addition to seed and actions."""

    code_rev: str
    packages: dict[str, str]
    """Versions, such as of `miniwob` and `playwright`."""


MATTER = ("miniwob", "playwright")
"""Packages that pages depend on."""


def explain(
    task: Task, difference: Difference, again: Difference | None, *, then: Surroundings, now: Surroundings
) -> Cause:
    """The likely cause of a difference. `again`: result of a second replay; None: as recorded."""
    if difference.altered:
        return Cause(
            kind="altered",
            words="the recorded page does not have the recorded fingerprint: event or blob was altered afterwards",
        )
    if "timeout" in (difference.recorded.split(" ")[0], difference.now.split(" ")[0]):
        return Cause(
            kind="deadline",
            words="a deadline (actors.action_timeout_s, actors.page_timeout_s): how fast a machine answers is no part "
            "of an episode",
        )
    changes = differences(then, now) if again == difference else []
    since = f"since the recording changed {'; '.join(changes)}" if changes else ""
    if hangs_on_time(task):
        clock = f"what {task.family} shows depends on the time that passes between actions (docs/miniwob.md)"
        return Cause(kind="clock", words=f"{clock}; or it is steady: {since}" if since else clock)
    if again is None:
        return Cause(
            kind="chance",
            words="replayed once more it came out as recorded: something on the page is a race that was won otherwise",
        )
    if again != difference:
        return Cause(
            kind="unsteady",
            words="replayed once more it came out in a third way: this page is not repeatable",
        )
    if since:
        return Cause(kind="version", words=f"steady, and {since}")
    return Cause(
        kind="steady",
        words="steady, with the same code and packages: the browser is another one, or the record was altered",
    )


def differences(then: Surroundings, now: Surroundings) -> list[str]:
    """What changed between recording and replay, in words."""
    changes = [
        f"{name} {_version(then.packages, name)} -> {_version(now.packages, name)}"
        for name in MATTER
        if then.packages.get(name) != now.packages.get(name)
    ]
    if then.code_rev != now.code_rev:
        changes.append(f"the code {then.code_rev} -> {now.code_rev}")
    return changes


def _version(packages: Mapping[str, str], name: str) -> str:
    return packages.get(name, "unknown")
