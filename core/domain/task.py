"""A task: an instruction in an environment, with a seed and an evaluator. Identified by its content."""

from typing import Any

import msgspec

from hindcast.core.ids import digest_hex


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """What an episode attempts."""

    environment: str
    """Which site it runs on: `store`, `miniwob`."""
    family: str
    """The kind of task within the environment: `find_price`, `click-button`."""
    seed: int
    """Fixes everything random about the task: page content and goal."""
    instruction: str
    """What the agent is told; empty where the page itself tells (MiniWoB++): see `episode.started`."""
    goal: dict[str, Any]
    """What the evaluator checks, in plain values. Never shown to the policy."""
    max_steps: int
    """Steps after which the episode is truncated."""

    @property
    def id(self) -> str:
        """`task_` and 16 hexadecimal characters of the content digest: equal tasks have equal ids everywhere."""
        body = msgspec.msgpack.encode(self, order="sorted")
        return f"task_{digest_hex(body)[:16]}"
