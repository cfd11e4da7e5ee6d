"""Rollouts as NeMo Gym writes them, made from the schema of nemo-gym 0.4.0."""

import json
from pathlib import Path
from typing import Any


def rollout(
    task: int, member: int, *, reward: float | None = 1.0, stopped: bool = False, asked: Any = "What is 1+1?"
) -> dict[str, Any]:
    """A rollout with a call of a tool and an answer."""
    return {
        "_ng_task_index": task,
        "_ng_rollout_index": member,
        "agent_ref": {"type": "responses_api_agents", "name": "calculator"},
        "responses_create_params": {"input": [{"role": "user", "content": asked, "type": "message"}]},
        "response": {
            "id": "resp_1",
            "error": None,
            "incomplete_details": {"reason": "max_output_tokens"} if stopped else None,
            "output": [
                {"type": "reasoning", "id": "r", "summary": [{"type": "summary_text", "text": "easy"}]},
                {
                    "type": "function_call",
                    "name": "add",
                    "arguments": '{"x": 1}',
                    "call_id": "c1",
                    "prompt_token_ids": [1, 2],
                    "generation_token_ids": [3, 4],
                    "generation_log_probs": [-1.0, -2.0],
                },
                {"type": "function_call_output", "call_id": "c1", "output": "2"},
                {
                    "type": "message",
                    "role": "assistant",
                    "content": [{"type": "output_text", "text": "It is 2", "annotations": []}],
                    "prompt_token_ids": [1, 2, 3, 4, 5],
                    "generation_token_ids": [6],
                    "generation_log_probs": [-0.5],
                },
            ],
        },
        "reward": reward,
        "expected_answer": "2",
    }


def write_rollouts(file: Path, *rows: Any) -> Path:
    """Write rows as JSON lines."""
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file
