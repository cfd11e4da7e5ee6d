"""Lineage, against a count by hand over the events themselves; and that both directions tell of the same edges."""

import asyncio
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from sqlalchemy import Connection

from hindcast.core.domain.arrays import pack_ids, unpack_floats, unpack_ids, unpack_positions
from hindcast.core.domain.task import Task
from hindcast.core.errors import SettingsError
from hindcast.events.catalogue import (
    BatchPlanned,
    BlobReleased,
    EpisodeEnded,
    EpisodeJudged,
    EpisodeRequested,
    StepTaken,
    TaskProposed,
    UpdateApplied,
    UpdateSkipped,
    WeightsAdopted,
    WeightsPublished,
)
from hindcast.events.envelope import Fact, Recorded
from hindcast.events.log.memory import MemoryLog
from hindcast.events.log.reader import read
from hindcast.storage.readmodel.database import ReadModel
from hindcast.storage.readmodel.fold import apply
from hindcast.storage.readmodel.lineage.graph import Branch, Node
from hindcast.storage.readmodel.lineage.lineage import lineage
from hindcast.storage.readmodel.query_parts import NotInReadModel
from stories.synthetic_run import TASKS, Told, a_run, blob, record, recorded_run

EVERYTHING: dict[str, Any] = {"limit": None, "depth": 9}


@contextmanager
def reading(url: str, recordeds: list[Recorded]) -> Iterator[Connection]:
    model = ReadModel(url, run="tale")
    model.prepare()
    with model.writing() as connection:
        apply(connection, recordeds)
    with model.reading() as connection:
        yield connection
    model.close()


@pytest.fixture(scope="module")
def recordeds() -> list[Recorded]:
    return asyncio.run(recorded_run(4, groups=12))[1]


@pytest.fixture(scope="module")
def asked(recordeds: list[Recorded], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Connection]:
    with reading(f"sqlite:///{tmp_path_factory.mktemp('lineage')}/model.sqlite", recordeds) as connection:
        yield connection


def facts(recordeds: list[Recorded], kind: type[Fact]) -> dict[int, Any]:
    """Position -> fact, of one kind."""
    return {one.position: one.fact for one in recordeds if isinstance(one.fact, kind)}


def branch(node: Node, relation: str) -> Branch:
    (found,) = (one for one in node.branches if one.relation == relation)
    return found


def relations(node: Node) -> set[str]:
    return {one.relation for one in node.branches}


def everywhere(node: Node) -> Iterator[Node]:
    yield node
    for one in node.branches:
        for below in one.nodes:
            yield from everywhere(below)


def backward(connection: Connection, kind: str, name: object, **options: Any) -> Node:
    found = lineage(connection, kind, str(name), forward=False, **{**EVERYTHING, **options}).backward
    assert found is not None
    return found


def forward(connection: Connection, kind: str, name: object, **options: Any) -> Node:
    found = lineage(connection, kind, str(name), backward=False, **{**EVERYTHING, **options}).forward
    assert found is not None
    return found


class Sample(msgspec.Struct, frozen=True):
    """One sample of one update, as its two events say."""

    update: int
    batch: int
    episode: str
    step_position: int
    advantage: float
    weight: float


def samples_of(recordeds: list[Recorded]) -> list[Sample]:
    """Every sample that was ever trained on, by hand."""
    plans = {plan.batch: plan for plan in facts(recordeds, BatchPlanned).values()}
    owners = {position: fact.episode for position, fact in facts(recordeds, StepTaken).items()}
    found = []
    for fact in facts(recordeds, UpdateApplied).values():
        plan = plans[fact.batch]
        sizes = unpack_ids(plan.minibatches).tolist()
        before = sum(sizes[: fact.minibatch])
        positions = unpack_positions(plan.positions).tolist()[before : before + sizes[fact.minibatch]]
        advantages, weights = unpack_floats(fact.samples.advantages), unpack_floats(fact.samples.weights)
        for position, advantage, weight in zip(positions, advantages, weights, strict=True):
            found.append(
                Sample(fact.update, fact.batch, owners[position], position, float(advantage), float(weight))
            )
    assert found
    return found


