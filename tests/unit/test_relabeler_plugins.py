"""A relabeler that another package brings: found, checked, used under its name, recorded, and refused in words."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from hindcast.actors.relabelers.base import Relabeler
from hindcast.app.plugins import find_plugins, plugins_in_use
from hindcast.app.settings.configuration import resolve
from hindcast.app.system.judges import open_relabeler
from hindcast.core.errors import PluginError, SettingsError
from hindcast.core.plugins import plugin_names
from hindcast.events.catalogue import EpisodeRelabeled
from hindcast.storage.blobs.store import BlobStore
from stories.example_plugins import forget, installed_example
from stories.relabel_story import relabel_all
from stories.relabel_story import visit as visit  # a fixture
from stories.store_walk import Visit

pytestmark = pytest.mark.torch

MODULE = "hindcast_titles"


@pytest.fixture
def installed(tmp_path: Path) -> Iterator[Path]:
    """The folder that the example is installed in."""
    with installed_example("titles", tmp_path / "site") as folder:
        yield folder


@pytest.mark.parametrize("name", ["titles", f"{MODULE}:RELABELER"])
def test_the_example_relabels_episodes_under_its_name_in_the_settings(
    installed: Path, visit: Visit, tmp_path: Path, name: str
) -> None:
    chosen = [f"relabeler.kind={name}", "relabeler.options={shortest=2}"]
    settings = resolve(environment={}, overrides=chosen).settings
    blobs = BlobStore(tmp_path / "blobs")

    async def opened() -> Relabeler:
        async with open_relabeler(settings, blobs) as relabeler:
            return relabeler  # type: ignore[return-value]

    facts = relabel_all(visit.facts("ep_a", blobs), blobs, relabeler=asyncio.run(opened()), starts=2)
    (fact,) = (one for one in facts if isinstance(one, EpisodeRelabeled))
    assert (fact.relabeler.name, fact.relabeler.version, fact.failure) == (name, "1-2", "")
    titles = dict.fromkeys(page.title for page in visit.pages[: len(visit.actions)])
    wanted = [f"Open the page {title!r}." for title in list(titles)[1:]]
    assert [one.instruction for one in fact.relabels] == wanted != []
    assert all(len(one.prompts) == one.until_step for one in fact.relabels)
    assert [(one.kind, one.name) for one in plugins_in_use(settings) if one.kind == "relabelers"] == [
        ("relabelers", name)
    ]


def test_what_is_wrong_with_a_relabeler_is_said_before_a_run_starts(installed: Path) -> None:
    def wrong(*overrides: str) -> str:
        with pytest.raises(SettingsError) as refused:
            resolve(environment={}, overrides=overrides)
        return str(refused.value)

    assert "relabeler.kind names 'titels', which is not a relabeler; the nearest is titles" in wrong(
        "relabeler.kind=titels"
    )
    assert "relabeler.options of the relabeler 'titles': Object contains unknown field `least`" in wrong(
        "relabeler.kind=titles", "relabeler.options={least=1}"
    )
    assert "relabeler.options is set although relabeler.kind" in wrong("relabeler.options={shortest=1}")
    assert "relabeler.kind: the plugin" in wrong(f"relabeler.kind={MODULE}:TitlesOptions")
    assert [one.problems for one in find_plugins("relabelers")] == [()] * 4
    assert plugin_names("relabelers") == ["endpoint", "learned", "rules", "titles"]


async def test_a_relabeler_that_signs_with_another_name_is_refused(installed: Path, tmp_path: Path) -> None:
    file = installed / f"{MODULE}.py"
    file.write_text(file.read_text().replace("context.name", "'mine'"))
    forget(MODULE)
    settings = resolve(environment={}, overrides=["relabeler.kind=titles"]).settings
    with pytest.raises(PluginError, match="the relabeler 'titles' signs its relabels as 'mine'"):
        async with open_relabeler(settings, BlobStore(tmp_path)):
            pass


def test_a_run_without_a_relabeler_records_none() -> None:
    settings = resolve(environment={}, overrides=()).settings
    assert "relabelers" not in {one.kind for one in plugins_in_use(settings)}
