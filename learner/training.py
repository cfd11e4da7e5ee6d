"""Weights and optimiser, brought forward one fact at a time: live, when catching up, and in `verify`. Nothing differs.

Deterministic: the same plans on the same `Fingerprint` give the same digests. Everything here blocks; the loop calls it
from one worker thread. Packing into forward passes follows from the samples alone.
"""

import copy
import time
from collections.abc import Sequence
from pathlib import Path
from threading import Event
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from core.errors import CheckpointCorrupt
from core.models.policy import encode_weights, load_policy, load_weights, weights_of
from core.models.state import optimizer_tensors, state_digest
from core.settings import LearnerSettings
from events.catalogue import BatchPlanned, UpdateApplied, UpdateSkipped
from events.catalogue.training import PlannedEpisode
from events.envelope import BlobRef
from learner.algorithms import algorithm_for
from learner.algorithms.base import SampleLoss, SampleTerms
from learner.episodes import Batch, Replay, Sample
from learner.heap import give_back_freed
from learner.metrics import sample_report, update_metrics
from learner.passes import forward_passes
from learner.planning import Minibatch, minibatches_of
from learner.terms import LogProbs, compared_of, inputs_digest, sample_terms
from storage.blobs import BlobStore
from storage.checkpoints import Counters

MODEL = "policy"
"""Which of the run's models this trains."""
BETAS = (0.9, 0.999)
EPSILON = 1e-8


class Interrupted(Exception):
    """The computation was asked to stop; the training it belongs to must be thrown away."""


class Clocks(NamedTuple):
    """Two clocks, or what went by on them."""

    wall_s: float
    cpu_s: float
    """CPU time of all threads of this process."""

    @classmethod
    def now(cls) -> "Clocks":
        """What they show."""
        return cls(time.perf_counter(), time.process_time())

    def since(self, began: "Clocks") -> "Clocks":
        """What went by between the two."""
        return Clocks(self.wall_s - began.wall_s, self.cpu_s - began.cpu_s)


NO_TIME = Clocks(0.0, 0.0)


