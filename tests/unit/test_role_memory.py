"""What judge and relabeler remember of the log, where it is read no further."""

import pytest

from fakes.virtual_time import clock_s, run_virtually
from hindcast.actors.judges.role import TaskMemory
from hindcast.core.errors import BrokerUnreachable
from hindcast.events.log.memory import MemoryLog


def test_a_log_that_is_read_no_further_is_said_with_where_it_stands_and_how_far_it_goes() -> None:
    async def ask() -> float:
        began = clock_s()
        memory = TaskMemory(MemoryLog("r", clock=clock_s))
        expected = "known up to position 0, and no event arrived for 5 s .* reaches 3"
        with pytest.raises(BrokerUnreachable, match=expected):
            await memory.find("task", known_before=3, stalled_s=5)
        return clock_s() - began

    assert run_virtually(ask()) == pytest.approx(5, abs=0.1)


def test_what_begins_the_log_is_known_without_waiting() -> None:
    memory = TaskMemory(MemoryLog("r", clock=clock_s))
    assert run_virtually(memory.find("task", known_before=1, stalled_s=5)) is None
