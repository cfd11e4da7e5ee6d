"""The policy in this process: one thread computes for all contexts, so that the event loop never does.

It consumes requests and weights to adopt, in order of arrival, and waits for the next of either when the batch is empty.
`generate`, `adopt` and `close` wake it. It produces one answer per request. New weights wait until running answers have
ended, and precede later requests. So every answer comes from one version, and its log-probabilities can be recomputed.
Invariant 6: no answer is sampled from a version before `adopt` has returned for it.
"""

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Self

import structlog
import torch

from hindcast.actors.engines.base import Constraint, Generation
from hindcast.actors.engines.batch import DecodingBatch
from hindcast.core.domain.sampling import Sampling
from hindcast.core.errors import EngineFailed, HindcastError
from hindcast.core.models.arithmetic import policy_device
from hindcast.core.models.model_files import context_length
from hindcast.core.models.policy import load_policy, load_weights
from hindcast.core.models.vision import ImageProcessor, ProcessedImage
from hindcast.core.settings.schema import PolicySettings

CLOSE_TIMEOUT_S = 30.0
"""How long `close` waits for the running forward pass."""

log = structlog.get_logger()


class _Request:
    """A call of `generate` or `adopt` that waits for the thread."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.future: asyncio.Future[Any] = self.loop.create_future()
        self.cancelled = False
        """Set by the caller's thread, read by the engine's."""

    def resolve(self, deliver: Callable[[asyncio.Future[Any]], None]) -> None:
        def set_unless_done() -> None:
            if not self.future.done():
                deliver(self.future)

        if not self.loop.is_closed():
            self.loop.call_soon_threadsafe(set_unless_done)

    def fail(self, error: Exception) -> None:
        self.resolve(lambda future: future.set_exception(error))


class _Ask(_Request):
    def __init__(
        self,
        prompt_ids: list[int],
        sampling: Sampling,
        constraint: Constraint | None,
        pictures: tuple[ProcessedImage, ...],
    ) -> None:
        super().__init__()
        self.prompt_ids = prompt_ids
        self.pictures = pictures
        self.sampling = sampling
        self.constraint = constraint


class _Adopt(_Request):
    def __init__(self, version: int, weights: Path) -> None:
        super().__init__()
        self.version = version
        self.weights = weights


class InProcessEngine:
    """A `SeeingEngine` over a Hugging Face model folder. Raises ModelFileError when the folder cannot be loaded."""

    def __init__(self, folder: Path, settings: PolicySettings, *, version: int = 0) -> None:
        torch.set_num_threads(settings.threads)
        self._folder = folder
        self._eyes: ImageProcessor | None = None
        """Image processor of a model that reads pictures; loaded with the first picture."""
        policy = load_policy(folder, device=policy_device(settings.model_device))
        self.tokenizer: Any = policy.tokenizer
        self._model = policy.model
        self._threads = settings.threads
        self._version = version
        self._longest = context_length(policy.model.config)
        self._batch: DecodingBatch[_Ask] = DecodingBatch(
            policy.model, tokenizer=policy.tokenizer, stops=policy.stops, slots=settings.max_batch
        )
        self._inbox: SimpleQueue[_Request | None] = SimpleQueue()
        self._waiting: deque[_Request] = deque()
        self._failure: Exception | None = None
        self._closed = False
        self._thread = threading.Thread(target=self._serve, name="policy-engine", daemon=True)
        self._thread.start()

    @property
    def version(self) -> int:
        """The version that new answers are sampled from."""
        return self._version

    async def generate(
        self, prompt_ids: Sequence[int], sampling: Sampling, constraint: Constraint | None = None
    ) -> Generation:
        """Sample one answer; see `PolicyEngine.generate`."""
        return await self.generate_seeing(prompt_ids, (), sampling, constraint)

    async def see(self, image: bytes) -> ProcessedImage:
        """See `SeeingEngine.see`."""
        if self._eyes is None:
            self._eyes = await asyncio.to_thread(ImageProcessor, self._folder)
        return await asyncio.to_thread(self._eyes.look, image)

    async def generate_seeing(
        self,
        prompt_ids: Sequence[int],
        pictures: Sequence[ProcessedImage],
        sampling: Sampling,
        constraint: Constraint | None = None,
    ) -> Generation:
        """See `SeeingEngine.generate_seeing`."""
        length = len(prompt_ids) + sampling.max_tokens
        if not prompt_ids or (self._longest is not None and length > self._longest):
            raise EngineFailed(
                f"a prompt of {len(prompt_ids)} tokens and an answer of up to {sampling.max_tokens} do not fit the "
                f"model's {self._longest} positions. Lower actors.max_prompt_tokens."
            )
        ask = _Ask(list(prompt_ids), sampling, constraint, tuple(pictures))
        generation: Generation = await self._submit(ask)
        return generation

    async def adopt(self, version: int, weights: Path) -> None:
        """Switch to these weights; see `PolicyEngine.adopt`."""
        await self._submit(_Adopt(version, weights))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *raised: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Stop the thread; waiting calls fail with EngineFailed."""
        if not self._closed:
            self._closed = True
            self._inbox.put(None)
        await asyncio.to_thread(self._thread.join, CLOSE_TIMEOUT_S)

    async def _submit(self, request: _Request) -> Any:
        if self._closed or self._failure is not None:
            raise EngineFailed(f"the policy engine does not run: {self._failure or 'it was closed'}")
        self._inbox.put(request)
        try:
            return await request.future
        except asyncio.CancelledError:
            request.cancelled = True
            raise

    def _serve(self) -> None:
        """Main function of the thread, a task boundary: under any failure, every caller gets an answer."""
        torch.set_num_threads(self._threads)
        try:
            while self._receive():
                self._advance()
            self._refuse(EngineFailed("the policy engine was closed before it answered"))
        except Exception as error:
            log.exception("the policy engine stopped")
            self._failure = error
            self._refuse(EngineFailed(f"the policy engine stopped: {error}"))

    def _receive(self) -> bool:
        """Move arrived requests into the queue; blocks only when there is nothing to compute."""
        block = not self._batch and not self._waiting
        while block or not self._inbox.empty():
            request = self._inbox.get()
            if request is None:
                return False
            self._waiting.append(request)
            block = False
        return True

    def _advance(self) -> None:
        """Admit waiting requests as far as order and room allow, then draw one token for every row."""
        for row in self._batch.rows:
            if row.key.cancelled:
                self._batch.drop(row.key)
        while self._waiting:
            request = self._waiting[0]
            if request.cancelled:
                self._waiting.popleft()
            elif isinstance(request, _Ask) and not self._batch.full:
                self._waiting.popleft()
                self._admit(request)
            elif isinstance(request, _Adopt) and not self._batch:
                self._waiting.popleft()
                self._swap(request)
            else:
                break
        if self._batch:
            for row in self._batch.step(self._version):
                self._answer(row.key, row.generation(self._batch.stops))

    def _admit(self, request: _Ask) -> None:
        try:
            row = self._batch.admit(
                request,
                request.prompt_ids,
                request.sampling,
                self._version,
                request.constraint,
                request.pictures,
            )
        except HindcastError as error:  # a constraint that cannot be applied fails this caller alone
            request.fail(error)
            return
        if row is not None:
            self._answer(request, row.generation(self._batch.stops))

    def _swap(self, request: _Adopt) -> None:
        try:
            load_weights(self._model, request.weights)
        except HindcastError as error:
            request.fail(error)
            return
        self._batch.refresh()
        self._version = request.version
        request.resolve(lambda future: future.set_result(None))

    @staticmethod
    def _answer(request: _Ask, generation: Generation) -> None:
        request.resolve(lambda future: future.set_result(generation))

    def _refuse(self, error: EngineFailed) -> None:
        while not self._inbox.empty():
            request = self._inbox.get()
            if request is not None:
                self._waiting.append(request)
        for request in [*self._waiting, *(row.key for row in self._batch.rows)]:
            request.fail(error)
        self._waiting.clear()
