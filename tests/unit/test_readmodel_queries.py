"""What the read model answers, against a count by hand over the events themselves."""

from collections import Counter
from collections.abc import Iterator

import msgspec
import pytest
from sqlalchemy import Connection, select

from hindcast.core.domain.evidence import Judgment, Outcome
from hindcast.core.rl.statistics import wilson
from hindcast.events.catalogue import (
    BatchPlanned,
    BlobReleased,
    EpisodeAbandoned,
    EpisodeCancelled,
    EpisodeEnded,
    EpisodeJudged,
    EpisodeRequested,
    EpisodeStarted,
    EvaluationFinished,
    EvaluationStarted,
    RunStarted,
    SamplesSwept,
    StepTaken,
    UpdateApplied,
    UpdateSkipped,
    WeightsPublished,
)
from hindcast.events.catalogue.curriculum import NEVER_TRAINED
from hindcast.events.catalogue.training import SampleReport
from hindcast.events.catalogue.verdict import JudgeIdentity
from hindcast.events.envelope import Recorded
from hindcast.events.log.memory import MemoryLog
from hindcast.events.log.reader import read
from hindcast.storage.readmodel.database import ReadModel
from hindcast.storage.readmodel.episode_counts import count_episodes, facets
from hindcast.storage.readmodel.episode_queries import (
    Narrowing,
    count_requested,
    list_episodes,
    mentioning,
    show_episode,
)
from hindcast.storage.readmodel.evaluation_queries import changes_by_family, list_evaluations
from hindcast.storage.readmodel.fold import apply
from hindcast.storage.readmodel.metrics import throughput
from hindcast.storage.readmodel.outcome_counts import success_by_version
from hindcast.storage.readmodel.query_parts import NotInReadModel, training_judge
from hindcast.storage.readmodel.queue_queries import Wait, queue_waits
from hindcast.storage.readmodel.run_queries import ModelSummary, list_policies, run_summary
from hindcast.storage.readmodel.tables import batches
from hindcast.storage.readmodel.task_queries import list_tasks
from stories.synthetic_run import PICTURE, SECOND_NS, TASKS, Told, a_run, record, recorded_run

NO_SAMPLES = SampleReport(advantages=b"", weights=b"", ratios=b"", masks=b"")


@pytest.fixture
async def recordeds() -> list[Recorded]:
    return (await recorded_run(4, groups=12))[1]


@pytest.fixture
def asked(recordeds: list[Recorded], url: str) -> Iterator[Connection]:
    model = ReadModel(url, run="tale")
    model.prepare()
    with model.writing() as connection:
        apply(connection, recordeds)
    with model.reading() as connection:
        yield connection
    model.close()


def test_what_models_behind_endpoints_were_asked_is_added_up_by_purpose(
    asked: Connection, recordeds: list[Recorded]
) -> None:
    told = {one.purpose: one for one in run_summary(asked).consulted}
    assert list(told) == ["feasibility", "relabel", "task", "verdict"]
    assert {one.model for one in told.values()} == {"maker"}
    verdicts = [r.fact.consulted for r in recordeds if isinstance(r.fact, EpisodeJudged) and r.fact.consulted]
    paid = [one for one in verdicts if one.tries]
    assert len(verdicts) > len(paid) > 0
    assert (told["verdict"].questions, told["verdict"].remembered) == (
        len(verdicts),
        len(verdicts) - len(paid),
    )
    assert (told["verdict"].requests, told["verdict"].prompt_tokens) == (len(paid), 90 * len(paid))
    assert told["verdict"].cost_usd == pytest.approx(0.001 * len(paid))
    assert [told[one].questions for one in ("feasibility", "relabel", "task")] == [1, 1, 1]
    judged = next(r.fact for r in recordeds if isinstance(r.fact, EpisodeJudged) and r.fact.consulted)
    by_rules, second = show_episode(asked, judged.episode).verdicts
    assert (by_rules.asked_model, by_rules.cost_usd) == (None, None)
    assert second.asked_model == "maker"


