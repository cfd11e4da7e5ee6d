"""What a process loads before it does anything: each role and command takes only what it uses.

Eight processes start with every run, and a command as often as somebody asks something.
"""

import subprocess
import sys

import pytest
from system import ROOT

HEAVY = {"sqlalchemy", "torch", "transformers", "playwright", "openai", "pyarrow", "starlette", "textual"}
"""Libraries of one role or one question each: a fifth of a second or more to load."""


@pytest.mark.parametrize(
    "modules",
    ["app.worker, app.bootstrap", "app.bus", "app.cli.start, app.cli.log, app.cli.verify, app.cli.fork"],
)
def test_nothing_heavy_is_loaded_before_it_is_used(modules: str) -> None:
    code = f"import sys, {modules}; print(*({HEAVY!r} & set(sys.modules)))"
    loaded = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert loaded.stdout.split() == []
