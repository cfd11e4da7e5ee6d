"""Tests against a real vLLM server: asked for by name (`make test-vllm`), else not even collected."""

from pathlib import Path

import pytest


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    return None if config.getoption("markexpr") == "vllm" else True