# --- backward


def test_an_update_leads_back_to_every_sample_with_what_it_did_with_each(
    asked: Connection, recordeds: list[Recorded]
) -> None:
    by_update: dict[int, list[Sample]] = defaultdict(list)
    for sample in samples_of(recordeds):
        by_update[sample.update].append(sample)
    for update, samples in by_update.items():
        root = backward(asked, "update", update)
        shares = [
            (step.position, step.share["advantage"], step.share["weight"])
            for relation in relations(root) & {"trained on", "rehearsed"}
            for episode in branch(root, relation).nodes
            for step in branch(episode, "with").nodes
        ]
        assert sorted(shares) == sorted((one.step_position, one.advantage, one.weight) for one in samples)
        told = [
            node
            for relation in relations(root) & {"trained on", "rehearsed"}
            for node in branch(root, relation).nodes
        ]
        assert {node.id: node.share["samples"] for node in told} == {
            episode: sum(one.episode == episode for one in samples)
            for episode in {one.episode for one in samples}
        }


def test_what_was_only_imitated_is_told_apart_from_what_was_trained_on(
    asked: Connection, recordeds: list[Recorded]
) -> None:
    plan = next(
        plan for plan in facts(recordeds, BatchPlanned).values() if any(p.rehearsed for p in plan.episodes)
    )
    rehearsed = {part.episode for part in plan.episodes if part.rehearsed}
    root = backward(asked, "batch", plan.batch)
    assert {node.id for node in branch(root, "rehearsed").nodes} == rehearsed
    trained = branch(root, "trained on")
    assert {node.id for node in trained.nodes} == {p.episode for p in plan.episodes if not p.rehearsed}
    assert trained.total == len(trained.nodes), "each once, however often it is gone through"
    assert {node.id for node in branch(root, "used up").nodes} == set(plan.consumed)
    updates = [f.update for f in facts(recordeds, UpdateApplied).values() if f.batch == plan.batch]
    under = {
        node.id
        for u in updates
        for b in backward(asked, "update", u).branches
        if b.relation == "rehearsed"
        for node in b.nodes
    }
    assert under == rehearsed


def test_a_batch_leads_back_to_settings_to_the_weights_it_began_with_and_to_verdicts(
    asked: Connection, recordeds: list[Recorded]
) -> None:
    position, plan = next(iter(facts(recordeds, BatchPlanned).items()))
    root = backward(asked, "batch", plan.batch)
    assert (root.position, root.facts["as_of"], root.facts["code_rev"]) == (position, plan.as_of, "test")
    (settings,) = branch(root, "under").nodes
    assert (settings.position, settings.facts["recipe"], settings.facts["run_seed"]) == (1, "grpo", 4)
    assert [node.id for node in branch(root, "began with").nodes] == [str(plan.version)]
    judged = facts(recordeds, EpisodeJudged)
    for episode in branch(root, "trained on").nodes:
        told = {node.position: node.facts for node in branch(episode, "judged by").nodes}
        expected = {at: fact for at, fact in judged.items() if fact.episode == episode.id}
        assert set(told) == set(expected)
        for at, fact in expected.items():
            assert (told[at]["judge"], told[at]["judge_version"]) == (fact.judge.name, fact.judge.version)
            assert told[at]["outcome"] == fact.judgment.outcome
            assert told[at]["trained_on"] == (fact.judge.name == "rules")


