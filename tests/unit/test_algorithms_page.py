"""docs/plugins.md on algorithms: it names every member of the types, and its example trains."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from hindcast.app.plugins import find_plugins
from hindcast.core.rl.algorithm import AlgorithmTraits
from hindcast.core.rl.algorithm_options import GroupOptions
from hindcast.events.catalogue import BatchPlanned
from hindcast.learner.algorithms.base import EpisodePart, Loss, SampleLoss, SampleTerms, Valuing, Weighing
from hindcast.learner.planners.base import BatchEntry, PolicyPlanner
from hindcast.learner.verify.verify import verify
from stories.example_plugins import forget
from stories.forged_log import audited
from stories.training_story import bench, events_of, learn, settings_with

PAGE = (Path(__file__).parents[2] / "docs" / "plugins.md").read_text()
SECTION = PAGE[PAGE.index("## Add an algorithm") : PAGE.index("## Add an environment")]
TYPES = (
    AlgorithmTraits,
    GroupOptions,
    PolicyPlanner,
    BatchEntry,
    Loss,
    Valuing,
    Weighing,
    EpisodePart,
    SampleTerms,
    SampleLoss,
)


def members(of: type) -> set[str]:
    """Fields of a struct or tuple, methods of a protocol."""
    found = set(getattr(of, "__annotations__", ())) | {
        name for name in vars(of) if callable(getattr(of, name))
    }
    return {name for name in found if not name.startswith("_")}


@pytest.mark.parametrize("of", TYPES, ids=lambda of: of.__name__)
def test_the_page_explains_every_member_of_what_an_algorithm_is_made_of(of: type) -> None:
    rows = [line.split("|")[1] for line in SECTION.splitlines() if line.startswith("| ")]
    explained = {name for row in rows for name in re.findall(r"`(\w+)", row)}
    assert members(of)
    assert members(of) <= explained


@pytest.fixture
def example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The page's example as a module of the Python path; its name as a setting."""
    (block,) = re.findall(r"```python\n(.*?)```", SECTION, re.DOTALL)
    folder = tmp_path / "path"
    folder.mkdir()
    (folder / "reinforce_mean.py").write_text(block)
    monkeypatch.syspath_prepend(folder)
    forget("reinforce_mean")
    yield "reinforce_mean:ALGORITHM"
    monkeypatch.undo()
    forget("reinforce_mean")


@pytest.mark.torch
async def test_the_pages_example_trains_is_verified_and_passes_the_audit(
    example: str, tmp_path: Path
) -> None:
    (finding,) = find_plugins("algorithms", example)
    assert finding.problems == ()
    settings = settings_with(algorithm=example, options={"batch_episodes": 6})
    made = await bench(tmp_path, batches=2, settings=settings)
    assert (await learn(made, until=6)).updates == 6
    facts = [recorded.fact for recorded in await events_of(made.log)]
    plans = [fact for fact in facts if isinstance(fact, BatchPlanned)]
    assert [len(plan.episodes) for plan in plans] == [6, 6, 6]
    # rewards 1, 0, 1, 0 of one group, and 1, 0 of the next
    assert [one.advantage for one in plans[0].episodes] == [0.5, -0.5] * 3
    assert (await verify(made.log, made.blobs, policy=made.policy)).identical
    assert (await audited(made)).clean
