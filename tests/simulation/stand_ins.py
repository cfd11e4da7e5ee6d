"""Where browsers, models and gradients would be: a page, a policy, an evaluator and a trainer of plain arithmetic.

Each can be checked afterwards. The policy's log-probabilities are a function of the weights it really holds, so that a
wrong version stamp shows; evidence holds whether the goal was reached, so that a wrong verdict shows; a trained state
is a chain of digests over everything that went in, so that a batch trained otherwise than planned shows.
"""

import asyncio
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from random import Random
from threading import Event
from typing import Any, ClassVar

import numpy as np

from fakes.virtual_time import TakesTime
from hindcast.actors.engines.base import Constraint, Generation
from hindcast.actors.environments.base import ResetResult, StepOutcome, WindowImage
from hindcast.actors.judges.rules import RuleJudge
from hindcast.core.domain.action import Action, ParseFailure
from hindcast.core.domain.arrays import pack_floats
from hindcast.core.domain.evidence import Evidence, Judgment
from hindcast.core.domain.observation import Node, Observation, Page
from hindcast.core.domain.sampling import Sampling
from hindcast.core.domain.task import Task
from hindcast.core.errors import BrowserUnavailable, EngineFailed, EnvironmentFailed
from hindcast.core.ids import digest_hex
from hindcast.core.rl.combined_state import CRITIC, POLICY, combined
from hindcast.core.settings.schema import LearnerSettings
from hindcast.events.catalogue import BatchPlanned, UpdateApplied, UpdateSkipped
from hindcast.events.catalogue.training import SampleReport
from hindcast.events.envelope import BlobRef
from hindcast.learner.batch_plan import minibatches_of
from hindcast.learner.buffer.records import Batch, Sample
from hindcast.storage.checkpoints import BlobSink, Checkpoint, Counters, Saved, save_checkpoint
from stories.curriculum_story import SOURCES

BASE_WEIGHTS = b"weights of the base policy"
FOR_EVER_S = 1e6
ANSWERS = ('# Element: Buy [1]\ndo(action="Click", element="1")', 'exit(message="done")', "I do not know")


class Mishaps:
    """How often what goes wrong; changed while a simulation runs."""

    def __init__(self, random: Random, probability: float) -> None:
        self.random = random
        self.probability = probability

    def __call__(self, share: float = 1.0) -> bool:
        return self.random.random() < self.probability * share


class LetterTokenizer:
    """One token per character. What `core.prompts.prompt` needs of a tokenizer, and no more."""

    eos_token_id = 0
    added_tokens_decoder: ClassVar[dict[int, Any]] = {}

    def __call__(self, text: str, **_: object) -> dict[str, list[int]]:
        return {"input_ids": [ord(letter) for letter in text]}

    def decode(self, ids: Sequence[int], **_: object) -> str:
        return "".join(chr(token) for token in ids if token != self.eos_token_id)

    def apply_chat_template(self, messages: Sequence[dict[str, str]], **_: object) -> str:
        return "".join(f"<{message['role']}>{message['content']}\n" for message in messages) + "<assistant>"


TOKENIZER = LetterTokenizer()


def logprob_under(weights: bytes) -> float:
    """What a policy of these weights says of any token; exact in 32 bits."""
    return -(1 + int.from_bytes(sha256(weights).digest()[:2], "little")) / 4096


class ScriptedEngine:
    """A `PolicyEngine` that answers at random from a few answers. An answer may begin under one version and end under
    the next."""

    def __init__(self, mishaps: Mishaps) -> None:
        self.version = 0
        self.tokenizer = TOKENIZER
        self._weights = BASE_WEIGHTS
        self._mishaps = mishaps

    async def generate(
        self, prompt_ids: Sequence[int], sampling: Sampling, constraint: Constraint | None = None
    ) -> Generation:
        answer = ANSWERS[sampling.seed % len(ANSWERS)]
        ids = [*(ord(letter) for letter in answer), self.tokenizer.eos_token_id]
        begun, half = self.version, len(ids) // 2
        first = logprob_under(self._weights)
        await asyncio.sleep(0.1)
        if self._mishaps(0.05):
            raise EngineFailed("the engine broke")
        if self._mishaps(0.05):
            await asyncio.sleep(FOR_EVER_S)
        rest = len(ids) - half
        return Generation(
            token_ids=ids,
            logprobs=[first] * half + [logprob_under(self._weights)] * rest,
            versions=[begun] * half + [self.version] * rest,
            finish="stop",
        )

    async def adopt(self, version: int, weights: Path) -> None:
        content = weights.read_bytes()
        await asyncio.sleep(0.3)
        self._weights, self.version = content, version

    async def close(self) -> None:
        return None


