"""Installs the example plugins of docs/examples/plugins, each in a folder of its own, without pip."""

import shutil
import sys
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from hindcast.core import plugins
from hindcast.learner import batch_plan
from processes.system import ROOT

EXAMPLES = ROOT / "docs" / "examples" / "plugins"
CACHES = (plugins.load_plugin, plugins.identify_plugin, batch_plan.policy_planner)


def forget(*modules: str) -> None:
    """Forget loaded plugins and these modules, as a new process begins."""
    for module in modules:
        sys.modules.pop(module, None)
    for cached in CACHES:
        cached.cache_clear()


def install(example: str, folder: Path) -> Path:
    """Install an example as `pip install --no-deps --target` leaves it; returns the folder."""
    about = tomllib.loads((EXAMPLES / example / "pyproject.toml").read_text())
    project = about["project"]
    facts = folder / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    facts.mkdir(parents=True)
    (facts / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
    )
    lines = [
        f"[{group}]\n" + "".join(f"{name} = {value}\n" for name, value in own.items())
        for group, own in project["entry-points"].items()
    ]
    (facts / "entry_points.txt").write_text("\n".join(lines))
    for module in about["tool"]["setuptools"].get("py-modules", ()):
        shutil.copy(EXAMPLES / example / f"{module}.py", folder)
    for package in about["tool"]["setuptools"].get("packages", ()):
        shutil.copytree(EXAMPLES / example / package, folder / package)
    return folder


@contextmanager
def installed_example(name: str, folder: Path) -> Iterator[Path]:
    """The folder that an example is installed in, importable in the block."""
    modules = [module.stem for module in (EXAMPLES / name).iterdir()]
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(install(name, folder))
        forget(*modules)
        try:
            yield folder
        finally:
            forget(*modules)
