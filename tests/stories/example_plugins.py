"""Installs the example plugins of docs/examples/plugins, each in a folder of its own, without pip."""

import shutil
import sys
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from hindcast.core import plugins

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples" / "plugins"


def install_example(name: str, folder: Path) -> Path:
    """Install an example as `pip install --no-deps --target` leaves it."""
    example = EXAMPLES / name
    about = tomllib.loads((example / "pyproject.toml").read_text())["project"]
    facts = folder / f"{about['name'].replace('-', '_')}-{about['version']}.dist-info"
    facts.mkdir(parents=True)
    (facts / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {about['name']}\nVersion: {about['version']}\n"
    )
    lines = [
        f"[{group}]\n" + "".join(f"{entry} = {value}\n" for entry, value in own.items())
        for group, own in about["entry-points"].items()
    ]
    (facts / "entry_points.txt").write_text("\n".join(lines))
    for module in example.glob("*.py"):
        shutil.copy(module, folder)
    return folder


def forget_plugins(*modules: str) -> None:
    """Forget loaded plugins, as a new process begins."""
    for module in modules:
        sys.modules.pop(module, None)
    plugins.load_plugin.cache_clear()
    plugins.identify_plugin.cache_clear()


@contextmanager
def installed_example(name: str, folder: Path) -> Iterator[Path]:
    """The folder that an example is installed in, importable in the block."""
    modules = [module.stem for module in (EXAMPLES / name).glob("*.py")]
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(install_example(name, folder))
        forget_plugins(*modules)
        try:
            yield folder
        finally:
            forget_plugins(*modules)
