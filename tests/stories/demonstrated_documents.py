"""Documents of demonstrations as somebody else's tool may write them: small pages, every kind of end."""

from typing import Any


def page(*texts: str, at: str = "start") -> dict[str, Any]:
    """A page with a button for each text, numbered from 1."""
    nodes = [
        {"kind": "button", "tag": "button", "text": text, "id": number}
        for number, text in enumerate(texts, 1)
    ]
    return {"url": f"http://127.0.0.1/{at}", "title": "A page", "nodes": nodes}


def clicks(seed: int, *, thought: str = "") -> dict[str, Any]:
    """Two clicks, after which the page ends the episode; a success by MiniWoB++'s rule."""
    step = {"thought": thought} if thought else {}
    return {
        "format": "hindcast-episode/1",
        "task": {
            "environment": "miniwob",
            "family": "click-button-sequence",
            "seed": seed,
            "instruction": "",
            "goal": {},
            "max_steps": 5,
        },
        "instruction": f"Click button ONE, then click button TWO ({seed}).",
        "steps": [
            step | {"page": page("ONE", "TWO"), "action": {"name": "Click", "element": 1}},
            step | {"page": page("ONE", "TWO", at="one"), "action": {"name": "Click", "element": 2}},
        ],
        "reason": "done",
        "evidence": {
            "answer": None,
            "final_url": "http://127.0.0.1/two",
            "probes": {"raw_reward": 1.0, "done": True, "reason": None},
        },
        "final_page": page(at="two"),
    }


def says(seed: int) -> dict[str, Any]:
    """A text typed, then an answer given; no success."""
    return clicks(seed) | {
        "steps": [
            {
                "page": page("name"),
                "action": {"name": "Type", "element": 1, "argument": 'A "quoted" \\ näme\nof two lines'},
                "result": "not_actionable",
                "detail": "the element is hidden",
            },
            {
                "page": page("name"),
                "action": {"name": "exit", "argument": "42"},
                "result": "exit",
                "answer": 'exit(message="42")',
            },
        ],
        "reason": "exit",
        "evidence": {"answer": "42", "final_url": "", "probes": {"raw_reward": 0.0, "done": True}},
        "final_page": page("name"),
    }