PAGES = [
    Observation(
        page=Page(
            url="http://shop/",
            title="Shop",
            nodes=(Node(kind="button", tag="button", text="Buy", id=1),),
            ordinal=ordinal,
        ),
        digest=digest_hex(str(ordinal).encode()),
    )
    for ordinal in range(12)
]


class ScriptedWorld:
    """An `EpisodeWorld` that breaks, hangs, and reaches its goal every second time."""

    def __init__(self, mishaps: Mishaps, *, page: int = 0) -> None:
        """`page`: which of `PAGES` it begins with."""
        self._mishaps = mishaps
        self._page = page
        self._steps = 0
        self.closed = 0

    async def reset(self, task: Task) -> ResetResult:
        await asyncio.sleep(0.2)
        if self._mishaps(0.1):
            raise EnvironmentFailed("the page did not load")
        return ResetResult(instruction=task.instruction, observation=PAGES[self._page])

    async def step(self, action: Action | ParseFailure) -> StepOutcome:
        await asyncio.sleep(0.1)
        if self._mishaps(0.04):
            raise BrowserUnavailable("the browser died")
        if self._mishaps(0.08):
            await asyncio.sleep(FOR_EVER_S)
        self._steps += 1
        failed = isinstance(action, ParseFailure)
        return StepOutcome(
            result="parse_failure" if failed else "ok",
            detail=action.reason if isinstance(action, ParseFailure) else "",
            observation=PAGES[self._page + self._steps],
            done=self._steps >= 2,
            act_ms=1.0,
            observe_ms=1.0,
        )

    async def picture(self) -> WindowImage:
        return WindowImage(missing="a scripted page is not drawn")

    async def finish(self, answer: str | None) -> Evidence:
        trouble = ""
        if self._mishaps(0.3):
            trouble = self._mishaps.random.choice(("raises", "hangs"))
        good = self._mishaps.random.random() < 0.5
        return Evidence(answer=answer, final_url="http://shop/", probes={"good": good, "trouble": trouble})

    async def close(self) -> None:
        self.closed += 1
        await asyncio.sleep(0.1)


class ScriptedHost:
    """Opens scripted worlds."""

    def __init__(self, mishaps: Mishaps) -> None:
        self._mishaps = mishaps
        self.worlds: list[ScriptedWorld] = []

    async def open_world(self, site: object) -> ScriptedWorld:
        if self._mishaps(0.04):
            raise BrowserUnavailable("no browser")
        page = len(self.worlds) % (len(PAGES) - 2)
        self.worlds.append(ScriptedWorld(self._mishaps, page=page))
        return self.worlds[-1]


def demonstrate(task: Task, instruction: str, observation: Observation, earlier: Sequence[Action]) -> Action:
    return Action(name="Click", element=1) if not earlier else Action(name="exit", argument="done")


def evaluate(task: Task, evidence: Evidence) -> Judgment:
    """An evaluator with outages: then it raises, or says nothing for hours."""
    if evidence.probes["trouble"] == "raises":
        raise KeyError("no such probe")
    good = evidence.probes["good"]
    judgment = Judgment(outcome="success" if good else "failure", reward=float(good), reason="the goal")
    if evidence.probes["trouble"] == "hangs":
        raise TakesTime(FOR_EVER_S, judgment)
    return judgment