async def test_what_servers_count_may_be_any_number(recordeds: list[Recorded], url: str) -> None:
    absurd = [
        replace_consulted(one, 2**63 - 1)
        for one in recordeds
        if isinstance(one.fact, EpisodeJudged) and one.fact.consulted
    ]
    assert len(absurd) > 1
    model = ReadModel(url, run="tale")
    model.prepare()
    others = {one.position: one for one in absurd}
    with model.writing() as connection:
        apply(connection, [others.get(one.position, one) for one in recordeds])
    with model.reading() as connection:
        told = {one.purpose: one for one in run_summary(connection).consulted}
    assert told["verdict"].prompt_tokens == pytest.approx(len(absurd) * 2**63)
    model.close()


def replace_consulted(recorded: Recorded, prompt_tokens: int) -> Recorded:
    fact = recorded.fact
    assert isinstance(fact, EpisodeJudged)
    assert fact.consulted is not None
    asked_more = msgspec.structs.replace(fact.consulted, prompt_tokens=prompt_tokens)
    return msgspec.structs.replace(recorded, fact=msgspec.structs.replace(fact, consulted=asked_more))


def test_the_success_curve_counts_each_verdict_of_the_training_judge_once(
    asked: Connection, recordeds: list[Recorded]
) -> None:
    origins = {r.fact.episode: r.fact.origin for r in recordeds if isinstance(r.fact, EpisodeRequested)}
    versions = {r.fact.episode: r.fact.policy_versions for r in recordeds if isinstance(r.fact, EpisodeEnded)}
    outcomes: Counter[tuple[int, str]] = Counter()
    for fact in (r.fact for r in recordeds if isinstance(r.fact, EpisodeJudged)):
        if fact.judge.name == "rules" and origins[fact.episode] == "online":
            outcomes[versions[fact.episode][0], fact.judgment.outcome] += 1
    points = success_by_version(asked)
    assert sum(outcomes.values()) > 10
    assert {point.version for point in points} == {version for version, _ in outcomes}
    for point in points:
        successes, failures = outcomes[point.version, "success"], outcomes[point.version, "failure"]
        assert (point.success.successes, point.success.judged) == (successes, successes + failures)
        assert point.success.undecided == outcomes[point.version, "undecided"]
        interval = wilson(successes, successes + failures)
        assert (point.success.rate, point.success.low, point.success.high) == (
            interval.rate,
            interval.low,
            interval.high,
        )
        assert point.mean_reward == (point.success.rate if point.success.judged else None)


def test_evaluations_have_the_counts_of_their_facts_and_the_newest_may_be_running(
    asked: Connection, recordeds: list[Recorded]
) -> None:
    ended = [(r.position, r.fact) for r in recordeds if isinstance(r.fact, EvaluationFinished)]
    begun = [r for r in recordeds if isinstance(r.fact, EvaluationStarted)]
    rows = list_evaluations(asked)
    assert [row.version for row in rows] == [fact.version for _, fact in ended]
    assert len(rows) > 2
    for row, (_, fact) in zip(rows, ended, strict=True):
        assert (row.state, row.tasks, row.seconds, row.share) == ("finished", 20, fact.seconds, fact.share)
        assert (row.version_low, row.version_high) == (fact.version_low, fact.version_high)
        assert (row.reason or "") == fact.reason
        for rate in row.rates:
            own = [result for result in fact.results if result.temperature == rate.temperature]
            successes = sum(result.successes for result in own)
            judged = successes + sum(result.failures for result in own)
            assert (rate.successes, rate.judged, rate.lost) == (successes, judged, 2)
            assert rate.success == wilson(successes, judged)
            assert rate.mean_reward == sum(result.reward for result in own) / judged
    second = begun[1].position
    running = list_evaluations(asked, as_of=second)
    assert [(row.state, len(row.rates)) for row in running] == [("finished", 2), ("running", 0)]
    assert run_summary(asked).evaluations == tuple(rows)


