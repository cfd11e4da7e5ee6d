"""Whatever happens between writers, broker and consumers: view == fold(log), nothing acknowledged is lost, nothing is twice.

A Hypothesis state machine over the in-memory log with a lossy link: publish, commit, rival decisions, crashed and
restarted producers, facts written by an older Hindcast, an unreachable broker, a full log, consumers killed before and
after their effect, dropped and folded again, or asked as of an earlier position; an archiver killed in the midst of a
frame, a broker that loses its end and is repaired from the archive, imports of it, forks at any position and forks of
forks. Time is virtual: bounds of seconds pass at once, and a hang is an error.
"""

import pytest
from hypothesis import settings as hypothesis_settings

from stories.log_machine import LogMachine

pytestmark = pytest.mark.broker

LogMachine.TestCase.settings = hypothesis_settings(max_examples=150, stateful_step_count=30, deadline=None)
TestLogMachine = LogMachine.TestCase