DEMONSTRATORS = {
    (name, family): demonstrate for name, source in SOURCES.items() for family in source.families()
}
JUDGE = RuleJudge(dict.fromkeys(SOURCES, evaluate))


class DigestTrainer:
    """A `learner.training.Trainer` whose models' states are a digest each: of the state before and all that went into the update."""

    def __init__(
        self,
        folder: Path,
        base: BlobRef,
        *,
        blobs: Any,
        settings: LearnerSettings,
        stop: Event | None = None,
    ) -> None:
        self._base = digest_hex(blobs.get(base))
        self._models = {POLICY: (0, self._base)}
        """Of each model that was trained: updates, digest."""
        self._plan: BatchPlanned | None = None
        self._batch: Batch | None = None

    @property
    def _state(self) -> str:
        return combined({name: digest for name, (_, digest) in self._models.items()})

    def begin(self, plan: BatchPlanned, batch: Batch) -> None:
        self._plan, self._batch = plan, batch
        self._models.setdefault(plan.model, (0, digest_hex(f"{plan.model} {self._base}".encode())))

    def step(self, index: int) -> UpdateApplied | UpdateSkipped:
        plan, batch = self._plan, self._batch
        assert plan is not None
        assert batch is not None
        update, before = self._models[plan.model]
        part = minibatches_of(plan)[index]
        samples = batch.samples[part.first_sample : part.end_sample]
        taken = sha256(before.encode())
        for sample in samples:
            for content in (sample.prompt_ids, sample.action_ids, sample.logprobs, sample.versions):
                taken.update(content)
        if plan.critic_version is not None:
            taken.update(self._models[CRITIC][1].encode())
        advantages = []
        for planned in plan.episodes[part.first_episode : part.end_episode]:
            advantages += [planned.advantage] * planned.samples
            taken.update(planned.kept or b"")
        taken.update(pack_floats(advantages))
        after = taken.hexdigest()
        if int(after[:2], 16) < 24:
            return UpdateSkipped(
                update=update + 1,
                model=plan.model,
                batch=plan.batch,
                minibatch=index,
                reason="the gradient's norm is nan",
                state=before,
            )
        self._models[plan.model] = update + 1, after
        packed = pack_floats(advantages)
        return UpdateApplied(
            update=update + 1,
            model=plan.model,
            batch=plan.batch,
            minibatch=index,
            before=before,
            after=after,
            inputs=after,
            metrics={},
            samples=SampleReport(advantages=packed, weights=packed, ratios=packed, masks=packed),
            duration_ms=0.0,
            cpu_ms=0.0,
        )

    def score(self, samples: Sequence[Sample], *, tokens_per_forward: int) -> list[float]:
        """Between 1 and 3, by the policy of now and the step: some lie in the window, some do not."""
        _, policy = self._models[POLICY]
        return [1 + sha256(policy.encode() + sample.digest).digest()[0] / 128 for sample in samples]

    def weights(self, model: str) -> bytes:
        return f"weights {self._models[model][1] if model in self._models else self._base}".encode()

    def save(self, blobs: BlobSink, *, batch: int, version: int) -> Saved:
        tensors: dict[str, Any] = {
            name: np.frombuffer(bytes.fromhex(digest), dtype=np.uint8)
            for name, (_, digest) in self._models.items()
        }
        updates = {name: update for name, (update, _) in self._models.items()}
        counters = Counters(
            update=updates.pop(POLICY), batch=batch, version=version, state=self._state, beside=updates
        )
        return Saved(save_checkpoint(blobs, tensors, counters), counters)

    def restore(self, checkpoint: Checkpoint) -> None:
        counters, tensors = checkpoint.counters, checkpoint.tensors
        updates = {POLICY: counters.update, **counters.beside}
        self._models = {name: (update, tensors[name].tobytes().hex()) for name, update in updates.items()}
        assert self._state == counters.state


class SlowTrainer(DigestTrainer):
    """The same in a learner's process: an update takes a while, and a kill falls into it."""

    def step(self, index: int) -> UpdateApplied | UpdateSkipped:
        raise TakesTime(0.4, super().step(index))