def test_an_episode_leads_back_to_its_task_its_pages_and_the_weights_it_was_sampled_with(
    asked: Connection, recordeds: list[Recorded]
) -> None:
    requested = {fact.episode: fact.task for fact in facts(recordeds, EpisodeRequested).values()}
    taken = facts(recordeds, StepTaken)
    for episode in list({fact.episode for fact in taken.values()})[:8]:
        root = backward(asked, "episode", episode)
        assert [node.id for node in branch(root, "attempt at").nodes] == [requested[episode].id]
        steps = branch(root, "took").nodes
        mine = {at: fact for at, fact in taken.items() if fact.episode == episode}
        assert [step.position for step in steps] == list(mine)
        for step, (at, fact) in zip(steps, mine.items(), strict=True):
            (page,) = branch(step, "saw").nodes
            assert (page.id, page.position) == (fact.observation_digest, at)
            assert page.facts["blob"] == (fact.observation.sha256 if fact.observation else None)
            sampled = {int(node.id): node.share["tokens"] for node in branch(step, "sampled by").nodes}
            assert sampled == Counter(unpack_ids(fact.versions).tolist())
        assert "judged by" not in relations(root), "what came after it is forward"


def test_a_policy_version_leads_back_to_the_updates_since_the_one_before_and_the_first_to_the_settings(
    asked: Connection, recordeds: list[Recorded]
) -> None:
    at_update = {0: 0, **{fact.version: fact.update for fact in facts(recordeds, WeightsPublished).values()}}
    for version, update in at_update.items():
        root = backward(asked, "policy", version, depth=1)
        if version == 0:
            assert [node.kind for node in branch(root, "given by").nodes] == ["settings"]
        else:
            made = [int(node.id) for node in branch(root, "made by").nodes]
            assert sorted(made) == list(range(at_update[version - 1] + 1, update + 1))


def test_from_the_last_policy_backward_everything_that_was_trained_on_is_met(
    asked: Connection, recordeds: list[Recorded]
) -> None:
    answer = lineage(asked, "policy", "latest", forward=False, limit=None, depth=50)
    assert answer.backward is not None
    met = list(everywhere(answer.backward))
    samples = samples_of(recordeds)
    assert {n.id for n in met if n.kind == "episode"} >= {one.episode for one in samples}
    assert {n.position for n in met if n.kind == "step"} >= {one.step_position for one in samples}
    assert {int(n.id) for n in met if n.kind == "update"} == {one.update for one in samples}
    assert "0" in {n.id for n in met if n.kind == "policy"}
    expanded = [(n.kind, n.id) for n in met if n.branches and n.kind in ("update", "policy", "batch", "step")]
    assert len(expanded) == len(set(expanded)), "each thing is expanded once; of episodes each share"
    tasks = {f.episode: f.task.id for f in facts(recordeds, EpisodeRequested).values()}
    origins = answer.origins
    assert origins is not None
    assert (origins.updates, origins.batches) == (
        len({one.update for one in samples}),
        len({one.batch for one in samples}),
    )
    assert origins.episodes == len({one.episode for one in samples})
    assert origins.tasks == len({tasks[one.episode] for one in samples})


def test_behind_an_update_is_the_training_up_to_it_and_not_the_rest_of_its_batch(
    asked: Connection, recordeds: list[Recorded]
) -> None:
    samples = samples_of(recordeds)
    for update in sorted({one.update for one in samples}):
        origins = lineage(asked, "update", str(update), depth=0).origins
        behind = [one for one in samples if one.update <= update]
        assert origins is not None
        assert (origins.updates, origins.episodes) == (update, len({one.episode for one in behind}))


# --- forward


def test_a_step_leads_to_every_update_that_trained_on_it_with_weight_ratio_and_mask(
    asked: Connection, recordeds: list[Recorded]
) -> None:
    by_step: dict[int, list[Sample]] = defaultdict(list)
    for sample in samples_of(recordeds):
        by_step[sample.step_position].append(sample)
    assert any(len(found) > 1 for found in by_step.values())
    for position, fact in facts(recordeds, StepTaken).items():
        root = forward(asked, "step", f"{fact.episode}/{fact.index}", depth=1)
        assert root.position == position
        told = branch(root, "trained on by").nodes if "trained on by" in relations(root) else []
        assert sorted(
            (int(n.id), n.share["batch"], n.share["advantage"], n.share["weight"]) for n in told
        ) == sorted((one.update, one.batch, one.advantage, one.weight) for one in by_step[position])


