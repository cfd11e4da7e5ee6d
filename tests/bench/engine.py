"""The policy engine of an actor with many contexts, beside transformers' `generate()` for one call after the other.

Same model, prompts, sampling (temperature 1, the whole vocabulary), answer lengths and threads. So that both draw exactly
the answers' lengths, the end token is one that the model never draws. A context asks its next question when its last one
was answered; the browser's time, in which other contexts go on, is left out: it is not the engine's. Ours also returns
log-probabilities and versions, `generate()` tokens alone. Rates are per second of processor time: both compute all the
time, and a machine that does other work beside them changes nothing.
"""

import asyncio
import json
import time
from collections.abc import Sequence
from pathlib import Path
from shutil import copyfile
from typing import NamedTuple

import torch

from bench.engine_calls import Call, Episode
from hindcast.actors.engines.base import Generation, PolicyEngine
from hindcast.actors.engines.in_process import InProcessEngine
from hindcast.core.domain.sampling import Sampling
from hindcast.core.models.model_files import GENERATION
from hindcast.core.models.policy import LoadedPolicy, load_policy
from hindcast.core.models.tokenizer import load_tokenizer
from hindcast.core.prompts.chat_frame import end_of_answer
from hindcast.core.settings.schema import PolicySettings

TOKENIZER_CONFIG = "tokenizer_config.json"
CONFIG = "config.json"
TEMPLATE = "chat_template.jinja"
TEMPERATURE = 1.0


class Asked(NamedTuple):
    """A question and what came of it."""

    call: Call
    answer: Generation


def write_endless(policy: Path, folder: Path) -> Path:
    """A copy of a policy that never ends an answer: its end token is the padding, which it has never seen.

    All that says otherwise is overruled: both configurations, and the template, whose turns end with the padding, too.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for path in policy.iterdir():
        copyfile(path, folder / path.name)
    tokenizer = load_tokenizer(policy)
    end = tokenizer.convert_ids_to_tokens(end_of_answer(tokenizer))
    pad = tokenizer.pad_token
    config = json.loads((policy / TOKENIZER_CONFIG).read_text())
    template = tokenizer.chat_template.replace(end, pad)
    (folder / TEMPLATE).unlink(missing_ok=True)  # where there is one, it is read in place of what stands here
    (folder / TOKENIZER_CONFIG).write_text(json.dumps(config | {"eos_token": pad, "chat_template": template}))
    for name in (CONFIG, GENERATION):
        if (policy / name).is_file():
            content = json.loads((policy / name).read_text())
            (folder / name).write_text(json.dumps(content | {"eos_token_id": tokenizer.pad_token_id}))
    return folder


async def ask_all(engine: PolicyEngine, episodes: Sequence[Episode], *, contexts: int) -> list[Asked]:
    """Every call once, `contexts` episodes at a time; each call has a seed of its own, the same each time."""
    found: list[Asked] = []
    waiting = iter(enumerate(episodes))

    async def context() -> None:
        for number, episode in waiting:
            for step, call in enumerate(episode):
                sampling = Sampling(
                    temperature=TEMPERATURE, max_tokens=call.answer_tokens, seed=1000 * number + step
                )
                found.append(Asked(call, await engine.generate(call.prompt_ids, sampling)))

    async with asyncio.TaskGroup() as tasks:
        for _ in range(contexts):
            tasks.create_task(context())
    return found


async def warm_up(engine: PolicyEngine) -> None:
    """One short answer, for whatever an engine does but once."""
    await engine.generate([5], Sampling(temperature=TEMPERATURE, max_tokens=2, seed=0))


def tokens_of(asked: Sequence[Asked]) -> int:
    """How many were drawn."""
    return sum(len(one.answer.token_ids) for one in asked)


class Answering:
    """Both ways of answering the same calls."""

    def __init__(self, folder: Path, *, contexts: int, threads: int) -> None:
        """`folder`: as `write_endless` makes it."""
        self._folder = folder
        self._contexts = contexts
        self._settings = PolicySettings(threads=threads)
        self._policy: LoadedPolicy = load_policy(folder)
        self.drawn = {"ours": 0, "generate": 0}
        """Tokens so far."""

    async def ours(self, episodes: Sequence[Episode]) -> float:
        """Output tokens per second of processor time; `contexts` episodes at a time, a fresh engine."""
        async with InProcessEngine(self._folder, self._settings) as engine:
            await warm_up(engine)
            began = time.process_time()
            tokens = tokens_of(await ask_all(engine, episodes, contexts=self._contexts))
            seconds = time.process_time() - began
        self.drawn["ours"] += tokens
        return tokens / seconds

    async def one_at_a_time(self, episodes: Sequence[Episode]) -> float:
        """Output tokens per second of processor time of `generate()`."""
        torch.set_num_threads(self._settings.threads)
        self._generate((5,), 2)
        began = time.process_time()
        tokens = sum(
            self._generate(call.prompt_ids, call.answer_tokens) for episode in episodes for call in episode
        )
        seconds = time.process_time() - began
        self.drawn["generate"] += tokens
        return tokens / seconds

    def _generate(self, prompt_ids: tuple[int, ...], answer_tokens: int) -> int:
        with torch.inference_mode():
            output = self._policy.model.generate(
                torch.tensor([prompt_ids]),
                attention_mask=torch.ones(1, len(prompt_ids), dtype=torch.long),
                max_new_tokens=answer_tokens,
                do_sample=True,
                temperature=TEMPERATURE,
                top_k=0,
                eos_token_id=self._policy.tokenizer.eos_token_id,
                pad_token_id=self._policy.tokenizer.pad_token_id,
            )
        return int(output.shape[1]) - len(prompt_ids)