def test_a_family_is_compared_with_its_own_first_evaluation(
    asked: Connection, recordeds: list[Recorded]
) -> None:
    facts = [r.fact for r in recordeds if isinstance(r.fact, EvaluationFinished)]
    changes = changes_by_family(asked)
    assert [(one.family, one.temperature) for one in changes] == [
        (family, temperature)
        for family in ("miniwob/click-button", "store/find_price")
        for temperature in (0.0, 1.0)
    ]
    for one in changes:
        first, newest = (
            next(r for r in fact.results if (r.family, r.temperature) == (one.family, one.temperature))
            for fact in (facts[0], facts[-1])
        )
        assert (one.first.successes, one.newest.successes) == (first.successes, newest.successes)
        assert (one.first_version, one.newest_version) == (0, facts[-1].version)
    of_one = list_evaluations(asked, family="store/find_price")
    assert [rate.judged for row in of_one for rate in row.rates] == [9] * 2 * len(of_one)


def test_origins_are_never_mixed_in_one_rate(asked: Connection) -> None:
    points = success_by_version(asked, origin=None)
    assert {point.origin for point in points} == {"online", "demonstration", "evaluation"}
    assert len({(point.version, point.origin) for point in points}) == len(points)
    online = [point for point in points if point.origin == "online"]
    assert online == success_by_version(asked)


def test_an_episode_that_newer_weights_joined_is_counted_as_mixed(
    asked: Connection, recordeds: list[Recorded]
) -> None:
    judged = {r.fact.episode for r in recordeds if isinstance(r.fact, EpisodeJudged)}
    ended = [r.fact for r in recordeds if isinstance(r.fact, EpisodeEnded) and r.fact.episode in judged]
    mixed = sum(fact.policy_versions[0] != fact.policy_versions[1] for fact in ended)
    assert mixed > 0
    assert sum(point.mixed for point in success_by_version(asked, origin=None)) == mixed


def test_episodes_are_listed_latest_first_and_page_on_without_repeating(asked: Connection) -> None:
    whole = [row.episode for row in list_episodes(asked, limit=1000)]
    paged: list[str] = []
    before = None
    while page := list_episodes(asked, limit=7, before=before):
        paged += [row.episode for row in page]
        before = page[-1].requested_position
    assert paged == whole
    assert len(set(whole)) == len(whole) == 48


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("state", "ended"),
        ("outcome", "success"),
        ("origin", "online"),
        ("family", "checkout"),
        ("environment", "store"),
    ],
)
def test_episodes_can_be_filtered(asked: Connection, name: str, value: str) -> None:
    everything = list_episodes(asked, limit=1000)
    kept = list_episodes(asked, limit=1000, **{name: value})  # type: ignore[arg-type]
    assert kept == [row for row in everything if getattr(row, name) == value]
    assert 0 < len(kept) < len(everything)


def test_requested_episodes_can_be_left_out_and_are_counted(asked: Connection) -> None:
    everything = list_episodes(asked, limit=1000)
    begun = list_episodes(asked, limit=1000, begun=True)
    assert begun == [row for row in everything if row.state != "requested"]
    assert count_requested(asked) == len(everything) - len(begun)