def test_a_step_that_is_planned_and_not_trained_on_yet_leads_to_its_batch(
    asked: Connection, recordeds: list[Recorded]
) -> None:
    position, plan = next(iter(facts(recordeds, BatchPlanned).items()))
    first = unpack_positions(plan.positions).tolist()[0]
    root = forward(asked, "step", first, as_of=position)
    assert [node.id for node in branch(root, "planned in").nodes] == [str(plan.batch)]
    assert "planned in" not in relations(forward(asked, "step", first))
    with pytest.raises(NotInReadModel):
        lineage(asked, "batch", str(plan.batch), as_of=position - 1)


def test_an_update_is_first_published_in_the_next_version(
    asked: Connection, recordeds: list[Recorded]
) -> None:
    published = sorted(facts(recordeds, WeightsPublished).values(), key=lambda fact: fact.version)
    for update in {one.update for one in samples_of(recordeds)}:
        first = next(fact.version for fact in published if fact.update >= update)
        root = forward(asked, "update", update, depth=1)
        assert [node.id for node in branch(root, "first published in").nodes] == [str(first)]


def test_a_policy_version_leads_to_who_adopted_it_and_to_the_episodes_it_sampled(
    asked: Connection, recordeds: list[Recorded]
) -> None:
    taken = facts(recordeds, StepTaken).values()
    adopted = facts(recordeds, WeightsAdopted)
    verdicts = {
        f.episode: f.judgment.outcome
        for f in facts(recordeds, EpisodeJudged).values()
        if f.judge.name == "rules"
    }
    for version in {fact.version for fact in adopted.values()}:
        root = forward(asked, "policy", version, depth=1)
        told = [(node.id, node.position) for node in branch(root, "adopted by").nodes]
        assert told == [(fact.actor, at) for at, fact in adopted.items() if fact.version == version]
        episodes = {fact.episode for fact in taken if version in unpack_ids(fact.versions).tolist()}
        if not episodes:
            assert "sampled" not in relations(root)
            continue
        sampled = branch(root, "sampled")
        assert {node.id for node in sampled.nodes} == episodes
        assert sampled.total == len(episodes) == sum(sampled.counts.values())
        for outcome, number in sampled.counts.items():
            assert number == sum(verdicts.get(episode, "unjudged") == outcome for episode in episodes)


def test_later_episodes_that_came_from_something_are_those_sampled_with_weights_that_were_trained_on_it(
    asked: Connection, recordeds: list[Recorded]
) -> None:
    samples, taken = samples_of(recordeds), facts(recordeds, StepTaken).values()
    published = facts(recordeds, WeightsPublished).values()
    tasks = {f.episode: f.task.id for f in facts(recordeds, EpisodeRequested).values()}

    def expected(first_update: int) -> tuple[int | None, int]:
        version = min((f.version for f in published if f.update >= first_update), default=None)
        if version is None:
            return None, 0
        return version, len({f.episode for f in taken if max(unpack_ids(f.versions).tolist()) >= version})

    asked_about = [
        *(("step", f"{one.step_position}", one.update) for one in samples[::7]),
        *(("update", f"{one.update}", one.update) for one in samples[::7]),
    ]
    for one in samples[::5]:
        mine = [other.update for other in samples if other.episode == one.episode]
        asked_about.append(("episode", one.episode, min(mine)))
        same_task = [other.update for other in samples if tasks[other.episode] == tasks[one.episode]]
        asked_about.append(("task", tasks[one.episode], min(same_task)))
        asked_about.append(("batch", f"{one.batch}", min(o.update for o in samples if o.batch == one.batch)))
    some = False
    for kind, name, first_update in asked_about:
        reach = lineage(asked, kind, name, depth=0).reach
        assert reach is not None
        if kind == "step":
            first_update = min(o.update for o in samples if f"{o.step_position}" == name)
        assert reach.first_update == first_update, (kind, name)
        assert (reach.first_policy, reach.episodes) == expected(first_update), (kind, name)
        assert sum(reach.outcomes.values()) == reach.episodes
        some |= reach.episodes > 0
    assert some


