"""A taskset of `verifiers` 0.4 as tasks here."""

import os
import sys
from pathlib import Path

import pytest

from stories.played_environments import EPISODES, evaluated

pytestmark = [pytest.mark.peers, pytest.mark.timeout(600)]

TASKSET = """
from collections.abc import Iterable

import verifiers.v1 as vf

class Data(vf.TaskData):
    worth: float

class Number(vf.Task[Data, vf.State, vf.TaskConfig]):
    @vf.reward
    async def graded(self, trace: vf.Trace) -> float:
        assert trace.last_reply
        return self.data.worth

class Numbers(vf.Taskset[Number, vf.TasksetConfig]):
    def load(self) -> Iterable[Number]:
        for number in range(20):
            yield Number(Data(prompt=f"Number {number}", worth=1.0 if number % 2 else 0.25), self.config.task)

__all__ = ["Numbers"]
"""


def test_a_taskset_gives_held_out_tasks_by_seed_and_the_task_s_own_reward(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "number_tasks.py").write_text(TASKSET)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    uv = str(Path(sys.executable).parent)  # verifiers starts its harness by uv
    monkeypatch.setenv("PATH", os.pathsep.join([uv, os.environ["PATH"]]))
    found = evaluated(tmp_path, "verifiers_taskset", "number_tasks", wait_s=300.0)
    assert (found["episodes"], found["lost"]) == (EPISODES, 0), found["lost_because"]
    assert (found["rate"], found["mean_reward"], found["mean_steps"]) == (0.5, 0.625, 1.0)