def test_episodes_are_found_by_what_was_asked_answered_or_went_wrong(asked: Connection) -> None:
    everything = list_episodes(asked, limit=1000)
    detail = {row.episode: show_episode(asked, row.episode) for row in everything}
    answer = next(step.answer for one in detail.values() for step in one.steps if step.answer)
    for text in (everything[-1].instruction or "", answer, "exit", "100%_no such text"):
        assert text
        places = mentioning(asked, text.upper())
        found = {row.episode for row in list_episodes(asked, limit=1000, narrow=Narrowing(among=places))}
        for name, place in places.items():
            one = detail[name]
            taken = [step for step in one.steps if place.step in (None, step.step)]
            said = {
                "instruction": [one.instruction],
                "answer": [one.answer] if place.step is None else [step.answer for step in taken],
                "reason": [one.episode.reason, one.detail]
                if place.step is None
                else [step.detail for step in taken],
            }
            assert any(text.lower() in (value or "").lower() for value in said[place.where]), (text, place)
        assert found == {
            name
            for name, one in detail.items()
            if any(
                text.lower() in (said or "").lower()
                for said in (
                    one.episode.instruction,
                    one.answer,
                    one.episode.reason,
                    one.detail,
                    *(said for step in one.steps for said in (step.answer, step.detail)),
                )
            )
        }
        assert bool(found) == (text != "100%_no such text")