def test_what_was_never_trained_on_has_led_to_no_weights(
    asked: Connection, recordeds: list[Recorded]
) -> None:
    trained = {one.episode for one in samples_of(recordeds)}
    ended = {fact.episode for fact in facts(recordeds, EpisodeEnded).values()}
    idle = sorted(ended - trained)
    assert idle
    for episode in idle[:5]:
        assert lineage(asked, "episode", episode).reach is None


def test_forward_and_backward_tell_of_the_same_edges(asked: Connection, recordeds: list[Recorded]) -> None:
    """An edge from a step to an update, seen from either end."""
    seen_forward, seen_backward = set(), set()
    for position in facts(recordeds, StepTaken):
        for node in everywhere(forward(asked, "step", position, depth=1)):
            if node.kind == "update":
                seen_forward.add((position, int(node.id)))
    for update in {fact.update for fact in facts(recordeds, UpdateApplied).values()}:
        root = backward(asked, "update", update)
        for relation in relations(root) & {"trained on", "rehearsed"}:
            for episode in branch(root, relation).nodes:
                seen_backward |= {(step.position, update) for step in branch(episode, "with").nodes}
    assert seen_forward == seen_backward != set()


# --- tasks


def test_a_task_leads_back_to_its_parents_and_forward_to_its_children_and_attempts(
    asked: Connection, recordeds: list[Recorded]
) -> None:
    child = next(fact for fact in facts(recordeds, TaskProposed).values() if fact.parents)
    root = backward(asked, "task", child.task.id)
    assert tuple(node.id for node in branch(root, "derived from").nodes) == child.parents
    parent = forward(asked, "task", child.parents[0], depth=1)
    assert [node.id for node in branch(parent, "parent of").nodes] == [child.task.id]
    episodes = [
        f.episode for f in facts(recordeds, EpisodeRequested).values() if f.task.id == child.parents[0]
    ]
    if episodes:
        assert [node.id for node in branch(parent, "attempted by").nodes] == episodes


def test_a_task_names_its_evaluation_by_content(asked: Connection) -> None:
    root = backward(asked, "task", TASKS[0].id, depth=0)
    assert root.facts["instruction"] == TASKS[0].instruction
    assert not root.expanded
    assert root.branches == []


# --- stories of their own


@pytest.fixture
def tell(tmp_path: Path) -> Iterator[Callable[..., Connection]]:
    """Folds a run's first event and the given facts; answers are asked of the connection it gives."""
    with ExitStack() as stack:

        def folded(*more: Told) -> Connection:
            recordeds = asyncio.run(_recorded([a_run(4)[0], *more]))
            return stack.enter_context(reading(f"sqlite:///{tmp_path}/story.sqlite", recordeds))

        yield folded


async def _recorded(facts: list[Told]) -> list[Recorded]:
    log = MemoryLog("tale")
    await record(log, facts)
    return [recorded async for recorded in read(log)]


def a_step(**changes: Any) -> Told:
    taken = next(told.fact for told in a_run(4) if isinstance(told.fact, StepTaken))
    return Told("actor.1", "ep_1", msgspec.structs.replace(taken, episode="ep_1", **changes))


def an_episode(task: Task = TASKS[0]) -> Told:
    requested = next(told.fact for told in a_run(4) if isinstance(told.fact, EpisodeRequested))
    return Told("curriculum.1", "ep_1", msgspec.structs.replace(requested, episode="ep_1", task=task))


def published(version: int) -> Told:
    weights = blob(f"weights {version}")
    fact = WeightsPublished(version=version, model="policy", weights=weights, update=4 * version)
    return Told("learner.1", f"{version}", fact)


