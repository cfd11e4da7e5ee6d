"""What a process loads before it does anything: each role and command takes only what it uses.

Eight processes start with every run, and a command as often as somebody asks something.
"""

import os
import subprocess
import sys

import pytest

from hindcast.app.cli import COMMANDS, SUMMARY
from processes.system import ROOT

HEAVY = {"sqlalchemy", "torch", "transformers", "playwright", "openai", "pyarrow", "starlette", "textual"}
"""Libraries of one role or one question each: a fifth of a second or more to load."""


@pytest.mark.parametrize(
    "modules",
    [
        "hindcast.app.system.worker, hindcast.app.bootstrap",
        "hindcast.app.system.bus",
        "hindcast.app.cli.start, hindcast.app.cli.log, hindcast.app.cli.verify, hindcast.app.cli.fork",
    ],
)
def test_nothing_heavy_is_loaded_before_it_is_used(modules: str) -> None:
    code = f"import sys, {modules}; print(*({HEAVY!r} & set(sys.modules)))"
    loaded = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert loaded.stdout.split() == []


def test_the_list_of_commands_names_each_on_a_line_of_its_own_and_loads_none() -> None:
    code = "import sys, hindcast.app.cli\ntry: hindcast.app.cli.main(['--help'])\nfinally: print('hindcast.app.cli.start' in sys.modules)"
    shown = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env={**os.environ, "COLUMNS": "80"},
        capture_output=True,
        text=True,
        check=True,
    )
    *lines, loaded = shown.stdout.splitlines()
    assert loaded == "False"
    listed = [line.split(maxsplit=1) for line in lines[lines.index("Commands:") + 1 :]]
    assert listed == [[name, command.summary] for name, command in COMMANDS.items()]
    assert all(len(command.summary) <= SUMMARY for command in COMMANDS.values())