@pytest.mark.parametrize("narrowed_by", ["nothing", "policy", "text"])
def test_a_facet_counts_what_a_click_on_it_would_list(
    asked: Connection, recordeds: list[Recorded], narrowed_by: str
) -> None:
    narrow = {
        "nothing": Narrowing(),
        "policy": Narrowing(version=0, last_version=1),
        "text": Narrowing(among=mentioning(asked, "exit")),
    }[narrowed_by]
    clicked = 0
    for as_of in (None, len(recordeds) // 2):
        counts = count_episodes(asked, as_of=as_of, narrow=narrow)
        judge = training_judge(asked, as_of=as_of)
        for chosen in ({}, {"outcome": "success"}, {"state": "ended"}, {"origin": "online", "judge": judge}):
            begun = "state" not in chosen
            for facet, values in facets(counts, chosen, judge=judge, begun=begun).items():
                for one in values:
                    # a click on a family names its environment, too, as `store/buy`
                    asks = {**chosen, facet: one.value}
                    environment, _, family = asks.pop("family", "").rpartition("/")
                    asks |= {"environment": environment, "family": family} if family else {}
                    listed = list_episodes(
                        asked,
                        as_of=as_of,
                        begun="state" not in asks,
                        narrow=narrow,
                        limit=1000,
                        **asks,  # type: ignore[arg-type]
                    )
                    assert one.count == len(listed), (as_of, chosen, facet, one)
                    clicked += one.count > 0
    assert clicked > 20


def test_an_episode_shows_its_steps_verdicts_and_the_updates_it_went_into(
    asked: Connection, recordeds: list[Recorded]
) -> None:
    trained = next(
        row
        for row in list_episodes(asked, limit=1000)
        for b in show_episode(asked, row.episode).batches
        if b.trained
    )
    detail = show_episode(asked, trained.episode)
    taken = [r for r in recordeds if isinstance(r.fact, StepTaken) and r.fact.episode == trained.episode]
    assert [step.position for step in detail.steps] == [r.position for r in taken]
    assert [step.answer for step in detail.steps] == [
        r.fact.answer for r in taken if isinstance(r.fact, StepTaken)
    ]
    assert detail.verdicts[0].judge == "rules"
    (part,) = [batch for batch in detail.batches if batch.trained]
    assert part.samples == len(taken)
    applied = {
        r.fact.update for r in recordeds if isinstance(r.fact, UpdateApplied) and r.fact.batch == part.batch
    }
    assert set(part.updates) <= applied


def test_an_episode_shows_its_screenshots_and_which_of_them_were_let_go_of(
    asked: Connection, recordeds: list[Recorded]
) -> None:
    ended = [r.fact for r in recordeds if isinstance(r.fact, EpisodeEnded)]
    long = next(fact.episode for fact in ended if fact.steps > 2)
    found = show_episode(asked, long)
    first, failed, last = found.screenshots
    assert (first.step, first.shows, first.sha256, first.width) == (0, "before", PICTURE.sha256, 640)
    assert first.marks == '[{"box":{"height":40,"width":30,"x":10,"y":20},"element":7}]'
    assert (failed.step, failed.sha256, failed.missing) == (2, None, "not drawn \ufffd")
    assert (last.step, last.sha256) == (None, PICTURE.sha256)
    assert found.steps[0].touched == '{"height":40,"width":30,"x":10,"y":20}'
    gone = [r.position for r in recordeds if isinstance(r.fact, BlobReleased) and r.fact.blob == PICTURE]
    assert [first.released, last.released] == gone * 2


def test_an_episode_is_counted_as_trained_once_however_often_it_is_gone_through_and_never_as_rehearsed(
    asked: Connection, recordeds: list[Recorded]
) -> None:
    plans = [(r.position, r.fact) for r in recordeds if isinstance(r.fact, BatchPlanned)]
    for position, _ in plans:
        own = {
            part.episode
            for at, plan in plans
            if at <= position
            for part in plan.episodes
            if not part.rehearsed
        }
        assert run_summary(asked, as_of=position).trained_episodes == len(own)
    position, plan = next((at, plan) for at, plan in plans if any(part.rehearsed for part in plan.episodes))
    own = {part.episode for part in plan.episodes if not part.rehearsed}
    assert len(plan.episodes) == 2 * len(own) + 1, "gone through twice, with one rehearsed"
    row = asked.execute(select(batches).where(batches.c.batch == plan.batch)).mappings().one()
    assert (row["episodes"], row["rehearsed"]) == (len(own), 1)
    for episode in own:
        (part,) = show_episode(asked, episode, as_of=position).batches
        assert (part.trained, part.rehearsed, part.epochs) == (True, False, 2)
    old = plan.episodes[-1].episode
    before, again = show_episode(asked, old, as_of=position).batches
    assert (before.trained, before.rehearsed) == (True, False)
    assert (again.batch, again.trained, again.rehearsed, again.epochs) == (plan.batch, False, True, 1)
    (only,) = show_episode(asked, old, as_of=position - 1).batches
    assert only == before
    (used_up,) = show_episode(asked, plan.consumed[0], as_of=position).batches
    assert (used_up.trained, used_up.rehearsed, used_up.epochs, used_up.updates) == (False, False, 0, ())


def test_an_episode_that_is_not_there_is_a_worded_error(asked: Connection) -> None:
    with pytest.raises(NotInReadModel, match=r"no episode 'ep_none'.*hindcast episode list"):
        show_episode(asked, "ep_none")
    first = list_episodes(asked, limit=1000)[-1]
    assert first.requested_position is not None
    with pytest.raises(NotInReadModel):
        show_episode(asked, first.episode, as_of=first.requested_position - 1)


def test_a_position_beyond_the_read_model_is_a_worded_error(
    asked: Connection, recordeds: list[Recorded]
) -> None:
    with pytest.raises(NotInReadModel, match=f"positions 0 to {len(recordeds)}"):
        run_summary(asked, as_of=len(recordeds) + 1)
    with pytest.raises(NotInReadModel, match="nothing of the run"):
        run_summary(asked, as_of=0)


def test_tasks_carry_their_attempts_and_success(asked: Connection, recordeds: list[Recorded]) -> None:
    rows = list_tasks(asked, limit=1000)
    requested = Counter(r.fact.task.id for r in recordeds if isinstance(r.fact, EpisodeRequested))
    assert {row.task: row.episodes for row in rows if row.episodes} == dict(requested)
    assert {row.state for row in rows} == {"admitted", "rejected", "unlisted"}
    assert sum(row.success.judged + row.success.undecided for row in rows) == sum(
        isinstance(r.fact, EpisodeJudged) and r.fact.judge.name == "rules" for r in recordeds
    )


def test_a_task_says_what_a_model_said_of_it_beside_why_it_was_rejected(asked: Connection) -> None:
    rows = list_tasks(asked, limit=1000)
    (row,) = [row for row in rows if row.state == "rejected"]
    assert (row.checked, row.reason) == ("feasible: such things are sold", "too easy")
    assert {row.checked for row in rows if row.state == "admitted"} == {None}


def test_policies_say_who_samples_from_them_and_whether_their_weights_are_kept(asked: Connection) -> None:
    policies = list_policies(asked)
    assert [policy.version for policy in policies] == list(range(len(policies) - 1, -1, -1))
    assert policies[0].adopted_by == ("actor.1", "actor.2")
    assert all(policy.adopted_by == () for policy in policies[1:])
    assert [policy.version for policy in policies if policy.released] == [1]
    assert policies[-1].at_update == 0


def test_the_summary_adds_up(asked: Connection, recordeds: list[Recorded]) -> None:
    summary = run_summary(asked)
    types = Counter(r.envelope.type for r in recordeds)
    assert summary.position == len(recordeds)
    assert sum(summary.episodes.values()) == types["episode.requested"]
    assert summary.episodes["ended"] == types["episode.ended"]
    assert (summary.steps, summary.updates, summary.batches) == (
        types["step.taken"],
        types["update.applied"],
        types["batch.planned"],
    )
    assert summary.skipped_updates == types["update.skipped"]
    assert (summary.state, summary.finished_reason, summary.goal) == ("sealed", "updates=5", {"updates": 5})
    assert summary.policy_version == types["weights.published"]
    assert summary.sampling_from == {"actor.1": summary.policy_version, "actor.2": summary.policy_version}
    assert summary.notices["wait.exceeded"] == 1


async def test_the_models_beside_the_policy_are_counted_apart(recordeds: list[Recorded], url: str) -> None:
    """The run's own updates, told once more of a critic and of a model that was only skipped."""
    log = MemoryLog("tale")
    applied = [r.fact for r in recordeds if isinstance(r.fact, UpdateApplied)]
    skipped = UpdateSkipped(update=1, model="orm", batch=0, minibatch=0, reason="nan", state="")
    critic = [msgspec.structs.replace(fact, model="critic", samples=NO_SAMPLES) for fact in applied]
    weights = [
        msgspec.structs.replace(r.fact, model="critic", version=2)
        for r in recordeds
        if isinstance(r.fact, WeightsPublished)
    ][:1]
    told = [r.fact for r in recordeds if isinstance(r.fact, RunStarted)]
    await record(log, [Told("learner.1", "x", fact) for fact in (*told, *critic, skipped, *weights)], seed=1)
    model = ReadModel(url, run="tale")
    model.prepare()
    with model.writing() as connection:
        apply(connection, [recorded async for recorded in read(log)])
    with model.reading() as connection:
        summary = run_summary(connection)
        before = run_summary(connection, as_of=1)
    model.close()
    assert (summary.updates, summary.skipped_updates, summary.policy_version) == (0, 0, 0)
    assert summary.beside == (
        ModelSummary(model="critic", updates=len(applied), skipped_updates=0, version=2),
        ModelSummary(model="orm", updates=0, skipped_updates=1, version=0),
    )
    assert before.beside == ()


def test_throughput_counts_what_happened_in_the_window(asked: Connection, recordeds: list[Recorded]) -> None:
    newest = max(
        r.envelope.occurred_ns
        for r in recordeds
        if isinstance(r.fact, StepTaken | EpisodeJudged | UpdateApplied | UpdateSkipped)
    )
    since = newest - 60 * SECOND_NS
    steps = [r for r in recordeds if isinstance(r.fact, StepTaken) and r.envelope.occurred_ns > since]
    rates = throughput(asked, window_s=60)
    assert rates.window_s == 60
    assert rates.steps == len(steps) > 0
    assert rates.steps_per_second == pytest.approx(len(steps) / 60)
    assert rates.mean_generate_ms == pytest.approx(40.25)
    young = throughput(asked, window_s=10**6)
    assert young.window_s == pytest.approx((newest - recordeds[0].envelope.occurred_ns) / SECOND_NS)
    assert young.updates == sum(isinstance(r.fact, UpdateApplied) for r in recordeds)


def test_the_judge_that_training_uses_is_the_first_of_the_settings(asked: Connection) -> None:
    assert training_judge(asked) == "rules"


async def test_where_a_judge_spoke_twice_its_first_verdict_counts(url: str) -> None:
    def verdict(version: str, outcome: Outcome) -> Told:
        judgment = Judgment(outcome=outcome, reward=float(outcome == "success"), reason="")
        judge = JudgeIdentity(name="rules", version=version)
        fact = EpisodeJudged(episode="ep_1", task_id=TASKS[0].id, judge=judge, judgment=judgment)
        return Told("judge.1", f"ep_1.rules.{version}", fact)

    facts = a_run(4)
    ended = next(told.fact for told in facts if isinstance(told.fact, EpisodeEnded))
    ended = msgspec.structs.replace(ended, episode="ep_1")
    requested = next(told.fact for told in facts if isinstance(told.fact, EpisodeRequested))
    requested = msgspec.structs.replace(requested, episode="ep_1", origin="online")
    log = MemoryLog("tale")
    story = [Told("curriculum.1", "ep_1", requested), Told("actor.1", "ep_1", ended)]
    await record(log, [facts[0], *story, verdict("1", "failure"), verdict("2", "success")])
    model = ReadModel(url, run="tale")
    model.prepare()
    with model.writing() as connection:
        apply(connection, [recorded async for recorded in read(log)])
    with model.reading() as connection:
        (point,) = success_by_version(connection)
        (row,) = list_episodes(connection)
        assert len(show_episode(connection, "ep_1").verdicts) == 2
    model.close()
    assert (point.success.judged, point.success.successes) == (1, 0)
    assert row.outcome == "failure"


def _by_time(wait: Wait) -> tuple[int, int]:
    return wait.entered_ns, wait.left_ns or 0


@pytest.mark.parametrize("share", [0.0, 0.4, 0.8])
def test_work_waits_from_the_event_that_made_it_until_the_one_that_took_it(
    asked: Connection, recordeds: list[Recorded], share: float
) -> None:
    times = [one.envelope.occurred_ns for one in recordeds]
    since = times[int(share * len(times))]
    until = since + (times[-1] - times[0]) // 5
    empty: list[dict[str, int]] = [{} for _ in range(7)]
    requested, begun, over, ended, judged, taken, swept = empty
    judge, never = training_judge(asked), set[str]()
    for one in recordeds:
        at = one.envelope.occurred_ns
        match one.fact:
            case EpisodeRequested(episode=episode, origin=origin):
                requested[episode] = at
                if origin in NEVER_TRAINED:
                    never.add(episode)
            case EpisodeStarted(episode=episode):
                begun[episode] = at
            case EpisodeEnded(episode=episode):
                ended[episode] = over[episode] = at
            case EpisodeAbandoned(episode=episode) | EpisodeCancelled(episode=episode):
                over[episode] = at
            case EpisodeJudged(episode=episode, judge=JudgeIdentity(name=name)) if name == judge:
                judged.setdefault(episode, at)
            case BatchPlanned():
                for episode in {*(row.episode for row in one.fact.episodes), *one.fact.consumed}:
                    taken.setdefault(episode, at)
            case SamplesSwept(episodes=episodes):
                swept |= dict.fromkeys(episodes, at)

    def waits(entered: dict[str, int], left: dict[str, int]) -> list[Wait]:
        found = (Wait(at, left.get(episode)) for episode, at in entered.items())
        within = (one for one in found if one.entered_ns <= until and (one.left_ns or until) > since)
        return sorted(within, key=_by_time)

    found = queue_waits(asked, since_ns=since, until_ns=until)
    assert sorted(found.requested, key=_by_time) == waits(requested, over | begun)
    assert sorted(found.ended, key=_by_time) == waits(ended, judged)
    trainable = {name: at for name, at in judged.items() if name not in never | swept.keys()}
    assert sorted(found.judged, key=_by_time) == waits(trainable, taken)