def test_every_version_that_sampled_a_token_of_an_answer_is_named_with_its_tokens(
    tell: Callable[..., Connection],
) -> None:
    spliced = a_step(index=0, versions=pack_ids([1, 1, 1, 3, 3, 1]))
    asked = tell(an_episode(), *map(published, (1, 2, 3)), spliced)
    sampled = branch(backward(asked, "step", "ep_1/0"), "sampled by").nodes
    assert [(node.id, node.share["tokens"]) for node in sampled] == [("1", 4), ("3", 2)]
    for version, episodes in ((1, ["ep_1"]), (2, []), (3, ["ep_1"])):
        told = [one for one in forward(asked, "policy", version).branches if one.relation == "sampled"]
        assert [node.id for one in told for node in one.nodes] == episodes, version


def test_what_a_demonstrator_played_was_sampled_by_no_weights(tell: Callable[..., Connection]) -> None:
    asked = tell(an_episode(), a_step(index=0, versions=pack_ids([-1, -1])))
    answer = lineage(asked, "episode", "ep_1")
    assert answer.origins is None
    assert answer.backward is not None
    (step,) = branch(answer.backward, "took").nodes
    assert [node.kind for node in branch(step, "sampled by").nodes] == ["demonstrator"]


def test_pages_and_weights_that_were_let_go_of_say_so_from_that_position_on(
    tell: Callable[..., Connection],
) -> None:
    page = blob("page of its own")
    let_go = [
        Told("learner.1", name, BlobReleased(blob=gone, reason="old"))
        for name, gone in (("page", page), ("weights", blob("weights 1")))
    ]
    asked = tell(an_episode(), published(1), a_step(index=0, observation=page), *let_go)
    (shown,) = branch(backward(asked, "step", "ep_1/0"), "saw").nodes
    assert (shown.facts["blob"], shown.facts["released"]) == (page.sha256, 5)
    assert backward(asked, "policy", 1).facts["released"] == 6
    (before,) = branch(backward(asked, "step", "ep_1/0", as_of=4), "saw").nodes
    assert "released" not in before.facts


def test_a_skipped_update_led_to_nothing_and_gives_its_number_to_the_next(
    asked: Connection, recordeds: list[Recorded]
) -> None:
    skipped = facts(recordeds, UpdateSkipped)
    applied = {fact.update: at for at, fact in facts(recordeds, UpdateApplied).items()}
    assert skipped
    for at, fact in skipped.items():
        now = backward(asked, "update", fact.update, depth=0)
        then = backward(asked, "update", fact.update, depth=0, as_of=at)
        assert (then.position, then.facts["outcome"]) == (at, "skipped")
        if fact.update in applied:
            assert (now.position, now.facts["outcome"]) == (applied[fact.update], "applied")
        answer = lineage(asked, "update", f"{fact.update}", as_of=at)
        assert answer.reach is None
        assert answer.forward is not None
        assert answer.forward.branches == []


def test_a_parent_that_the_log_never_proposed_is_named_all_the_same(tell: Callable[..., Connection]) -> None:
    proposed = TaskProposed(task=TASKS[0], source="imported", parents=("task_elsewhere",))
    asked = tell(Told("curriculum.1", TASKS[0].id, proposed))
    (parent,) = branch(backward(asked, "task", TASKS[0].id), "derived from").nodes
    assert (parent.id, parent.position, parent.facts) == ("task_elsewhere", None, {})


def test_remarks_on_an_episode_are_what_came_after_it(asked: Connection, recordeds: list[Recorded]) -> None:
    told = [
        one
        for one in recordeds
        if one.envelope.type in ("episode.relabeled", "verdict.disputed", "injection.seen")
    ]
    episodes = {one.fact.episode for one in told}  # type: ignore[attr-defined]
    (episode,) = episodes
    remarks = branch(forward(asked, "episode", episode), "remarked").nodes
    assert [(node.id, node.position) for node in remarks] == [
        (one.envelope.type, one.position) for one in told
    ]


