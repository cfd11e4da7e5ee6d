"""A single-turn environment of the `verifiers` package: a list of things, one of which is to be picked by its number.

    hindcast start --environment verifiers:pick-item --set actors.agent_python=PYTHON --until updates=20

A row is a list of five things and the name of one. An answer is right if it clicks the thing's number, in the form of
Hindcast's shipped policy: do(action="Click", element="3"). That policy reads pages whose elements have a kind, such as
"button clock [3]"; in this list they have none, and it picks the right one in less than half of the rows.
"""

import re
from random import Random
from typing import Any

import verifiers as vf
from datasets import Dataset

THINGS = ("lamp", "vase", "chair", "mug", "clock", "book", "bag", "scarf", "towel", "chain", "pen", "bottle")
CLICK = re.compile(r'Click", element="(\d+)"')


def row(seed: int) -> dict[str, str]:
    """The question of a seed, and the number that answers it."""
    chance = Random(seed)
    shown = chance.sample(THINGS, 5)
    number = chance.randint(1, 5)
    page = "\n".join(["page", *(f"{thing} [{place}]" for place, thing in enumerate(shown, 1))])
    asked = f"Task Instruction: Pick the {shown[number - 1]}."
    return {"question": f"{asked}\n\nRound 0\n\n{page}", "answer": str(number)}


def picked(completion: Any, answer: str, **_: Any) -> float:
    """1 if the answer clicks the right number."""
    found = CLICK.search(completion[-1]["content"] or "")
    return float(found is not None and found[1] == answer)


def load_environment(rows: int = 500, eval_rows: int = 200) -> vf.Environment:
    """The environment; the rows for evaluation are others than those for training."""
    return vf.SingleTurnEnv(
        dataset=Dataset.from_list([row(seed) for seed in range(rows)]),
        eval_dataset=Dataset.from_list([row(1_000_000 + seed) for seed in range(eval_rows)]),
        rubric=vf.Rubric(funcs=[picked]),
    )
