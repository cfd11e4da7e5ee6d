"""Tests with other projects' real packages: asked for by name (`make test-peers`), else not even collected."""

from pathlib import Path

import pytest


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    return None if config.getoption("markexpr") == "peers" else True
