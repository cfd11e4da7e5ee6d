"""The Procfiles, as the shell that honcho starts reads them."""

import os
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("name", ["Procfile", "Procfile.vllm"])
def test_every_line_starts_its_role_also_from_a_folder_with_a_space(name: str, tmp_path: Path) -> None:
    python = tmp_path / "my runs" / "python"
    python.parent.mkdir()
    python.write_text('#!/bin/sh\necho "$@"\n')
    python.chmod(0o755)
    for line in (ROOT / name).read_text().splitlines():
        found = re.fullmatch(r"(\w+): (.+)", line)
        assert found is not None, line
        role, command = found.groups()
        said = subprocess.run(
            command,
            shell=True,
            env={**os.environ, "PYTHON": str(python)},
            capture_output=True,
            text=True,
            timeout=120,
            check=True,
        )
        assert said.stdout == f"-P -m hindcast.app.system {role}\n"
