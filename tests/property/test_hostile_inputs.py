"""No input of a user's ends in a traceback or a hang: the whole command line on valid inputs with few changes.

Each case runs `hindcast` within this process, from its arguments to its exit code; only the system that `start` would begin
is left out. What a start accepts must leave a home that later commands can read.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings

import hindcast.app.cli.start
from hindcast.app.system.start import Summary
from processes.command_running import Ran, run_command
from stories.hostile_inputs import CASES, RUN, Case, model_folders

EXAMPLES = int(os.environ.get("HINDCAST_FUZZ_EXAMPLES", "300"))
"""A nightly run takes 10 000."""
MODELS = EXAMPLES // 30
"""Of these on folders of models, which take a second each."""
PROCESSES = 3
"""Of the first cases that are also run as a process of their own."""
CODES = {0, 1, 2, 3, 4}
QUIET = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.function_scoped_fixture]


@pytest.fixture(autouse=True)
def _nothing_is_started(monkeypatch: pytest.MonkeyPatch) -> None:
    async def accepted(*_: object, **__: object) -> Summary:
        return Summary(run=RUN, updates=0, episodes=0, demonstrations=0, events=0, wall_s=0)

    monkeypatch.setattr(hindcast.app.cli.start, "run_system", accepted)
    for name in [name for name in os.environ if name.startswith("HINDCAST_")]:
        monkeypatch.delenv(name)


def environment_of(case: Case, folder: Path) -> dict[str, str]:
    return {"HINDCAST_HOME": str(folder / "home"), "COLUMNS": "100", **case.environment}


def require_worded(case: Case, ran: Ran) -> None:
    assert not ran.fault, f"{case.arguments} {case.environment}\n{ran.fault}"
    assert ran.code in CODES, f"{case.arguments}: exit code {ran.code}"
    assert "Traceback" not in ran.err
    if ran.code:
        assert ran.err.strip() or ran.out.strip(), f"{case.arguments}: exit code {ran.code} and not a word"


def try_case(case: Case) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        case.lay_out(folder)
        environment = environment_of(case, folder)
        ran = run_command(case.arguments, folder=folder, environment=environment)
        require_worded(case, ran)
        if case.starts and ran.code == 0:
            again = {"HINDCAST_HOME": environment["HINDCAST_HOME"]}
            for command in (("config", "show", RUN), ("run", "list")):
                read = run_command(command, folder=folder, environment=again)
                require_worded(case, read)
                assert read.code == 0, f"{case.arguments} left a home that cannot be read: {read.err}"


def can_be_a_process(case: Case) -> bool:
    """Whether a system can pass the arguments on, and nothing is started: this process alone leaves that out."""
    try:
        words = [os.fsencode(one) for one in (*case.arguments, *case.environment, *case.environment.values())]
    except UnicodeEncodeError:
        return False
    return not case.starts and not any(b"\0" in one for one in words)


@settings(max_examples=EXAMPLES - MODELS, phases=[Phase.generate, Phase.shrink], suppress_health_check=QUIET)
@given(case=CASES)
def test_every_input_is_accepted_or_refused_in_words(case: Case) -> None:
    try_case(case)


@settings(max_examples=MODELS, phases=[Phase.generate, Phase.shrink], suppress_health_check=QUIET)
@given(case=model_folders())
def test_every_model_folder_is_accepted_or_refused_in_words(case: Case) -> None:
    try_case(case)


@settings(max_examples=PROCESSES, phases=[Phase.generate], suppress_health_check=QUIET)
@given(case=CASES.filter(can_be_a_process))
def test_a_process_of_its_own_ends_as_it_does_within_this_one(case: Case) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        case.lay_out(folder)
        environment = environment_of(case, folder)
        here = run_command(case.arguments, folder=folder, environment=environment)
        code = "import sys; from hindcast.app.cli import main; main(sys.argv[1:])"
        ended = subprocess.run(
            [
                sys.executable,
                "-c",
                code,
                *(os.fsencode(one) if one.isascii() else one for one in case.arguments),
            ],
            cwd=folder,
            env={**os.environ, **environment, "PYTHONPATH": str(Path(__file__).parents[2])},
            capture_output=True,
            stdin=subprocess.DEVNULL,
            timeout=120,
            check=False,
        )
        assert b"Traceback" not in ended.stderr, ended.stderr.decode(errors="replace")
        assert ended.returncode == here.code
