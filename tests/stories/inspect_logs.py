"""Logs of Inspect as inspect-ai writes them, made from its documented schema."""

import json
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from zipfile import ZIP_DEFLATED, ZIP_STORED, ZipFile

import pyarrow

CALL = {"id": "call_1", "function": "add", "arguments": {"x": 1, "y": 1}, "type": "function"}
HEADER = {
    "version": 2,
    "status": "success",
    "eval": {
        "eval_id": "e1",
        "run_id": "r1",
        "created": "2026-01-01T00:00:00+00:00",
        "task": "school/sums",
        "task_id": "t1",
        "model": "theirs/model",
        "dataset": {"samples": 2, "sample_ids": ["a", 2]},
        "config": {"epochs": 1},
    },
}


def said(role: str, content: Any, **more: Any) -> dict[str, Any]:
    """A message; answers are the model's unless `source` says otherwise."""
    return {"role": role, "content": content, "source": "generate" if role == "assistant" else "input"} | more


def sample(name: int | str, *messages: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    """A sample that asks for a sum."""
    return {
        "id": name,
        "epoch": 1,
        "input": "What is 1+1?",
        "target": "2",
        "messages": list(messages) or [said("user", "What is 1+1?"), said("assistant", "2")],
        "output": {"model": "theirs/model", "choices": [], "completion": "2"},
        "scores": {"includes": {"value": "C", "answer": "2", "explanation": "found"}},
        "total_time": 1.5,
    } | more


WITH_TOOL = sample(
    "a",
    said("system", "Use the tool."),
    said("user", "What is 1+1?"),
    said("assistant", "I add.", tool_calls=[CALL]),
    {"role": "tool", "content": "2", "tool_call_id": "call_1", "function": "add"},
    said("assistant", [{"type": "reasoning", "reasoning": "easy"}, {"type": "text", "text": "It is 2"}]),
    scores={"includes": {"value": "C"}, "strict": {"value": "I"}},
)


def write_log(file: Path, *samples: Any, header: Any = HEADER, zstandard: bool = False) -> Path:
    """Write a log; `zstandard`: compressed as inspect-ai does."""
    parts = {f"samples/{one['id']}_epoch_{one['epoch']}.json": one for one in samples} | {
        "header.json": header
    }
    with ZipFile(file, "w", ZIP_STORED if zstandard else ZIP_DEFLATED) as log:
        for name, content in parts.items():
            text = json.dumps(content).encode()
            log.writestr(name, pyarrow.compress(text, codec="zstd", asbytes=True) if zstandard else text)
    if zstandard:
        _name_the_compression(file, [len(json.dumps(content)) for content in parts.values()])
    return file


def _name_the_compression(file: Path, sizes: list[int]) -> None:
    """Set method and size of each entry in the directory of a zip file whose entries are stored already compressed."""
    content, at = bytearray(file.read_bytes()), 0
    for size in sizes:
        at = content.index(b"PK\x01\x02", at)
        struct.pack_into("<H", content, at + 10, 93)
        struct.pack_into("<I", content, at + 24, size)
        at += 4
    file.write_bytes(content)
