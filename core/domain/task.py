"""A task: an instruction in an environment with a seed and a goal, identified by its content."""

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from hindcast.core.ids import digest_hex

FIRST_EVALUATION_SEED = 1_000_000
"""First seed of evaluations; training, demonstrations and tuning use others."""


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """What an episode attempts."""

    environment: str
    """Site on which it runs: `store`, `miniwob`."""
    family: str
    """Kind of task within the environment: `find_price`, `click-button`."""
    seed: int
    """Determines everything random about the task: page content and goal."""
    instruction: str
    """Instruction to the agent; empty if the page itself shows it (MiniWoB++): see `episode.started`."""
    goal: dict[str, Any]
    """What the evaluator checks, in plain values. Never shown to the policy."""
    max_steps: int
    """Number of steps after which the episode is truncated."""

    @property
    def full_family(self) -> str:
        """Environment and family, such as `store/find_price`: the family as settings name it."""
        return f"{self.environment}/{self.family}"

    @property
    def name(self) -> str:
        """Environment, family and seed, such as `store/find_price:3`: the task as settings and evaluations name it."""
        return f"{self.full_family}:{self.seed}"

    @property
    def id(self) -> str:
        """Stable identifier: `task_` and 16 hexadecimal characters of the content digest. Equal tasks have equal ids."""
        body = msgspec.msgpack.encode(self, order="sorted")
        return f"task_{digest_hex(body)[:16]}"


def evaluation_seeds(
    families: Sequence[str], count: int, *, first_seed: int = FIRST_EVALUATION_SEED
) -> Iterator[tuple[str, int]]:
    """Family and seed of each task of an evaluation: the families in turn, with a new seed in each round.

    >>> list(evaluation_seeds(["buy", "find"], 3))
    [('buy', 1000000), ('find', 1000000), ('buy', 1000001)]
    """
    for number in range(count):
        yield families[number % len(families)], first_seed + number // len(families)