class Training:
    """The policy being trained, and where it stands."""

    def __init__(
        self,
        folder: Path,
        base: BlobRef,
        *,
        blobs: BlobStore,
        settings: LearnerSettings,
        stop: Event | None = None,
    ) -> None:
        """The model of `folder` with the base weights `base`, before the first update.

        Raises:
            ModelFileError, BlobMissing, BlobCorrupt: the model cannot be built.

        """
        self._base = base
        self._blobs = blobs
        self._settings = settings
        self._stop = stop or Event()
        self._algorithm = algorithm_for(settings)
        self._model = self._load_base(load_policy(folder).model)
        self._reference: Any = None
        self._optimizer = torch.optim.AdamW(
            self._model.parameters(),
            lr=settings.learning_rate,
            betas=BETAS,
            eps=EPSILON,
            weight_decay=settings.weight_decay,
            foreach=False,
        )
        self.update = 0
        """Optimiser steps so far."""
        self.digest = state_digest(self._model, self._optimizer)
        """Of weights and optimiser state."""
        self._plan: BatchPlanned | None = None
        self._replays: dict[str, Replay] | None = None
        """Of the batch begun; None where success replay is off."""
        self._parts: list[Minibatch] = []
        self._terms: list[list[SampleTerms]] = []
        self._beginning = NO_TIME
        """What beginning the batch has taken, as long as no update has reported it."""

    def _load_base(self, model: Any) -> Any:
        """The model, with the base weights."""
        self._blobs.get(self._base)
        load_weights(model, self._blobs.path(self._base))
        return model

    def _check(self) -> None:
        if self._stop.is_set():
            raise Interrupted

    def begin(self, plan: BatchPlanned, batch: Batch) -> None:
        """Start a batch: proximal and reference log-probabilities are those of now, for all of its mini-batches."""
        began = Clocks.now()
        self._plan = plan
        self._settings = batch.settings
        self._replays = None if batch.settings.success_replay == "off" else batch.replays
        algorithm = algorithm_for(batch.settings)
        self._algorithm = algorithm
        self._parts = minibatches_of(plan)
        self._terms = []
        known: dict[tuple[int, ...], tuple[LogProbs | None, LogProbs | None]] = {}
        for part in self._parts:
            samples = compared_of(plan, batch, part)
            key = tuple(sample.position for sample in samples)
            if key not in known:  # later epochs compare the same samples again
                known[key] = self._anchors(plan, samples)
            proximal, reference = known[key]
            self._terms.append(
                sample_terms(
                    plan,
                    batch,
                    part,
                    algorithm=algorithm,
                    settings=batch.settings,
                    proximal=proximal,
                    reference=reference,
                )
            )
        self._beginning = Clocks.now().since(began)

    def _anchors(
        self, plan: BatchPlanned, samples: Sequence[Sample]
    ) -> tuple[LogProbs | None, LogProbs | None]:
        """Log-probabilities of the proximal policy, which is that of now, and of the reference, where the plan asks for them."""
        proximal = None if plan.proximal_version is None else self._log_probs(self._model, samples)
        if plan.reference_version is None:
            return proximal, None
        if self._reference is None:
            self._reference = self._load_base(copy.deepcopy(self._model)).requires_grad_(False)
        return proximal, self._log_probs(self._reference, samples)

    def _log_probs(self, model: Any, samples: Sequence[Sample]) -> list[NDArray[np.float32]]:
        found: list[NDArray[np.float32] | None] = [None] * len(samples)
        with torch.no_grad():
            for shared in forward_passes(samples, tokens_per_forward=self._settings.tokens_per_forward):
                self._check()
                for index, values in zip(shared.indices, shared.log_probs(model), strict=True):
                    found[index] = values.numpy().copy()
        return [values for values in found if values is not None]

    def step(self, index: int) -> UpdateApplied | UpdateSkipped:
        """Compute one mini-batch of the batch begun: one optimiser step, or none where the gradient is not finite.

        Returns the fact to record; weights and optimiser have changed accordingly.

        Raises:
            Interrupted: a stop was asked for; this object must not be used further.

        """
        assert self._plan is not None, "no batch was begun"
        began = Clocks.now()
        part, terms, before = self._parts[index], self._terms[index], self.digest
        losses = self._backward(terms)
        norm = float(
            torch.nn.utils.clip_grad_norm_(
                self._model.parameters(), self._settings.max_gradient_norm, foreach=False
            )
        )
        number = self.update + 1
        if not np.isfinite(norm):
            self._optimizer.zero_grad(set_to_none=True)
            return UpdateSkipped(
                update=number,
                model=MODEL,
                batch=self._plan.batch,
                minibatch=index,
                reason=f"the gradient's norm is {norm}",
                state=before,
            )
        rate = learning_rate(self._settings, number)
        for group in self._optimizer.param_groups:
            group["lr"] = rate
            group["weight_decay"] = self._settings.weight_decay
        self._optimizer.step()
        self._optimizer.zero_grad(set_to_none=True)
        self.update = number
        self.digest = state_digest(self._model, self._optimizer)
        give_back_freed()
        taken, beginning = Clocks.now().since(began), self._beginning
        self._beginning = NO_TIME
        episodes: Sequence[PlannedEpisode] = self._plan.episodes[part.first_episode : part.end_episode]
        return UpdateApplied(
            update=number,
            model=MODEL,
            batch=self._plan.batch,
            minibatch=index,
            before=before,
            after=self.digest,
            inputs=inputs_digest(terms),
            metrics=update_metrics(
                terms,
                losses,
                episodes,
                replays=self._replays,
                version=self._plan.version,
                gradient_norm=norm,
                learning_rate=rate,
            ),
            samples=sample_report(terms, losses),
            duration_ms=(taken.wall_s + beginning.wall_s) * 1000,
            cpu_ms=(taken.cpu_s + beginning.cpu_s) * 1000,
        )

    def _backward(self, terms: Sequence[SampleTerms]) -> list[SampleLoss]:
        """Accumulate the gradient over forward passes; shares make the sum independent of how samples are packed."""
        self._optimizer.zero_grad(set_to_none=True)
        losses: dict[int, SampleLoss] = {}
        samples = [term.sample for term in terms]
        for shared in forward_passes(samples, tokens_per_forward=self._settings.tokens_per_forward):
            self._check()
            own = {
                index: self._algorithm.sample_loss(values, terms[index])
                for index, values in zip(shared.indices, shared.log_probs(self._model), strict=True)
            }
            torch.stack([loss.loss for loss in own.values()]).sum().backward()  # type: ignore[no-untyped-call]
            losses |= {index: loss._replace(loss=loss.loss.detach()) for index, loss in own.items()}
        self._check()
        return [losses[index] for index in range(len(terms))]

    def weights(self) -> bytes:
        """The policy's weights as a safetensors file."""
        return encode_weights(self._model)

    def snapshot(self, *, batch: int, version: int) -> tuple[dict[str, NDArray[np.generic]], Counters]:
        """What a checkpoint holds."""
        tensors = {f"weights/{name}": value.numpy() for name, value in weights_of(self._model).items()}
        own = optimizer_tensors(self._model, self._optimizer)
        tensors |= {f"optimizer/{name}": value.numpy() for name, value in own.items()}
        return tensors, Counters(update=self.update, batch=batch, version=version, state=self.digest)

    def restore(self, tensors: dict[str, NDArray[np.generic]], counters: Counters) -> None:
        """Take over a checkpoint.

        Raises:
            CheckpointCorrupt: it does not fit the model, or its tensors do not have the digest it claims.

        """
        named = dict(self._model.named_parameters())
        try:
            with torch.no_grad():
                for name, own in weights_of(self._model).items():
                    own.copy_(torch.from_numpy(tensors[f"weights/{name}"]))
            self._optimizer.state.clear()
            for key, value in tensors.items():
                kind, _, rest = key.partition("/")
                if kind == "optimizer":
                    name, _, entry = rest.rpartition("/")
                    self._optimizer.state[named[name]][entry] = torch.from_numpy(value.copy())
        except (KeyError, RuntimeError, TypeError) as error:
            raise CheckpointCorrupt(
                f"the checkpoint of update {counters.update} does not fit the model: {error}"
            ) from error
        digest = state_digest(self._model, self._optimizer)
        if digest != counters.state:
            raise CheckpointCorrupt(
                f"the checkpoint of update {counters.update} holds another state than it claims: sha256 {digest[:16]}…, "
                f"recorded {counters.state[:16]}…"
            )
        self.update, self.digest = counters.update, digest


def learning_rate(settings: LearnerSettings, update: int) -> float:
    """AdamW's rate for update 1, 2, 3 …: rises linearly over the warm-up, then stays."""
    if update >= settings.warmup_updates:
        return settings.learning_rate
    return settings.learning_rate * update / settings.warmup_updates
