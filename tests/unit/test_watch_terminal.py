"""`hindcast watch` on a terminal of 80 by 24: textual's own pilot presses keys on a run whose read model is real, and a real
pseudo-terminal shows what comes out without colour."""

import fcntl
import html
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import msgspec
import pytest
import pytest_asyncio
from textual.pilot import Pilot

from hindcast.app.runs.runs import RunHandle
from hindcast.app.watch.follower import WatchReadModel
from hindcast.app.watch.rendering import sparkline
from hindcast.app.watch.terminal import (
    EpisodeScreen,
    EpisodesScreen,
    OverviewScreen,
    Rows,
    StepScreen,
    WatchTerminal,
)
from hindcast.events.catalogue import EpisodeStarted, RunForked
from hindcast.storage.readmodel.projector import fill
from stories.recorded_home import make_home, tell
from stories.synthetic_run import Told, a_run

pytestmark = pytest.mark.asyncio(loop_scope="module")

ROOT = Path(__file__).parents[2]
WAIT_S = 120.0
HOSTILE = "Buy a [bold]tea[/bold] \x1b]0;owned\x07\x1b[2J now"
CELL, LINE = 12.2, 24.4
"""Pixels of a character in textual's pictures."""


def hostile(told: Told) -> Told:
    if isinstance(told.fact, EpisodeStarted):
        return told._replace(fact=msgspec.structs.replace(told.fact, instruction=HOSTILE))
    return told


FACTS = [hostile(told) for told in a_run(1, groups=8) if not isinstance(told.fact, RunForked)]
EARLIER = next(
    place for place in range(len(FACTS) - 62, len(FACTS)) if isinstance(FACTS[place].fact, EpisodeStarted)
)


async def project(handle: RunHandle) -> None:
    """Bring the read model to the end of the log."""
    model = handle.read_model()
    model.prepare()
    async with handle.connect_log() as log:
        await fill(log, model)
    model.close()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def handle(tmp_path_factory: pytest.TempPathFactory) -> RunHandle:
    made = await make_home(tmp_path_factory.mktemp("watch") / "home", FACTS[:EARLIER])
    await project(made)
    return made


@pytest_asyncio.fixture(loop_scope="module")
async def terminal(handle: RunHandle) -> AsyncIterator[tuple[WatchTerminal, Pilot[Exception | None]]]:
    watching = WatchTerminal(handle, interval_s=0.1)
    async with watching.run_test(size=(80, 24)) as pilot:
        yield watching, pilot
    assert watching.return_value is None, "nothing went wrong behind the screens"