# --- how much is shown


def test_large_branches_are_counted_in_full_and_shown_in_part(asked: Connection) -> None:
    whole = branch(forward(asked, "policy", 0, depth=1), "sampled")
    part = branch(forward(asked, "policy", 0, depth=1, limit=2), "sampled")
    assert len(whole.nodes) == whole.total > 2
    assert (part.total, part.counts) == (whole.total, whole.counts)
    assert part.nodes == whole.nodes[:2]


def test_the_tree_is_as_deep_as_asked_for(asked: Connection) -> None:
    def depth(node: Node) -> int:
        return max((1 + depth(below) for one in node.branches for below in one.nodes), default=0)

    for levels in range(5):
        assert depth(backward(asked, "policy", "latest", depth=levels)) == levels
    assert not backward(asked, "policy", "latest", depth=0).expanded


def test_a_direction_that_is_not_asked_for_is_not_answered(asked: Connection) -> None:
    only = lineage(asked, "policy", "1", backward=False)
    assert (only.backward, only.origins) == (None, None)
    assert only.forward is not None
    other = lineage(asked, "policy", "1", forward=False)
    assert (other.forward, other.reach) == (None, None)
    assert other.backward is not None


# --- names


def test_a_unique_beginning_of_an_id_is_enough_with_or_without_its_prefix(
    asked: Connection, recordeds: list[Recorded]
) -> None:
    episode = next(iter(facts(recordeds, EpisodeRequested).values())).episode
    for typed in (episode, episode[:-2], episode.removeprefix("ep_"), episode.removeprefix("ep_")[:8]):
        assert backward(asked, "episode", typed, depth=0).id == episode
    task = TASKS[3].id
    assert backward(asked, "task", task.removeprefix("task_")[:9], depth=0).id == task


@pytest.mark.parametrize(
    ("kind", "name", "words"),
    [
        ("episode", "ep_", r"begins the id of more than one episode: ep_\w+, .* …\. Type more"),
        ("episode", "nobody", r"no episode 'nobody' as of position \d+\. Run: hindcast episode list"),
        ("task", "nobody", r"no task 'nobody'"),
        ("step", "1", r"no step is at position 1 .* hindcast log show 1"),
        ("update", "999", r"no update 999 of policy .*; the last is \d+"),
        ("update", "critic/1", r"no update 1 of critic .*; there is none yet"),
        ("batch", "999", r"no batch 999 .*; the last is \d+"),
        ("policy", "999", r"no version 999 of policy .*; the latest is \d+\. Run: hindcast policy list"),
        ("policy", "critic/latest", r"no version latest of critic .*; none is published yet"),
    ],
)
def test_what_is_not_there_is_said_with_what_is(asked: Connection, kind: str, name: str, words: str) -> None:
    with pytest.raises(NotInReadModel, match=words):
        lineage(asked, kind, name)


@pytest.mark.parametrize(
    ("kind", "name", "words"),
    [
        ("step", "somewhere", r"EPISODE/INDEX is one"),
        ("update", "first", r"'first' is no update: it is a number"),
        ("batch", "x", r"'x' is no batch"),
        ("policy", "newest", r"is no policy version: it is a number or `latest`"),
    ],
)
def test_what_can_be_no_name_is_a_mistake_of_usage(
    asked: Connection, kind: str, name: str, words: str
) -> None:
    with pytest.raises(SettingsError, match=words) as refused:
        lineage(asked, kind, name)
    assert refused.value.exit_code == 2


def test_a_step_that_the_episode_did_not_take_is_said_with_those_it_took(
    asked: Connection, recordeds: list[Recorded]
) -> None:
    taken = next(iter(facts(recordeds, StepTaken).values()))
    with pytest.raises(NotInReadModel, match=rf"{taken.episode} has no step 99 .* its steps are 0 to \d"):
        lineage(asked, "step", f"{taken.episode}/99")
