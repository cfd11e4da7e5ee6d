"""Runs a command line within this process and says what became of it: its exit code and words, a traceback, or a hang."""

import asyncio
import contextlib
import io
import os
import signal
import traceback
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import NoReturn

import msgspec
import structlog

from hindcast.app.cli import main

HANG_S = 90.0
"""A bound that only a hang reaches on a busy machine: no input of a test takes more than a few seconds."""


class Ran(msgspec.Struct, frozen=True, kw_only=True):
    """How a command ended."""

    code: int | None
    """None: it did not end by an exit code."""
    out: str
    err: str
    fault: str = ""
    """Traceback of what was raised past the command line, or that it did not come back."""


class _Hang(BaseException):
    """A command did not come back."""


@contextlib.contextmanager
def _bounded() -> Iterator[None]:
    def stop(_number: int, _frame: FrameType | None) -> NoReturn:
        raise _Hang

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, HANG_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@contextlib.contextmanager
def _in_folder(folder: Path, environment: Mapping[str, str]) -> Iterator[None]:
    before, was = dict(os.environ), Path.cwd()
    os.environ.update(environment)
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(was)
        os.environ.clear()
        os.environ.update(before)


def run_command(arguments: Sequence[str], *, folder: Path, environment: Mapping[str, str]) -> Ran:
    """Run `hindcast ARGUMENTS` in a folder, with these variables added to the environment."""
    # as in a terminal under UTF-8: what is no text cannot be printed
    out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", errors) for errors in ("strict", "backslashreplace"))
    code, fault = None, ""
    with (
        _in_folder(folder, environment),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        try:
            with _bounded():
                main(list(arguments))
            code = 0
        except SystemExit as ended:
            code = ended.code if isinstance(ended.code, int) else 0 if ended.code is None else 1
        except _Hang:
            fault = f"it did not come back within {HANG_S:g} s"
        except BaseException:
            fault = traceback.format_exc()
        finally:
            structlog.reset_defaults()
            with contextlib.suppress(RuntimeError):
                asyncio.set_event_loop(None)
    words = [stream.detach().getvalue().decode() for stream in (out, err) if not stream.flush()]
    return Ran(code=code, out=words[0], err=words[1], fault=fault)
