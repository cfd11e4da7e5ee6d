"""The audit of whole runs: nothing is held against a true one, and every kind of damage and forgery has its position."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgpack
import numpy as np
import pytest

from hindcast.core.domain.arrays import pack_ids, pack_positions
from hindcast.core.domain.evidence import Judgment
from hindcast.core.grammar.allowed_tokens import pack_allowed
from hindcast.events.archive.archive_log import ArchiveLog
from hindcast.events.catalogue import (
    BlobReleased,
    CheckpointSaved,
    ControlApplied,
    ControlRequested,
    EpisodeAbandoned,
    EpisodeCancelled,
    EpisodeJudged,
    EpisodeStarted,
    EventDeadLettered,
    LogSealed,
    PhaseStarted,
    ReplayScored,
    RunFinished,
    RunResumed,
    SamplesSwept,
    SegmentArchived,
    TaskAdmitted,
    UpdateSkipped,
    VerdictDisputed,
    WeightsAdopted,
    WeightsPublished,
)
from hindcast.events.catalogue.verdict import JudgeIdentity
from hindcast.events.envelope import BlobRef, Fact, Stored
from hindcast.events.log.memory import MemoryLog
from hindcast.storage.archive.archiver import archive_blobs
from hindcast.storage.audit.audit import AuditReport, audit
from hindcast.storage.audit.defects import Defect
from hindcast.storage.audit.fold import Fold
from simulation.schedules import REHEARSING, play, stage
from stories.forged_log import add, audited, forge, positions, put, renumber, values, witness_of
from stories.synthetic_run import recorded_run
from stories.training_story import Bench, Member, bench, copy_of, folder_of, informative, learn, tell

pytestmark = [pytest.mark.broker, pytest.mark.torch]

RULES = JudgeIdentity(name="rules", version="1")
SOME = Judgment(outcome="success", reward=1.0, reason="")
BLOB = BlobRef("0" * 64, 5)
CONSULTED = {
    "model": "m", "request": "ab" * 32, "answer": "YES", "prompt_tokens": 9, "answer_tokens": 1, "cost_usd": 0.1, "tries": 1,
}  # fmt: skip


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    """Five updates in three batches, the last unfinished, with a restart; an abandoned episode, an open one."""

    async def train() -> Bench:
        made = await bench(tmp_path_factory.mktemp("run"))
        await learn(made, until=3)
        await tell(made.log, made.story.group(*informative()[:3], Member(0.0, 2, abandoned=True)))
        await learn(made, until=5)
        under_way = made.story.group(*informative(steps=1))
        await tell(made.log, under_way[:-3])
        return made

    return asyncio.run(train())


@pytest.fixture
async def altered(trained: Bench, tmp_path: Path) -> Bench:
    """The same run, to be altered."""
    return await copy_of(trained, tmp_path / "blobs")


def the(report: AuditReport, what: str) -> Defect:
    """The one defect that says this."""
    found = [defect for defect in report.defects if what in defect.what]
    assert len(found) == 1, [(defect.position, defect.what) for defect in report.defects]
    return found[0]


def only(report: AuditReport, what: str) -> Defect:
    """The only defect there is, which says this."""
    assert report.defects_found == 1, [(defect.position, defect.what) for defect in report.defects]
    return the(report, what)


class TestTrueRuns:
    """No defect is made up."""

    async def test_a_trained_run_with_a_restart_has_no_defects_and_nothing_is_written(
        self, altered: Bench
    ) -> None:
        events, files = list(altered.log.events), sorted(folder_of(altered.blobs).rglob("*"))
        report = await audited(altered, depth="full")
        assert report.defects == ()
        assert report.suspicions == ()
        assert report.clean
        assert (report.events, report.first, report.last) == (len(events), 1, len(events))
        assert report.chains == len({values(stored)["incarnation"] for stored in events})
        assert (report.updates, report.batches) == (5, 3)
        assert report.open.episodes == 1
        assert report.open.minibatches == 1
        assert report.blobs == len([path for path in files if path.is_file()])
        assert altered.log.events == events
        assert sorted(folder_of(altered.blobs).rglob("*")) == files

    @pytest.mark.parametrize("seed", [*range(8), *range(REHEARSING, REHEARSING + 4)])
    def test_a_run_in_which_processes_were_killed_at_any_time_has_none(self, seed: int) -> None:
        with stage() as folder:
            outcome = play(seed, folder)
        fold = Fold("sim", None, first=1, depth="none", pages=True, witnesses=())
        for stored in outcome.site.broker.events:
            fold.take(stored)
        fold.finish(end=fold.position)
        assert fold.events == len(outcome.history) > 0
        assert fold.findings.defects() == ()

    async def test_a_log_that_is_read_on_while_it_grows_is_audited_as_far_as_it_went(
        self, altered: Bench
    ) -> None:
        before = len(altered.log.events)

        async def grow(_position: int, _last: int) -> None: ...

        def progressed(position: int, last: int) -> None:
            renumber(altered.log, [*altered.log.events, *altered.log.events[:3]])

        report = await audit(altered.log, altered.blobs, depth="none", progressed=progressed)
        assert (report.last, report.clean) == (before, True)

    async def test_made_up_facts_in_whole_chains_are_told_apart_from_damage(self) -> None:
        """The synthetic run of other tests: true in form, with invented digests and decisions."""
        log, recordeds = await recorded_run(groups=8)
        fold = Fold("tale", None, first=1, depth="none", pages=True, witnesses=())
        for stored in log.events:
            fold.take(stored)
        fold.finish(end=fold.position)
        assert fold.events == len(recordeds)
        kinds = {defect.check for defect in fold.findings.defects()}
        assert not kinds & {"bytes", "position", "chain", "content", "reference"}
        assert {"digest", "training", "episode", "policy"} <= kinds


class TestDamage:
    """What disks and brokers do to logs."""

    async def test_bytes_that_are_no_event_are_named(self, altered: Bench) -> None:
        put(altered.log, 7, b"\xc1nothing")
        report = await audited(altered)
        assert the(report, "no MessagePack").position == 7
        assert all(defect.names(7) or defect.position > 7 for defect in report.defects)

    async def test_a_changed_byte_in_the_midst_of_a_chain_names_it_and_its_successor(
        self, altered: Bench
    ) -> None:
        step = positions(altered.log, "step.taken")[5]
        content = bytearray(altered.log.events[step - 1].data)
        content[content.find(b"Wait")] ^= 1
        put(altered.log, step, bytes(content))
        found = the(await audited(altered), "the bytes are not those that the next event")
        assert (found.position, found.suspects) == (step, (step, step + 1))

    async def test_a_changed_last_event_of_a_producer_shows_in_the_digest_of_the_next_plan(
        self, altered: Bench
    ) -> None:
        """No successor vouches for it; the plan knows the whole log."""
        ends = {values(stored)["incarnation"]: stored.position for stored in altered.log.events}
        planned = positions(altered.log, "batch.planned")
        victim = max(end for end in ends.values() if end < planned[1])
        content = bytearray(altered.log.events[victim - 1].data)
        content[content.find(b"code_rev") + len(b"code_rev") + 1] ^= 1
        put(altered.log, victim, bytes(content))
        found = only(await audited(altered), "is not the one that batch")
        assert victim in found.suspects
        assert found.names(victim)

    async def test_events_of_different_producers_that_changed_places_are_found_by_the_digest_alone(
        self, altered: Bench
    ) -> None:
        events = list(altered.log.events)
        planned = positions(altered.log, "batch.planned")[0]
        place = next(
            index
            for index in range(planned - 2)
            if events[index].subject.split(".")[2] == "verdict"
            and events[index + 1].subject.split(".")[2] == "episode"
        )
        events[place], events[place + 1] = events[place + 1], events[place]
        renumber(altered.log, events)
        report = await audited(altered)
        found = the(report, "is not the one that batch 0 notes")
        assert found.position <= place + 1 < found.until
        assert "changed places" in found.meaning
        assert {defect.check for defect in report.defects} == {"digest"}

    async def test_lost_positions_are_named_as_a_range(self, altered: Bench) -> None:
        kept = [stored for stored in altered.log.events if not 20 <= stored.position <= 24]

        class Holed(MemoryLog):
            async def read(self, *, after: int, limit: int) -> list[Stored]:
                return [stored for stored in kept if stored.position > after][:limit]

        log = Holed(altered.log.run)
        log.events[:] = altered.log.events
        found = the(await audited(altered, log=log), "positions are missing")
        assert (found.position, found.until) == (20, 24)

    async def test_an_event_that_was_taken_out_without_a_gap_breaks_its_chain(self, altered: Bench) -> None:
        events = list(altered.log.events)
        taken = positions(altered.log, "step.taken")[3]
        renumber(altered.log, events[: taken - 1] + events[taken:])
        assert the(await audited(altered), "are missing").position == taken

    async def test_an_event_put_in_twice_is_found_by_chain_and_id(self, altered: Bench) -> None:
        events = list(altered.log.events)
        renumber(altered.log, [*events, events[-1]])
        report = await audited(altered)
        assert the(report, "out of order or repeated").position == len(events) + 1
        assert the(report, "its id is that of another event").found == f"the event at position {len(events)}"

    async def test_a_log_whose_end_is_gone_is_whole_in_itself_but_not_to_who_had_read_it(
        self, altered: Bench
    ) -> None:
        witness = witness_of(await audited(altered))
        del altered.log.events[-9:]
        assert (await audited(altered)).clean
        last = len(altered.log.events)
        found = only(await audited(altered, witnesses=[witness]), "the end of the log is gone")
        assert (found.position, found.until) == (last + 1, last + 9)

    async def test_positions_that_were_given_out_again_show_to_who_had_read_them(
        self, altered: Bench
    ) -> None:
        witness = witness_of(await audited(altered))
        del altered.log.events[-1:]
        await add(
            altered.log, PhaseStarted(phase=0, reference_version=0), producer="curriculum.1", entity="0"
        )
        report = await audited(altered, witnesses=[witness])
        assert the(report, "has read another event here").position == witness.position

    async def test_a_blob_that_is_gone_damaged_or_short_is_named_by_who_names_it(
        self, altered: Bench
    ) -> None:
        files = sorted(path for path in folder_of(altered.blobs).rglob("*") if path.is_file())
        files[0].unlink()
        content = bytearray(files[1].read_bytes())
        content[100] ^= 1
        files[1].chmod(0o600)
        files[1].write_bytes(content)
        files[2].chmod(0o600)
        files[2].write_bytes(b"short")
        report = await audited(altered, depth="full")
        gone, damaged, short = (
            next(defect for defect in report.defects if path.name in defect.expected) for path in files[:3]
        )
        assert (gone.what, gone.found) == ("a blob is gone", "nothing")
        assert damaged.what == short.what == "a blob holds other bytes than its name says"
        named = values(altered.log.events[gone.position - 1])
        assert files[0].name in str(named["payload"])
        assert {defect.check for defect in (await audited(altered, depth="exist")).defects} == {"blob"}
        assert (await audited(altered, depth="exist")).defects_found == 2
        assert (await audited(altered)).clean

    async def test_a_blob_that_was_let_go_of_may_be_gone(self, altered: Bench) -> None:
        published = values(altered.log.events[positions(altered.log, "weights.published")[1] - 1])
        blob = BlobRef(**published["payload"]["weights"])
        altered.blobs.release(blob)
        assert the(await audited(altered, depth="exist"), "a blob is gone")
        await add(
            altered.log, BlobReleased(blob=blob, reason="thinned"), producer="learner.1", entity=blob.sha256
        )
        assert (await audited(altered, depth="exist")).clean

    async def test_a_log_that_begins_late_is_accepted_where_the_rest_was_archived(
        self, altered: Bench
    ) -> None:
        cut = positions(altered.log, "batch.planned")[1]

        class Late(MemoryLog):
            async def identity(self) -> Any:
                whole = await super().identity()
                return type(whole)(run=whole.run, first_digest=b"", first=cut, last=whole.last)

            async def read(self, *, after: int, limit: int) -> list[Stored]:
                return await super().read(after=max(after, cut - 1), limit=limit)

        log = Late(altered.log.run)
        log.events[:] = altered.log.events
        found = only(await audited(altered, log=log), "the beginning of the log is missing")
        assert (found.position, found.until) == (1, cut - 1)
        fact = SegmentArchived(first=1, last=cut + 3, sha256="0" * 64, location="archive")
        await add(log, fact, producer="archiver.1", entity="archive")
        report = await audited(altered, log=log)
        assert (report.defects, report.archived_until) == ((), cut - 1)


def payload(**changes: Any) -> Callable[[dict[str, Any]], None]:
    return lambda event: event["payload"].update(changes)


def envelope(**changes: Any) -> Callable[[dict[str, Any]], None]:
    return lambda event: event.update(changes)


def raised(name: str, by: float = 1) -> Callable[[dict[str, Any]], None]:
    def change(event: dict[str, Any]) -> None:
        event["payload"][name] += by

    return change


def constrained(those: list[bool], *, more: int = 0) -> Callable[[dict[str, Any]], None]:
    """Says that each token was drawn from those."""

    def change(event: dict[str, Any]) -> None:
        tokens = len(event["payload"]["action_ids"]) // 4
        event["payload"]["allowed"] = pack_allowed([np.array(those)] * (tokens + more))

    return change


def first_planned(**changes: Any) -> Callable[[dict[str, Any]], None]:
    return lambda event: event["payload"]["episodes"][0].update(changes)


FORGERIES: list[tuple[str, str, int, Callable[[dict[str, Any]], None], str]] = [
    ("a type that is renamed", "episode.ended", 0, envelope(type="step.taken"), "its content"),
    ("a field that is gone", "step.taken", 2, lambda event: event["payload"].pop("url"), "lacks url"),
    ("a field too many", "step.taken", 2, payload(hidden="x"), "holds 'hidden'"),
    ("a number in place of text", "step.taken", 2, payload(url=5), "url is of type int"),
    ("an event of another run", "step.taken", 2, envelope(run="r_other"), "it belongs to another run"),
    ("an event about something else", "episode.ended", 0, envelope(entity="ep_x"), "its envelope is about"),
    ("a time that was set back", "step.taken", 4, envelope(occurred_ns=1), "its id is not one of the time"),
    ("an id that the log does not store", "step.taken", 4, envelope(id="x" * 36), "under another event's id"),
    ("a cause that is nowhere", "step.taken", 4, envelope(causation="0" * 36), "names a cause"),
    ("an incarnation of two producers", "step.taken", 4, envelope(producer="actor.9"), "of two producers"),
    ("a run that begins with other facts", "run.started", 0, envelope(type="run.x"), "does not begin with run.started"),
    ("a member beyond its group", "episode.requested", 1, payload(member=7), "no member of its group"),
    ("a try without one before it", "episode.requested", 1, payload(attempt=2), "is asked out of turn"),
    ("a request for a future policy", "episode.requested", 1, payload(min_version=5), "was not published"),
    ("a step that was renumbered", "step.taken", 1, raised("index"), "is missing or out of order"),
    ("a step without its log-probabilities", "step.taken", 1, payload(logprobs=b""), "not equally many"),
    ("a step whose sets are none", "step.taken", 1, payload(allowed=b"sets"), "allowed tokens do not decode"),
    ("a step with a set too many", "step.taken", 1, constrained([True] * 512, more=1), "sets of allowed tokens for"),
    ("a token that was not allowed", "step.taken", 1, constrained([True] * 2 + [False] * 510), "is none of those it was drawn"),
    ("a token past the vocabulary", "step.taken", 1, constrained([True]), "is none of those it was drawn"),
    ("a step of unpublished weights", "step.taken", 1,
     lambda event: event["payload"].update(versions=pack_ids([9] * (len(event["payload"]["versions"]) // 4))),
     "from a policy that was not published"),
    ("an end with other steps", "episode.ended", 1, raised("steps"), "steps of"),
    ("an end of another task", "episode.ended", 1, payload(task_id="task_x"), "another task"),
    ("an end with other versions", "episode.ended", 1, payload(policy_versions=[0, 3]), "sampled from other versions"),
    ("a reward beyond its range", "episode.judged", 1,
     lambda event: event["payload"]["judgment"].update(reward=2.0), "the reward of"),
    ("a model that was asked nothing", "episode.judged", 1, payload(consulted=CONSULTED | {"request": ""}),
     "what was asked"),
    ("a model that was paid for asking", "episode.judged", 1, payload(consulted=CONSULTED | {"cost_usd": -1.0}),
     "what asking took"),
    ("a reward that was changed", "episode.judged", 0,
     lambda event: event["payload"]["judgment"].update(reward=0.25), "no judge gave"),
    ("a plan under another number", "batch.planned", 1, raised("batch"), "a batch is missing or planned twice"),
    ("a plan of the future", "batch.planned", 1, raised("as_of", 900), "was not made from all"),
    ("a plan from older weights", "batch.planned", 1, payload(version=0), "newest weights"),
    ("a plan that gives another reward", "batch.planned", 1, first_planned(reward=0.5), "no judge gave"),
    ("a plan in another group", "batch.planned", 1, first_planned(group="group_9"), "group of"),
    ("a plan that rehearses what was not used", "batch.planned", 1, first_planned(rehearsed=True), "it rehearses"),
    ("a plan with a step less", "batch.planned", 1,
     lambda event: event["payload"].update(positions=event["payload"]["positions"][:-8]), "equally many samples"),
    ("a plan that trains on no step", "batch.planned", 1,
     lambda event: event["payload"].update(positions=pack_positions([1]) + event["payload"]["positions"][8:]),
     "which is no step of"),
    ("a plan that cuts an episode", "batch.planned", 1,
     lambda event: event["payload"].update(
         minibatches=pack_ids([1, sum(event["payload"]["minibatches"][::4]) - 1])), "ends within an episode"),
    ("an update under another number", "update.applied", 2, raised("update"), "an update is missing"),
    ("an update of another batch", "update.applied", 2, raised("batch"), "is not planned"),
    ("an update out of turn", "update.applied", 2, raised("minibatch"), "are not in order"),
    ("an update from other weights", "update.applied", 2, payload(before="f" * 64), "does not begin with the weights"),
    ("an update that keeps samples to itself", "update.applied", 2,
     lambda event: event["payload"]["samples"].update(masks=b""), "does not report on each"),
    ("weights under another number", "weights.published", 1, raised("version"), "missing or published twice"),
    ("weights of another update", "weights.published", 1, raised("update"), "not those of the last update"),
    ("weights of version 0 that are not the base", "weights.published", 0,
     payload(weights={"sha256": "0" * 64, "size": 1}), "not the base policy"),
    ("a checkpoint of another state", "checkpoint.saved", 0, payload(state="f" * 64), "the checkpoint's digest"),
    ("a sweep at another version", "samples.swept", 0, raised("version", 4), "decided at another version"),
    ("a sweep before the learner's last word", "samples.swept", -1, payload(as_of=1), "not made from all that"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "number", "change", "what"),
    [forgery[1:] for forgery in FORGERIES],
    ids=[forgery[0].replace(" ", "-") for forgery in FORGERIES],
)
async def test_a_forgery_with_all_chains_and_digests_mended_is_found_where_it_stands(
    altered: Bench, kind: str, number: int, change: Callable[[dict[str, Any]], None], what: str
) -> None:
    position = positions(altered.log, kind)[number]
    forge(altered.log, position, change)
    report = await audited(altered)
    found = [defect for defect in report.defects if what in defect.what]
    assert found, [(defect.position, defect.what) for defect in report.defects]
    if what != "no judge gave" or kind == "batch.planned":
        assert found[0].position == position
    assert not [defect for defect in report.defects if defect.position < position]


def ended(log: MemoryLog) -> str:
    """An episode that ended and is judged."""
    return str(values(log.events[positions(log, "episode.judged")[0] - 1])["payload"]["episode"])


def abandoned(log: MemoryLog) -> str:
    return str(values(log.events[positions(log, "episode.abandoned")[0] - 1])["payload"]["episode"])


def task_of(log: MemoryLog, episode: str) -> str:
    facts = (values(stored)["payload"] for stored in log.events)
    return next(
        str(fact["task_id"]) for fact in facts if fact.get("episode") == episode and "task_id" in fact
    )


def judged(episode: str, task: str) -> Fact:
    return EpisodeJudged(episode=episode, task_id=task, judge=RULES, judgment=SOME)


ADDITIONS: list[tuple[str, str, Callable[[MemoryLog], tuple[str, Fact]], str]] = [
    ("a second end", "actor.1", lambda log: (ended(log), EpisodeAbandoned(
        episode=ended(log), task_id=task_of(log, ended(log)), reason="error", detail="", steps=0)), "has an end already"),
    ("a second start", "actor.1", lambda log: (ended(log), EpisodeStarted(
        episode=ended(log), actor="actor.1", instruction="", renderer="")), "was started before"),
    ("a start in another's name", "actor.1", lambda log: (abandoned(log), EpisodeStarted(
        episode=abandoned(log), actor="actor.2", instruction="", renderer="")), "it names another actor than its producer"),
    ("an end of what nobody asked for", "curriculum.1", lambda _log: ("ep_x", EpisodeCancelled(
        episode="ep_x", task_id="t", reason="", detail="")), "was never requested"),
    ("a second verdict of one judge", "judge.1", lambda log: (ended(log), judged(
        ended(log), task_of(log, ended(log)))), "has judged"),
    ("a verdict on what did not end", "judge.1", lambda log: (abandoned(log), judged(
        abandoned(log), task_of(log, abandoned(log)))), "which did not end"),
    ("a dispute over no verdict", "control.1", lambda log: (ended(log), VerdictDisputed(
        episode=ended(log), judge=JudgeIdentity(name="other", version="1"), author="me", reason="", outcome="success")),
     "which was never given"),
    ("an admission of what nobody proposed", "curriculum.1", lambda _log: (
        "task_x", TaskAdmitted(task_id="task_x", phase=0)), "was never proposed"),
    ("an adoption before publication", "actor.1", lambda _log: (
        "version_9", WeightsAdopted(actor="actor.1", version=9, load_ms=1.0)), "policy 9 was not published"),
    ("an update nobody planned", "learner.1", lambda _log: ("b", UpdateSkipped(
        update=6, model="policy", batch=7, minibatch=0, reason="", state="0" * 64)), "is not planned"),
    ("an update by an actor", "actor.1", lambda _log: ("b", UpdateSkipped(
        update=6, model="policy", batch=2, minibatch=1, reason="", state="0" * 64)), "only a learner records this"),
    ("weights in the midst of a batch", "learner.1", lambda _log: ("v", WeightsPublished(
        version=3, model="policy", weights=BLOB, update=5)), "published within a batch"),
    ("a checkpoint of another update", "learner.1", lambda _log: ("b", CheckpointSaved(
        update=4, batch=2, version=2, state="0" * 64, blob=BLOB)), "the checkpoint's update"),
    ("a sweep of what was trained on", "learner.1", lambda log: ("samples", SamplesSwept(
        episodes=(values(log.events[positions(log, "batch.planned")[0] - 1])["payload"]["episodes"][0]["episode"],),
        reason="late", version=2)), "which was trained on"),
    ("a release of the base policy", "learner.1", lambda log: ("blob", BlobReleased(blob=BlobRef(
        **values(log.events[0])["payload"]["base_policy"]), reason="")), "releases the base policy"),
    ("a dead letter of no event", "judge.1", lambda _log: ("judge", EventDeadLettered(
        consumer="judge", position=10**6, tries=1, error="")), "is no earlier position"),
    ("a command nobody gave", "curriculum.1", lambda _log: ("run", ControlApplied(
        command="drain", role="curriculum")), "applied without a request"),
    ("a segment of positions to come", "archiver.1", lambda _log: ("segment", SegmentArchived(
        first=1, last=10**6, sha256="0" * 64, location="x")), "last is no earlier position"),
    ("scores of what is no step", "learner.1", lambda _log: ("1", ReplayScored(
        version=0, positions=pack_positions([1]), perplexities=bytes(4))), "which is no step"),
    ("a goal that was not reached", "start.1", lambda _log: ("r_test", RunFinished(
        reason="", updates=99, episodes=0)), "updates that are not there"),
    ("a resumption from the future", "opening.1", lambda log: ("r_test", RunResumed(
        after_position=10**6, fingerprint=values(log.events[0])["payload"]["fingerprint"], until={})),
     "is no earlier position"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("producer", "told", "what"),
    [addition[1:] for addition in ADDITIONS],
    ids=[addition[0].replace(" ", "-") for addition in ADDITIONS],
)
async def test_a_fact_that_does_not_follow_from_the_log_is_found_where_it_was_put(
    altered: Bench, producer: str, told: Callable[[MemoryLog], tuple[str, Fact]], what: str
) -> None:
    entity, fact = told(altered.log)
    position = await add(altered.log, fact, producer=producer, entity=entity)
    report = await audited(altered)
    assert the(report, what).position == position
    assert {defect.position for defect in report.defects} == {position}


GOLDEN = Path(__file__).parents[1] / "golden" / "runs"


async def test_recorded_runs_of_the_golden_corpus_are_clean_and_the_smallest_lie_in_one_is_found() -> None:
    """One advantage is off by the last bit, and every digest was made to fit."""
    blobs = archive_blobs(GOLDEN / "grpo-1")
    report = await audit(ArchiveLog(GOLDEN / "grpo-1"), blobs, pages=False)
    assert (report.defects, report.blobs) == ((), 3)
    forged = await audit(ArchiveLog(GOLDEN / "grpo-1-forged"), blobs, depth="none")
    found = only(forged, "does not follow from its group")
    assert found.event == "batch.planned"
    assert float(found.found) == pytest.approx(float(found.expected), rel=1e-12)


async def test_nothing_may_follow_once_a_log_is_sealed(altered: Bench) -> None:
    await add(altered.log, LogSealed(events=1), producer="app.1", entity="log")
    assert (await audited(altered)).clean
    position = await add(
        altered.log, PhaseStarted(phase=0, reference_version=0), producer="curriculum.1", entity="0"
    )
    assert only(await audited(altered), "after the log was sealed").position == position


async def test_a_fact_that_its_producer_may_not_write_is_found(altered: Bench) -> None:
    fact = ControlRequested(command="pause", arguments={}, author="me", reason="")
    await add(altered.log, fact, producer="actor.9", entity="run")
    defect = only(await audited(altered), "actor.9 may not write there")
    assert defect.check == "writer"
    assert "`control`" in defect.expected


async def test_a_type_from_the_future_is_counted_and_no_defect(altered: Bench) -> None:
    position = positions(altered.log, "samples.swept")[-1]
    incarnation = values(altered.log.events[position - 1])["incarnation"]

    def change(event: dict[str, Any]) -> None:
        event.update(type="mood.noted", payload={"any": "thing"})

    forge(altered.log, position, change)
    report = await audited(altered)
    assert report.unknown == {"mood.noted": 1}
    assert not [d for d in report.defects if d.position == position], incarnation


async def test_a_learner_that_writes_after_another_has_taken_over_is_found(altered: Bench) -> None:
    events = [stored for stored in altered.log.events if ".learner." in stored.subject]
    first, last = values(events[0])["incarnation"], events[-1].position

    def change(event: dict[str, Any]) -> None:
        event.update(incarnation=first, producer_seq=99)

    forge(altered.log, last, change)
    assert the(await audited(altered), "two learners write").position == last


async def test_bytes_hidden_between_values_are_found_though_both_decoders_read_the_event(
    altered: Bench,
) -> None:
    """A key that stands twice: one reader takes the first value, another the last."""
    content = altered.log.events[-1].data
    event = msgpack.unpackb(content)
    count = len(event)
    assert content[:3] == b"\xde" + count.to_bytes(2, "big")
    forged = (
        b"\xde"
        + (count + 1).to_bytes(2, "big")
        + content[3:]
        + msgpack.packb("entity")
        + msgpack.packb("ep_y")
    )
    put(altered.log, len(altered.log.events), forged)
    found = only(await audited(altered), "something is hidden between them")
    assert found.position == len(altered.log.events)
