"""The shape of the code base: who may import whom, and how long a file may be."""

import ast
import gc
import re
import subprocess
import sys
from collections import Counter
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
OURS = ("core", "events", "storage", "actors", "learner", "app")
MAY_IMPORT = {
    "core": {"core"},
    "events": {"core", "events"},
    "storage": {"core", "events", "storage"},
    "actors": {"core", "events", "storage", "actors"},
    "learner": {"core", "events", "storage", "learner"},
    "app": {*OURS, "api"},
}
KEPT_OUT_OF_CORE = {"asyncio", "nats", "torch", "playwright", "sqlalchemy", "transformers"}
MAY_IMPORT_TORCH = ("core/models", "actors/engines", "learner")


def parsed(path: Path) -> ast.Module:
    """A file's syntax tree. Python 3.11 fails with SystemError if Python code (Hypothesis' hook) collects garbage
    meanwhile."""
    gc.disable()
    try:
        return ast.parse(path.read_text())
    finally:
        gc.enable()


def imported(path: Path) -> set[str]:
    """Dotted names of everything a file imports, at any depth of it."""
    names: set[str] = set()
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            names.add(node.module or "")
    return names


def sources(folder: str) -> list[Path]:
    return sorted((ROOT / folder).rglob("*.py"))


@pytest.mark.parametrize("folder", OURS)
def test_a_folder_imports_only_what_the_table_allows(folder: str) -> None:
    wrong = [
        f"{path.relative_to(ROOT)} imports {name}"
        for path in sources(folder)
        for name in imported(path)
        if name.split(".")[0] in OURS
        or (name.startswith("hindcast.") and name.split(".")[1] not in MAY_IMPORT[folder])
    ]
    assert sources(folder)
    assert not wrong


def test_the_core_knows_no_loop_no_broker_no_browser_no_database_no_torch() -> None:
    wrong = [
        f"{path.relative_to(ROOT)} imports {name}"
        for path in sources("core")
        if "core/models" not in path.as_posix()
        for name in imported(path)
        if name.split(".")[0] in KEPT_OUT_OF_CORE
    ]
    assert not wrong


def test_torch_stays_in_models_engines_and_learner() -> None:
    wrong = [
        f"{path.relative_to(ROOT)} imports {name}"
        for folder in OURS
        for path in sources(folder)
        if not path.relative_to(ROOT).as_posix().startswith(MAY_IMPORT_TORCH)
        for name in imported(path)
        if name.split(".")[0] in ("torch", "transformers", "safetensors")
        and path.relative_to(ROOT).as_posix() != "storage/checkpoints.py"
    ]
    assert not wrong


def test_no_file_of_the_product_is_longer_than_600_lines() -> None:
    long = {
        str(path.relative_to(ROOT)): lines
        for folder in OURS
        for path in sources(folder)
        if (lines := len(path.read_text().splitlines())) > 600
    }
    assert not long


def test_no_two_test_files_have_one_name() -> None:
    """Test folders are no packages, so one run cannot import two modules of one name."""
    names = Counter(path.name for path in sources("tests") if path.name.startswith("test_"))
    assert not {name: count for name, count in names.items() if count > 1}


def test_types_are_read_by_the_functions_that_are_safe_in_threads() -> None:
    unsafe = re.compile(r"msgspec\.(convert\(|(json|msgpack)\.(Decoder\(|decode\([^\n]*type=))")
    found = [
        f"{path.relative_to(ROOT)}:{number}"
        for folder in OURS
        for path in sources(folder)
        for number, line in enumerate(path.read_text().splitlines(), start=1)
        if unsafe.search(line) and path.name != "structs.py"
    ]
    assert not found, f"use hindcast.core.structs: {found}"


def test_every_module_says_what_it_is() -> None:
    silent = [
        str(path.relative_to(ROOT))
        for folder in OURS
        for path in sources(folder)
        if path.read_text().strip() and not ast.get_docstring(parsed(path))
    ]
    assert not silent


def test_no_module_imports_itself_through_others() -> None:
    """Also for the type checker alone: a cycle is a sign that two modules are one, or that a third is missing."""
    modules = {
        "hindcast."
        + path.relative_to(ROOT).with_suffix("").as_posix().replace("/", ".").removesuffix(".__init__"): path
        for folder in OURS
        for path in sources(folder)
    }
    graph = {
        name: {
            target
            for node in ast.walk(parsed(path))
            if isinstance(node, ast.ImportFrom) and node.module
            for alias in node.names
            for target in (f"{node.module}.{alias.name}", node.module)
            if target in modules and target != name
        }
        for name, path in modules.items()
    }
    TopologicalSorter(graph).prepare()


@pytest.mark.parametrize(
    "module", ["hindcast.actors.curriculum.role", "hindcast.actors.environments.store.plugin"]
)
def test_asking_an_environment_loads_no_browser_library(module: str) -> None:
    """The curriculum and the check of settings ask environments in processes without a browser."""
    code = f"import sys, {module}; sys.exit('playwright' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
