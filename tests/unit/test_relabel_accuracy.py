"""A relabeler held against the store's truth: counted by hand over one visit."""

from pathlib import Path

import pytest

from hindcast.actors.relabelers.base import AchievedGoal, RelabelResult
from hindcast.app.evaluation.relabel_accuracy import compare_goals
from hindcast.core.rl.statistics import Confusion
from hindcast.storage.blobs.store import BlobStore
from stories.relabel_story import visit as visit  # a fixture
from stories.store_walk import Visit

pytestmark = pytest.mark.torch


def goal(instruction: str, until: int) -> AchievedGoal:
    """In mere words, as a model behind an endpoint names them."""
    return AchievedGoal(instruction, until, (1.0,) * until)


def test_goals_in_words_are_read_and_compared_with_what_was_achieved_and_when(
    visit: Visit, tmp_path: Path
) -> None:
    first = next(one for one in visit.hindsight() if one.family == "add_to_cart")
    said = (
        goal(visit.task.instruction, 7),
        goal(first.instruction, 5),
        goal("Change the street of my address to 7 Hill Road.", 2),
        goal("Do what was asked.", 8),
    )
    counts = compare_goals(
        visit.episode("ep_a", BlobStore(tmp_path)), visit.pages, RelabelResult(said), most=8
    )
    assert (first.until_step, len(visit.actions), counts.silent) == (3, 8, "")
    assert (counts.named, counts.dropped, counts.right, counts.well_cut) == (3, 1, 2, 1)
    assert (counts.listed, counts.found) == (2, 2)
    assert counts.table == Confusion(hits=1, misses=1, false_alarms=3, rejections=3)


def test_what_the_rules_find_is_right_throughout(visit: Visit, tmp_path: Path) -> None:
    found = [
        AchievedGoal(one.instruction, one.until_step, one.relevance, f"store/{one.family}", one.goal)
        for one in visit.hindsight(most=8)
    ]
    counts = compare_goals(
        visit.episode("ep_a", BlobStore(tmp_path)), visit.pages, RelabelResult(tuple(found)), most=8
    )
    assert counts.named == counts.right == counts.well_cut == counts.listed == counts.found == len(found)
    assert counts.table == Confusion(hits=2, rejections=6)


def test_whoever_names_nothing_finds_every_other_step_and_no_goal(visit: Visit, tmp_path: Path) -> None:
    counts = compare_goals(visit.episode("ep_a", BlobStore(tmp_path)), visit.pages, RelabelResult(()), most=8)
    assert (counts.named, counts.found, counts.listed) == (0, 0, 2)
    assert counts.table == Confusion(misses=2, rejections=6)
