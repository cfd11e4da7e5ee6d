"""One declaration of an event type gives its subject, who may append it, and what the audit and the read model make of it."""

from typing import Any

import msgspec
import pytest

from hindcast.core.settings.schema import LogSettings
from hindcast.events.envelope import BlobRef, Fact
from hindcast.events.jetstream.accounts import PUBLISHES, may_append
from hindcast.events.log.memory import MemoryLog
from hindcast.events.log.publisher import Publisher
from hindcast.events.log.reader import read
from hindcast.events.registry import BY_CLASS, BY_NAME, ROLES, SUBJECTS, fact
from hindcast.events.subjects import NOTICE, subject_of
from hindcast.storage.audit.fold import Fold
from hindcast.storage.readmodel.mapping import operations
from hindcast.storage.readmodel.row_operations import Insert


@fact("mood.noted", subject=NOTICE, roles="actor", refs={"episode": "episode", "after": "position"})
class MoodNoted(Fact, frozen=True, kw_only=True):
    """An event type that nothing else in the repository names."""

    episode: str
    after: int
    mood: str


del BY_NAME["mood.noted"]
MOOD = BY_CLASS.pop(MoodNoted)


@pytest.fixture
def declared(monkeypatch: pytest.MonkeyPatch) -> None:
    """The new type is registered during one test."""
    monkeypatch.setitem(BY_NAME, MOOD.name, MOOD)
    monkeypatch.setitem(BY_CLASS, MoodNoted, MOOD)


async def recorded(log: MemoryLog, *facts: Fact, producer: str = "actor.1") -> list[Any]:
    async with Publisher(
        log, producer=producer, code_rev="test", settings=LogSettings(linger_ms=0)
    ) as publisher:
        for one in facts:
            await publisher.publish(one, entity="ep_1")
        await publisher.commit()
    return [one async for one in read(log)]


def defects(log: MemoryLog) -> list[str]:
    fold = Fold(log.run, None, first=1, depth="none", pages=False, witnesses=())
    for stored in log.events:
        fold.take(stored)
    fold.finish(end=fold.position)
    return [defect.what for defect in fold.findings.defects()]


@pytest.mark.usefixtures("declared")
async def test_a_new_event_type_is_appended_read_audited_and_shown_by_its_declaration_alone() -> None:
    log = MemoryLog("tale")
    (one,) = await recorded(log, MoodNoted(episode="ep_1", after=7, mood="calm"))
    assert one.fact == MoodNoted(episode="ep_1", after=7, mood="calm")
    assert log.events[0].subject.startswith("run.tale.notice.actor.1.")
    assert {"episode ep_1 was never requested", "after is no earlier position"} <= set(defects(log))
    (shown,) = operations(one)
    assert isinstance(shown, Insert)
    assert (shown.table, shown.values["about"], shown.values["text"]) == (
        "notices",
        "ep_1",
        "episode ep_1, after 7, mood calm",
    )


@pytest.mark.usefixtures("declared")
async def test_the_audit_reports_who_is_not_of_the_declared_role() -> None:
    log = MemoryLog("tale")
    await recorded(log, MoodNoted(episode="ep_1", after=0, mood="calm"), producer="judge.1")
    assert "judge.1 does not record mood.noted" in defects(log)
    assert may_append("judge.1", "notice"), "the broker grants whole families"


def test_what_a_role_may_append_is_what_the_declarations_say() -> None:
    for role in set(ROLES) - {"importer"}:
        assert set(PUBLISHES[role]) == {entry.family for entry in BY_NAME.values() if role in entry.roles}
    assert set(PUBLISHES["importer"]) == set(SUBJECTS) == {entry.family for entry in BY_NAME.values()}


def test_no_role_gets_a_further_permission_by_accident() -> None:
    expected = {
        "admin": ("run", "notice"),
        "curriculum": (
            "curriculum",
            "request",
            "episode_end",
            "notice",
            "control",
            "snapshot",
            "evaluation",
        ),
        "actor": ("episode", "episode_end", "step", "adoption", "notice"),
        "policy_server": ("notice",),
        "judge": ("verdict", "notice"),
        "relabeler": ("relabel", "notice"),
        "learner": ("learner", "storage", "notice", "snapshot"),
        "control": ("control", "dispute"),
        "projector": (),
        "archiver": ("storage", "notice", "snapshot"),
        "reader": (),
        "importer": tuple(sorted(SUBJECTS)),
        "repairer": ("storage",),
    }
    assert expected == PUBLISHES


@pytest.mark.parametrize("name", sorted(BY_NAME))
def test_every_reference_names_a_field_of_a_type_that_can_hold_it(name: str) -> None:
    for path, kind in BY_NAME[name].refs:
        expected = {"episode": str, "task": str, "page": BlobRef}.get(kind, int)
        assert expected in types_at(BY_NAME[name].cls, path), f"{name}: {path}"


def types_at(cls: Any, path: str) -> set[Any]:
    """Types that a field may hold; those of the items of a tuple, in nested structs."""
    name, _, rest = path.partition(".")
    hint = next(field.type for field in msgspec.structs.fields(cls) if field.name == name)
    held = {hint}
    while further := {inner for one in held for inner in getattr(one, "__args__", ())} - held:
        held |= further
    if not rest:
        return held
    structs = [one for one in held if isinstance(one, type) and issubclass(one, msgspec.Struct)]
    return set().union(*(types_at(one, rest) for one in structs))


def test_a_declaration_that_cannot_be_right_is_refused() -> None:
    class Other(Fact, frozen=True, kw_only=True):
        episode: str

    with pytest.raises(ValueError, match=r"two facts are named 'step.taken'"):
        fact("step.taken", subject=NOTICE, roles="actor")(Other)
    with pytest.raises(ValueError, match=r"'player', which is no role"):
        fact("other.noted", subject=NOTICE, roles="player")(Other)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"no field 'task_id'"):
        fact("other.noted", subject=NOTICE, roles="actor", refs={"task_id": "task"})(Other)
    assert Other not in BY_CLASS


def test_facts_that_are_created_once_have_a_subject_per_entity() -> None:
    assert all(one.per_entity for one in SUBJECTS.values() if one.created_once)
    assert subject_of("r", BY_NAME["episode.ended"].cls, key="ep_1") == "run.r.episode_end.ep_1"