def shown(watching: WatchTerminal) -> list[str]:
    """What stands on the screen, line by line."""
    picture = watching.export_screenshot(simplify=True)
    lines = [[" "] * 80 for _ in range(24)]
    for x, y, text in re.findall(
        r'<text class="[^"]*-r\d+" x="([\d.]+)" y="([\d.]+)"[^>]*>(.*?)</text>', picture
    ):
        for place, letter in enumerate(html.unescape(text), round(float(x) / CELL)):
            if place < 80:
                lines[int(float(y) // LINE)][place] = " " if letter == "\xa0" else letter
    return ["".join(line).rstrip() for line in lines]


async def until(
    pilot: Pilot[Exception | None], watching: WatchTerminal, seen: Callable[[list[str]], bool]
) -> list[str]:
    """The screen once it shows what is looked for."""
    end = time.monotonic() + WAIT_S
    while time.monotonic() < end:
        lines = shown(watching)
        if seen(lines):
            return lines
        await pilot.pause(0.05)
    raise AssertionError("\n".join(shown(watching)))


def words(*wanted: str) -> Callable[[list[str]], bool]:
    return lambda lines: all(any(one in line for line in lines) for one in wanted)


async def test_the_overview_says_the_whole_run_in_one_look(
    handle: RunHandle, terminal: tuple[WatchTerminal, Pilot[Exception | None]]
) -> None:
    watching, pilot = terminal
    lines = await until(pilot, watching, words("projector", "success  ", "▁ 0 % to █ 100 %"))
    model = WatchReadModel(handle)
    curve = await model.curve()
    model.close()
    drawn = sparkline(curve, width=40)
    settled = [re.sub(r"\d+\.\d s", "TIME", line) for line in lines]
    assert watching.view is not None
    assert settled[0] == f"run tale · position {EARLIER} · policy {watching.view.learner.policy_version}"
    assert settled[1] == "nothing runs. Run: hindcast start tale"
    assert settled[3] == f"success   {drawn}  policies {curve[0][0]} to {curve[-1][0]}, ▁ 0 % to █ 100 %"
    assert any(re.match(r"learner +\d+ updates, .*staleness", line) for line in settled)
    assert any(re.match(r"projector +stopped +TIME +0 +0", line) for line in settled)
    assert settled[23].startswith(" q leave  j down  k up  [ page before  ] next page")


async def test_keys_lead_to_an_episode_to_a_step_and_back(
    terminal: tuple[WatchTerminal, Pilot[Exception | None]],
) -> None:
    watching, pilot = terminal
    await pilot.press("right_square_bracket")
    await until(pilot, watching, words("latest episodes"))
    assert isinstance(watching.screen, EpisodesScreen)
    rows = watching.screen.query_one(Rows)
    model = watching.model
    listed = [one.episode for one in await model.episodes(outcome=None, limit=50)]
    await pilot.press("j", "j", "k")
    assert rows.chosen == listed[1]
    details = [await model.episode(one) for one in listed]
    detail = next(one for one in details if one.steps)
    played = detail.episode.episode
    while rows.chosen != played:
        await pilot.press("j" if listed.index(str(rows.chosen)) < listed.index(played) else "k")
    await pilot.press("o")
    await until(pilot, watching, words(played, "action"))
    assert isinstance(watching.screen, EpisodeScreen)
    lines = await until(
        pilot, watching, lambda seen: sum("127.0.0.1" in line for line in seen) == len(detail.steps)
    )
    assert "Buy a [bold]tea[/bold] ␛]0;owned␇␛[2J now" in lines
    await pilot.press("o")
    await until(pilot, watching, words(f"step 0 of {played}", "ANSWER", "PAGE"))
    assert isinstance(watching.screen, StepScreen)
    await pilot.press("escape", "escape", "left_square_bracket")
    assert isinstance(watching.screen, OverviewScreen)


async def test_episodes_are_filtered_by_outcome(
    terminal: tuple[WatchTerminal, Pilot[Exception | None]],
) -> None:
    watching, pilot = terminal
    await pilot.press("right_square_bracket", "f")
    wanted = [one.episode for one in await watching.model.episodes(outcome="success", limit=50)]
    assert 0 < len(wanted) < 20

    def only_those(lines: list[str]) -> bool:
        return [line.split()[0] for line in lines if line.startswith("ep_")] == wanted

    lines = await until(pilot, watching, only_those)
    assert lines[0].endswith(f"{len(wanted)} latest episodes that came out as success")
    assert sum(" success " in line for line in lines[2:]) == len(wanted)


async def test_what_is_recorded_meanwhile_shows_by_itself_and_the_chosen_row_stays(
    handle: RunHandle, terminal: tuple[WatchTerminal, Pilot[Exception | None]]
) -> None:
    watching, pilot = terminal
    await until(pilot, watching, words(f"position {EARLIER}"))
    await pilot.press("right_square_bracket")
    await until(pilot, watching, words("latest episodes"))
    await pilot.press("j")
    rows = watching.screen.query_one(Rows)
    chosen, before = (
        rows.chosen,
        {one.episode for one in await watching.model.episodes(outcome=None, limit=50)},
    )
    await tell(handle, FACTS[EARLIER:])
    await project(handle)
    new = {one.episode for one in await watching.model.episodes(outcome=None, limit=50)} - before
    assert new
    await until(pilot, watching, words(f"{len(before | new)} latest episodes"))
    assert rows.chosen == chosen
    await pilot.press("left_square_bracket")
    await until(pilot, watching, words(f"position {len(FACTS)}"))


def on_a_terminal(handle: RunHandle, *, until_seen: str, keys: bytes) -> tuple[int, bytes]:
    """`hindcast watch` in a pseudo-terminal without colour: exit code and everything that was drawn."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    environment = {
        **{name: value for name, value in os.environ.items() if name != "COLORTERM"},
        "HINDCAST_HOME": str(handle.home),
        "TERM": "xterm-256color",
        "NO_COLOR": "1",
    }
    program = [sys.executable, "-c", "from hindcast.app.cli import main; main()", "watch"]
    running = subprocess.Popen(
        program, cwd=ROOT, stdin=slave, stdout=slave, stderr=slave, env=environment, start_new_session=True
    )
    os.close(slave)
    drawn, pressed, end = b"", False, time.monotonic() + WAIT_S
    try:
        while time.monotonic() < end:
            if select.select([master], [], [], 0.2)[0]:
                try:
                    drawn += os.read(master, 65536)
                except OSError:  # the other end is closed
                    break
            if not pressed and until_seen.encode() in drawn:
                os.write(master, keys)
                pressed = True
            if running.poll() is not None and not select.select([master], [], [], 0)[0]:
                break
        return running.wait(WAIT_S), drawn
    finally:
        running.kill()
        running.wait()
        os.close(master)


@pytest.mark.process
async def test_a_terminal_without_colour_gets_none_and_q_leaves(handle: RunHandle) -> None:
    status, drawn = on_a_terminal(handle, until_seen="projector", keys=b"q")
    assert status == 0, drawn[-2000:]
    styles = {part for run in re.findall(rb"\x1b\[([\d;]*)m", drawn) for part in run.split(b";")}
    colours = {
        part for part in styles if part.isdigit() and (30 <= int(part) <= 49 or 90 <= int(part) <= 107)
    }
    assert not colours - {b"39", b"49"}
    assert b"hindcast start tale" in drawn
