"""Types are read by several threads at once, from their first use on."""

import subprocess
import sys

import msgspec
import pytest

from hindcast.core.structs import convert, decode_json, decode_msgpack

SEVERAL_THREADS = """
import sys
from threading import Barrier, Thread

import msgspec
from hindcast.core.structs import convert

sys.setswitchinterval(1e-6)
for number in range(300):
    inner = msgspec.defstruct("Inner", [("a", int, 0), ("b", list[dict[str, int]], msgspec.field(default_factory=list))])
    middle = msgspec.defstruct("Middle", [("inner", inner), ("several", tuple[inner, ...], ())])
    outer = msgspec.defstruct("Outer", [("middle", middle), ("named", dict[str, inner], msgspec.field(default_factory=dict))])
    plain = {"middle": {"inner": {"a": 1}, "several": [{"a": 2}]}, "named": {"k": {"a": 1}}}
    barrier = Barrier(3)
    found = []

    def read():
        barrier.wait()
        found.append(READ(plain, outer).middle.several[0].a)

    threads = [Thread(target=read) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [2, 2, 2], found
"""


def test_threads_may_use_a_type_first_at_the_same_time() -> None:
    """msgspec.convert in place of ours ends this process with a segmentation fault."""
    script = SEVERAL_THREADS.replace("READ", "convert")
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


class Part(msgspec.Struct, frozen=True):
    """A struct."""

    name: str
    size: int = 0


def test_values_are_read_as_msgspec_reads_them() -> None:
    assert convert({"name": "a"}, Part) == Part("a")
    assert convert({"name": "a", "size": "2"}, Part, strict=False) == Part("a", 2)
    assert decode_json(b'[{"name": "a"}]', list[Part]) == [Part("a")]
    assert decode_msgpack(msgspec.msgpack.encode({"name": "a", "size": 1}), Part) == Part("a", 1)
    with pytest.raises(msgspec.ValidationError, match="Expected `int`, got `str`"):
        convert({"name": "a", "size": "2"}, Part)
