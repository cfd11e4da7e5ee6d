"""Tasks in WebArena's file format for tests, and what an evaluator needs of them."""

import json
from pathlib import Path
from typing import Any

from hindcast.actors.environments.webarena.evaluators import evaluate
from hindcast.actors.environments.webarena.matchers import ALTERNATIVE
from hindcast.actors.environments.webarena.probes import ProbedPage, encode_probes
from hindcast.actors.environments.webarena.schema import Requirement
from hindcast.actors.environments.webarena.tasks import WebArenaTasks, goal_of
from hindcast.core.domain.evidence import Evidence, Judgment
from hindcast.core.domain.task import Task
from hindcast.core.settings.schema import SiteSettings

SITES = {
    "shopping": "http://shop.test:7770",
    "shopping_admin": "http://shop.test:7780/admin",
    "reddit": "http://forum.test:9999",
    "gitlab": "http://git.test:8023",
    "wikipedia": "http://wiki.test:8888/wikipedia_en/Landing",
    "map": "http://map.test:3000",
}
ACCOUNTS = dict.fromkeys(("shopping", "shopping_admin", "reddit", "gitlab"), ("WEB_USER", "WEB_PASSWORD"))
SMALL = Path(__file__).parent / "webarena_small.json"
"""Tasks of our own in the format, one per way to be evaluated."""


def raw_task(number: int = 1, *, lite: bool = True, **changes: Any) -> dict[str, Any]:
    """An entry of a task file; `eval` is laid over what it has."""
    evaluation = {
        "eval_types": ["string_match"],
        "reference_answers": {"must_include": ["42"]},
        "reference_url": "",
        "program_html": [],
        **changes.pop("eval", {}),
    }
    entry = {
        "sites": ["reddit"],
        "task_id": number,
        "require_login": True,
        "storage_state": "./.auth/reddit_state.json",
        "start_url": "__REDDIT__",
        "geolocation": None,
        "intent_template": "How many are there?",
        "instantiation_dict": {},
        "intent": "How many are there?",
        "require_reset": False,
        "eval": evaluation,
        "intent_template_id": 1,
        **changes,
    }
    return entry | ({"old_task_id": number} if lite else {})


def settings_for(folder: Path, *entries: Any, **changes: Any) -> SiteSettings:
    """Settings that name a file with these tasks."""
    file = folder / "tasks.json"
    file.write_text(json.dumps(entries))
    given = {"webarena_sites": SITES, "webarena_accounts": ACCOUNTS, **changes}
    return SiteSettings(webarena_tasks=str(file), **given)


def only_task(folder: Path, entry: dict[str, Any]) -> Task:
    """The one task of a file."""
    [task] = WebArenaTasks(settings_for(folder, entry)).tasks()
    return task


def verdict(
    task: Task, *, answer: str | None = None, ended: str = "", looks: tuple[ProbedPage, ...] = ()
) -> Judgment:
    """By the evaluator."""
    probes = encode_probes(looks, goal_of(task).evaluation)
    return evaluate(task, Evidence(answer=answer, final_url=ended, probes=probes))


def passing_evidence(task: Task) -> Evidence:
    """What an agent would leave that did everything a task asks for, in the references' own words."""
    wanted = goal_of(task).evaluation
    looks = [ProbedPage(url=target.url, found=_said(target.required)) for target in wanted.targets]
    return Evidence(
        answer=" ".join(map(_said, wanted.answers)),
        final_url=wanted.address.split(ALTERNATIVE)[0],
        probes=encode_probes(looks, wanted),
    )


def _said(required: Requirement) -> str:
    return " ".join(one.split(ALTERNATIVE)[0] for one in required.references)
