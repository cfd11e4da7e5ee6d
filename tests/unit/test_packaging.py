"""What is installed: every package under the one name `hindcast`, with its data, and nothing else."""

import importlib.util
import os
import shutil
import subprocess
import sys
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement

pytestmark = pytest.mark.broker

ROOT = Path(__file__).parents[2]
FOLDERS = ("actors", "app", "core", "events", "learner", "storage")
API = "hindcast.api"
NO_EXTRA = {"browser_use", "verl"}
"""Other projects' packages that cannot be installed next to Hindcast's dependencies."""
BUILT_S = 600.0
RUN_S = 300.0


def installed_name(file: str) -> str:
    """Where a tracked file of the product lies in the wheel."""
    return (
        f"hindcast/api{file.removeprefix('app/api')}" if file.startswith("app/api/") else f"hindcast/{file}"
    )


def product_files() -> list[str]:
    listed = subprocess.run(
        ["git", "-C", str(ROOT), "ls-files", "-co", "--exclude-standard", *FOLDERS],
        capture_output=True,
        text=True,
        check=True,
    )
    return [file for file in listed.stdout.splitlines() if (ROOT / file).exists()]


def test_the_list_of_packages_is_that_of_the_folders() -> None:
    setuptools = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    found = {
        "hindcast." + path.parent.relative_to(ROOT).as_posix().replace("/", ".")
        for folder in FOLDERS
        for path in (ROOT / folder).rglob("__init__.py")
    }
    assert set(setuptools["packages"]) == found - {"hindcast.app.api"} | {API}
    assert setuptools["package-dir"] == {f"hindcast.{name}": name for name in FOLDERS} | {API: "app/api"}


def test_every_extra_of_another_project_is_tested_in_an_environment_of_its_own() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    lists = {file.parent.name: file for file in (ROOT / "tests" / "peers").glob("*/constraints.txt")}
    for name, file in lists.items():
        pinned = dict(line.split("==") for line in file.read_text().splitlines() if "==" in line)
        if name in NO_EXTRA:
            assert name.replace("_", "-") in pinned
            continue
        for wanted in map(Requirement, extras[name.replace("_", "-")]):
            assert wanted.specifier.contains(pinned[wanted.name]), f"{file}: {wanted}"
    assert set(lists) - NO_EXTRA >= {
        "mcp",
        "openenv",
        "trackio",
        "trl",
        "verifiers",
        "verifiers_taskset",
        "wandb",
    }


@pytest.mark.parametrize("name", ["Procfile", "Procfile.vllm"])
def test_the_packaged_procfile_is_the_one_of_the_repository(name: str) -> None:
    packaged = ROOT / "app" / "system" / "procfiles" / name
    assert packaged.read_bytes() == (ROOT / name).read_bytes(), f"cp {name} {packaged.relative_to(ROOT)}"


@pytest.mark.parametrize("folder", FOLDERS)
def test_no_folder_is_importable_by_its_bare_name(folder: str) -> None:
    """One class would become two: `core.task.Task` and `hindcast.core.task.Task`."""
    found = importlib.util.find_spec(folder)  # tests/golden/events is one, of data alone
    assert found is None or str(ROOT / folder) not in (found.submodule_search_locations or ())
    worker = f"import importlib.util, sys; sys.exit(importlib.util.find_spec({folder!r}) is not None)"
    assert subprocess.run([sys.executable, "-P", "-c", worker], cwd=ROOT, check=False).returncode == 0


def test_every_process_that_is_started_keeps_the_current_folder_off_its_path() -> None:
    for line in (ROOT / "Procfile.vllm").read_text().splitlines():
        assert " -P -m hindcast." in line


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from a copy, so that nothing is written into the repository."""
    source = tmp_path_factory.mktemp("source")
    for file in [*product_files(), "pyproject.toml", "README.md"]:
        (source / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / file, source / file)
    into = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", into, source]
    subprocess.run(command, check=True, timeout=BUILT_S)
    (found,) = into.glob("*.whl")
    return found


@pytest.mark.slow
def test_the_wheel_holds_every_file_of_the_product(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        held = {name for name in archive.namelist() if ".dist-info/" not in name}
    scripts = {installed_name(file) for file in product_files() if file.endswith(".sh")}
    assert (
        held - {"hindcast/app/api/__init__.py"}
        == {installed_name(file) for file in product_files()} - scripts
    )


@pytest.mark.slow
def test_a_wheel_runs_from_a_folder_with_packages_of_the_same_names(wheel: Path, tmp_path: Path) -> None:
    """`start`, `verify`, `doctor` of an installed Hindcast, where `app/` and `core/` are somebody else's."""
    environment = tmp_path / "environment"
    venv.create(environment, with_pip=False, symlinks=True)
    (site,) = environment.glob("lib/python*/site-packages")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    dependencies = [path for path in sys.path if path.endswith("site-packages")]
    (site / "dependencies.pth").write_text("\n".join(dependencies) + "\n")
    work = tmp_path / "work"
    for folder in ("app", "core"):
        (work / folder).mkdir(parents=True)
        (work / folder / "__init__.py").write_text("raise ImportError('another project')\n")
    programs = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    variables = {**os.environ, "HINDCAST_HOME": str(tmp_path / "home"), "PATH": programs}
    variables.pop("PYTHONPATH", None)
    python = environment / "bin" / "python"

    def hindcast(*arguments: str) -> str:
        code = "from hindcast.app.cli import main; main()"
        done = subprocess.run(
            [python, "-P", "-c", code, *arguments],
            cwd=work,
            env=variables,
            capture_output=True,
            text=True,
            timeout=RUN_S,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    where = "import hindcast.core, sys; sys.stdout.write(hindcast.core.__file__)"
    imported = subprocess.run([python, "-P", "-c", where], capture_output=True, text=True, check=True).stdout
    assert Path(imported).is_relative_to(site)
    assert hindcast("--version").startswith("hindcast ")
    hindcast("start", "--until", "updates=1")
    assert "identical" in hindcast("verify")
    hindcast("doctor")
