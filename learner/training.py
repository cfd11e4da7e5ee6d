"""Trains the models of a run, batch by batch: the same code in the learner, at a restart and in `verify`.

A batch trains one model: the policy, whose updates are computed here, or an auxiliary one (`learner.auxiliary`).
Deterministic: the same plans on the same `Fingerprint` give the same digests. Every call blocks; the loop makes them from one
worker thread. Packing into forward passes depends on the samples alone.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import chain, islice
from pathlib import Path
from threading import Event
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from hindcast.core.errors import CheckpointCorrupt
from hindcast.core.models.arithmetic import arithmetic, device_for, precision_for
from hindcast.core.models.sharded_tensors import is_split, own_rows, whole
from hindcast.core.rl.algorithm import options_as
from hindcast.core.rl.algorithm_options import GroupOptions
from hindcast.core.rl.combined_state import CRITIC, POLICY, combined
from hindcast.core.rl.values import perplexity
from hindcast.core.seeds import derive_seed
from hindcast.core.settings.computing import Precision
from hindcast.core.settings.schema import LearnerSettings
from hindcast.events.catalogue import BatchPlanned, UpdateApplied, UpdateSkipped
from hindcast.events.envelope import BlobRef
from hindcast.learner.algorithms import loss_for
from hindcast.learner.algorithms.base import SampleLoss, SampleTerms, Valuing, Weighing
from hindcast.learner.auxiliary import MODELS, AuxiliaryTrainer, CriticTraining
from hindcast.learner.batch_plan import Minibatch, minibatches_of
from hindcast.learner.buffer.records import Batch, ReplayUse, Sample
from hindcast.learner.distributed.ranks import Ranks, ranks_alone
from hindcast.learner.forward_passes import ForwardPass, ScreenshotStore, forward_passes
from hindcast.learner.metrics import sample_report, update_metrics
from hindcast.learner.policy_models import Policies
from hindcast.learner.retention import digest_interval
from hindcast.learner.sample_terms import LogProbs, compared_of, inputs_digest, sample_terms
from hindcast.learner.update import NO_TIME, Clocks, MinibatchReport, TrainedModel, step_along
from hindcast.storage.blobs.store import BlobStore
from hindcast.storage.checkpoints import (
    BlobSink,
    Checkpoint,
    Counters,
    Saved,
    TensorPart,
    save_checkpoint,
    save_manifest,
    save_shard,
)


class Trainer(Protocol):
    """Interface of what is trained. Deterministic: equal plans on equal samples give equal events. Every call may block.

    `Training` implements it. A simulation of thousands of schedules implements it without gradients, to test the learner's
    planning, fencing and recovery.
    """

    def begin(self, plan: BatchPlanned, batch: Batch) -> None:
        """Start a batch with its plan and samples."""

    def step(self, index: int) -> UpdateApplied | UpdateSkipped:
        """Compute one mini-batch. The state changes as the returned event says."""

    def score(self, samples: Sequence[Sample], *, tokens_per_forward: int) -> list[float]:
        """Perplexity of each sample's action under the current policy; packing affects its last bits."""

    def weights(self, model: str) -> bytes:
        """A model's weights for publication."""

    def save(self, blobs: BlobSink, *, batch: int, version: int) -> Saved:
        """Store a checkpoint of the current state. Raises DiskFull; a repeated call starts over."""

    def restore(self, checkpoint: Checkpoint) -> None:
        """Load a checkpoint. Raises CheckpointCorrupt."""


class MakeTrainer(Protocol):
    """Builds the trainer of a run, before its first update."""

    def __call__(
        self,
        folder: Path,
        base: BlobRef,
        *,
        blobs: BlobStore,
        settings: LearnerSettings,
        stop: Event | None = None,
    ) -> Trainer:
        """Make the trainer. `folder`: the policy that the base weights `base` belong to. `stop`: set to end a computation."""


SILENT = SampleLoss(
    loss=torch.zeros(()), policy=0.0, cloning=0.0, kl=0.0, surprisal=0.0, ratio=0.0, clipped=0, contributing=0
)
"""Loss of a sample that has no part in it."""


class Interrupted(Exception):
    """The computation was stopped; its `Training` must not be used further."""


class Training:
    """The models of a run under training; implements `Trainer`."""

    def __init__(
        self,
        folder: Path,
        base: BlobRef,
        *,
        blobs: BlobStore,
        settings: LearnerSettings,
        stop: Event | None = None,
        ranks: Ranks | None = None,
    ) -> None:
        """Make the model of `folder` with the base weights `base`, before the first update.

        `ranks`: the processes that compute it together, each with a `Training` of its own; None: this process alone, which
        emulates those of `learner.exact_ranks`.

        Raises:
            ModelFileError, BlobMissing, BlobCorrupt: the model cannot be built.
        """
        self._folder = folder
        self._base = base
        self._device, self._precision = _arithmetic_of(settings)
        settings = self._as_chosen(settings)
        self._settings = settings
        self._ranks = ranks or ranks_alone(settings)
        self._policies = Policies(folder, base, blobs=blobs, settings=settings, ranks=self._ranks)
        self._album = ScreenshotStore(folder, blobs)
        self._stop = stop or Event()
        self._loss = loss_for(settings)
        self._policy = TrainedModel(
            POLICY,
            self._policies.trained(),
            weight_decay=settings.weight_decay,
            offload=settings.offload_optimizer,
            ranks=self._ranks,
            arithmetic=settings.arithmetic,
            digest_every=digest_interval(settings, base, whole=not settings.lora_rank),
        )
        self._auxiliary: dict[str, AuxiliaryTrainer[Any]] = {}
        """Trainers of auxiliary models, each made at the first batch of its model."""
        self._plan: BatchPlanned | None = None
        self._replays: dict[str, ReplayUse] | None = None
        """Replayed successes of the current batch; None if success replay is off."""
        self._parts: list[Minibatch] = []
        self._terms: list[list[SampleTerms]] = []
        self._renewed_at: int | None = None
        """Updates before the one that begins with a new optimizer; None: none of this batch does."""
        self._beginning = NO_TIME
        """Time that `begin` took, until an update reports it."""

    @property
    def update(self) -> int:
        """Optimizer steps on the policy so far."""
        return self._policy.update

    @property
    def digest(self) -> str:
        """Digest of weights and optimizer states of all models."""
        states = {name: trainer.learned.digest for name, trainer in self._auxiliary.items()}
        return combined(states | {POLICY: self._policy.digest})

    def _as_chosen(self, settings: LearnerSettings) -> LearnerSettings:
        """These settings with device and precision of this trainer, which never change: those of a batch may say `auto`."""
        return settings.model_copy(update={"device": self._device, "precision": self._precision})

    def _check(self) -> None:
        if self._stop.is_set():
            raise Interrupted

    def _model(self, name: str) -> AuxiliaryTrainer[Any]:
        """The trainer of an auxiliary model, made at its first batch from the base weights, or from the policy's then."""
        if name not in self._auxiliary:
            seed = derive_seed(0, "model", name, self._base.sha256)
            cloned = name == CRITIC and self._settings.critic_from == "policy"
            model = self._policies.copy_of(self._policy.model) if cloned else self._policies.plain()
            self._auxiliary[name] = MODELS[name](
                self._folder,
                model,
                self._settings,
                seed=seed,
                check=self._check,
                digest_every=digest_interval(self._settings, self._base, whole=True),
            )
        return self._auxiliary[name]

    def begin(self, plan: BatchPlanned, batch: Batch) -> None:
        """Start a batch. Proximal and reference log-probabilities are computed now, for all of its mini-batches."""
        started_at = Clocks.read()
        batch = replace(batch, settings=self._as_chosen(batch.settings))
        self._plan = plan
        self._settings = batch.settings
        if plan.model != POLICY:
            self._model(plan.model).begin(plan, batch)
            return
        replays = options_as(batch.settings, GroupOptions).success_replay
        self._replays = None if replays == "off" else batch.replays
        self._loss = loss_for(batch.settings, plan.algorithm)
        renews = batch.settings.fresh_optimizer and batch.follows_cloning
        self._renewed_at = self._policy.update if renews else None
        self._parts = minibatches_of(plan)
        self._terms = []
        advantages = None if plan.critic_version is None else self._advantages(plan, batch)
        computed: dict[tuple[int, ...], tuple[LogProbs | None, LogProbs | None]] = {}
        for minibatch in self._parts:
            samples = compared_of(plan, batch, minibatch)
            key = tuple(sample.position for sample in samples)
            if key not in computed:  # later epochs compare the same samples again
                computed[key] = self._anchors(plan, batch, samples)
            proximal, reference = computed[key]
            self._terms.append(
                sample_terms(
                    plan,
                    batch,
                    minibatch,
                    loss=self._loss,
                    settings=batch.settings,
                    proximal=proximal,
                    reference=reference,
                    advantages=advantages and advantages[minibatch.first_episode : minibatch.end_episode],
                )
            )
        self._beginning = Clocks.read().minus(started_at)

    def _advantages(self, plan: BatchPlanned, batch: Batch) -> list[list[float]]:
        """Advantages from the values of states  # per planned episode [steps]: those of the batch, else the current critic's."""
        critic = self._model(CRITIC)
        assert isinstance(critic, CriticTraining)
        unknown = {valued.position: valued for valued in batch.samples if valued.position not in batch.values}
        tokens_per_forward = batch.settings.tokens_per_forward
        missing = critic.values(list(unknown.values()), tokens_per_forward=tokens_per_forward)
        values = batch.values | dict(zip(unknown, missing, strict=True))
        ordered = iter(values[sample.position] for sample in batch.samples)
        of_episodes = [list(islice(ordered, planned.samples)) for planned in plan.episodes]
        assert isinstance(self._loss, Valuing), (
            f"{plan.algorithm} plans with a critic and takes no advantages from it"
        )
        return self._loss.step_advantages(plan.episodes, of_episodes)

    def score(self, samples: Sequence[Sample], *, tokens_per_forward: int) -> list[float]:
        """See `Trainer.score`."""
        log_probs = self._log_probs(self._policy.model, samples, tokens_per_forward=tokens_per_forward)
        return [perplexity(values.tolist()) for values in log_probs]

    def _anchors(
        self, plan: BatchPlanned, batch: Batch, samples: Sequence[Sample]
    ) -> tuple[LogProbs | None, LogProbs | None]:
        """Log-probabilities of the proximal policy, which is the current one, and of the reference, if the plan names them."""
        proximal = None if plan.proximal_version is None else self.log_probs(samples)
        if plan.reference_version is None:
            return proximal, None
        with self._policies.reference(self._policy.model, plan, batch) as reference:
            return proximal, self._log_probs(reference, samples)

    def _log_probs(
        self, model: Any, samples: Sequence[Sample], *, tokens_per_forward: int | None = None
    ) -> list[NDArray[np.float32]]:
        """Log-probabilities of each sample's action tokens, without gradient  # per sample [tokens] float32.

        `tokens_per_forward` None: that of the current batch's settings.
        """
        ends = np.cumsum([sample.tokens for sample in samples])
        result = np.zeros(sum(sample.tokens for sample in samples))
        token_limit = tokens_per_forward or self._settings.tokens_per_forward
        with torch.no_grad(), arithmetic(self._settings.precision, model):
            for shared, counts in chain.from_iterable(self._ranks.rounds(self._passes(samples, token_limit))):
                self._check()
                for index, values in zip(shared.indices, shared.log_probs(model), strict=True):
                    if counts:
                        result[ends[index] - len(values) : ends[index]] = values.numpy()
        return np.split(self._ranks.add_up(result).astype(np.float32), ends[:-1]) if samples else []

    def _passes(self, samples: Sequence[Sample], tokens_per_forward: int) -> list[ForwardPass]:
        is_joined = self._settings.packed_sequences and self._policies.joinable
        return forward_passes(
            samples,
            tokens_per_forward=tokens_per_forward,
            joined=is_joined,
            reach=self._policies.reach,
            masks_all=self._settings.arithmetic == 1,
            album=self._album,
        )

    def log_probs(self, samples: Sequence[Sample]) -> list[NDArray[np.float32]]:
        """Log-probabilities of each sample's action tokens under the current policy, without gradient  # per sample [tokens]."""
        return self._log_probs(self._policy.model, samples)

    def step(self, index: int) -> UpdateApplied | UpdateSkipped:
        """Compute one mini-batch of the current batch: one optimizer step, or none without a finite gradient.

        Returns the event to record.

        Raises:
            Interrupted: `stop` was set.
        """
        assert self._plan is not None, "no batch was begun"
        if self._plan.model != POLICY:
            self._check()
            return self._model(self._plan.model).step(index)
        started_at = Clocks.read()
        plan, minibatch, terms = self._plan, self._parts[index], self._terms[index]
        weighed = self.weighed_terms(index)
        if not any(term.counts for term in weighed):
            return UpdateSkipped(
                update=self._policy.update + 1,
                model=POLICY,
                batch=plan.batch,
                minibatch=index,
                reason="the loss leaves out every episode of the mini-batch",
                state=self._policy.recorded_digest,
            )
        losses = self._backward(weighed)
        is_renewed = self._renewed_at == self._policy.update
        steps = 0 if is_renewed else self._policy.steps

        def account() -> MinibatchReport:
            return MinibatchReport(
                inputs=inputs_digest(terms),
                metrics=update_metrics(
                    weighed,
                    losses,
                    plan.episodes[minibatch.first_episode : minibatch.end_episode],
                    replays=self._replays,
                    version=plan.version,
                ),
                samples=sample_report(weighed, losses),
            )

        fact = step_along(
            self._policy,
            plan,
            index,
            settings=self._settings,
            rate=partial(learning_rate, self._settings, step=steps + 1),
            account=account,
            started_at=started_at.minus(self._beginning),
            anew=is_renewed,
        )
        if isinstance(fact, UpdateApplied):
            self._beginning = NO_TIME
        return fact

    def weighed_terms(self, index: int) -> Sequence[SampleTerms]:
        """Terms of a mini-batch of the current batch, with what its loss takes from the policy as it is now."""
        terms: Sequence[SampleTerms] = self._terms[index]
        return self._loss.weigh(terms, self.log_probs) if isinstance(self._loss, Weighing) else terms

    def gradient(self, terms: Sequence[SampleTerms]) -> list[torch.Tensor]:
        """The gradient of some samples' part of the loss, one tensor per trained parameter; zeros where there is none."""
        self._backward(terms)
        return self._policy.take_gradient()

    def _backward(self, terms: Sequence[SampleTerms]) -> list[SampleLoss]:
        """Accumulate the gradient over forward passes. Shares make the sum independent of the packing."""
        self._policy.forget_gradient()
        losses: dict[int, SampleLoss] = {}
        counting = [index for index, term in enumerate(terms) if term.counts]
        samples = [terms[index].sample for index in counting]
        for passes in self._ranks.rounds(self._passes(samples, self._settings.tokens_per_forward)):
            with self._ranks.accumulating(self._policy.trained):
                for shared, counts in passes:
                    indices = [counting[i] for i in shared.indices]
                    pass_losses = self._backward_pass(
                        shared, [terms[index] for index in indices], counts=counts
                    )
                    if counts:
                        losses |= zip(indices, pass_losses, strict=True)
        self._check()
        return self._gather_losses([losses.get(index, SILENT) for index in range(len(terms))])

    def _backward_pass(
        self, shared: ForwardPass, terms: Sequence[SampleTerms], *, counts: bool
    ) -> list[SampleLoss]:
        """Add the gradient of one pass, zeros if it does not count; returns the losses of its samples."""
        self._check()
        with arithmetic(self._settings.precision, self._policy.model):
            log_probs = shared.log_probs(self._policy.model)
        losses = [
            self._loss.sample_loss(values[term.first :], term)
            for values, term in zip(log_probs, terms, strict=True)
        ]
        total = torch.stack([loss.loss for loss in losses]).sum()
        (total if counts else total * 0).backward()  # type: ignore[no-untyped-call]
        return [loss._replace(loss=loss.loss.detach()) for loss in losses]

    def _gather_losses(self, losses: Sequence[SampleLoss]) -> list[SampleLoss]:
        """Losses of the samples of all processes: each has computed some, and has `SILENT` for the others."""
        rows = np.array([[float(value) for value in loss] for loss in losses]).reshape(len(losses), -1)
        result = []
        for loss, policy, cloning, kl, surprisal, ratio, clipped, contributing in self._ranks.add_up(
            rows
        ).tolist():
            value = torch.tensor(loss)
            result.append(
                SampleLoss(value, policy, cloning, kl, surprisal, ratio, int(clipped), int(contributing))
            )
        return result

    def weights(self, model: str = POLICY) -> bytes:
        """A model's weights as a safetensors file."""
        return (self._policy if model == POLICY else self._model(model).learned).weights()

    def snapshot(self, *, batch: int, version: int) -> tuple[dict[str, NDArray[np.generic]], Counters]:
        """Whole tensors of a checkpoint: the policy's, and those of each auxiliary model under its name."""
        tensors = {name: whole(value).numpy() for name, value in self._state_tensors().items()}
        return tensors, self._counters(batch, version)

    def _state_tensors(self) -> dict[str, torch.Tensor]:
        tensors = self._policy.state_tensors()
        for name, trainer in self._auxiliary.items():
            tensors |= {f"{name}/{key}": value for key, value in trainer.learned.state_tensors().items()}
        return tensors

    def _counters(self, batch: int, version: int) -> Counters:
        updates = {name: trainer.learned.update for name, trainer in self._auxiliary.items()}
        return Counters(update=self.update, batch=batch, version=version, state=self.digest, beside=updates)

    def save(self, blobs: BlobSink, *, batch: int, version: int) -> Saved:
        """See `Trainer.save`. Sharded tensors stay sharded; other processes call `save_shard`."""
        counters = self._counters(batch, version)
        shards = self.save_shard(blobs)
        if not shards:
            return Saved(save_checkpoint(blobs, *self.snapshot(batch=batch, version=version)), counters)
        tensors = self._state_tensors()
        replicated = {name: whole(value).numpy() for name, value in tensors.items() if not is_split(value)}
        shapes = {name: tuple(value.shape) for name, value in tensors.items() if is_split(value)}
        return Saved(
            save_manifest(blobs, replicated, counters, shapes=shapes, shards=shards), counters, shards
        )

    def save_shard(self, blobs: BlobSink) -> tuple[BlobRef, ...]:
        """Store this process's rows of sharded tensors; returns the references of all processes, none if nothing is sharded."""
        _ = self.digest  # every process takes part in gathering it, before the shards
        split = {name: value for name, value in self._state_tensors().items() if is_split(value)}
        if not split:
            return ()
        shard = {name: own_rows(value).numpy() for name, value in split.items()}
        return self._ranks.store_parts(lambda: save_shard(blobs, shard))

    def restore(self, checkpoint: Checkpoint) -> None:
        """See `Trainer.restore`.

        Raises:
            CheckpointCorrupt: it does not fit the models, or its tensors do not have the digest that it names.
        """
        tensors, counters = checkpoint.tensors, checkpoint.counters
        self._policy.restore(TensorPart(tensors, "weights/", "optimizer/"), update=counters.update)
        self._auxiliary = {
            name: trainer for name, trainer in self._auxiliary.items() if name in counters.beside
        }
        for name, update in counters.beside.items():
            if name not in MODELS:
                raise CheckpointCorrupt(
                    f"the checkpoint of update {counters.update} holds a model {name!r}, which is unknown here"
                )
            self._model(name).learned.restore(TensorPart(tensors, f"{name}/", within=name), update=update)
        if self.digest != counters.state:
            raise CheckpointCorrupt(
                f"the checkpoint of update {counters.update} holds another state than it claims: sha256 {self.digest[:16]}…, "
                f"recorded {counters.state[:16]}…"
            )


def _arithmetic_of(settings: LearnerSettings) -> tuple[str, Precision]:
    """The device and precision that the settings give on this machine."""
    device = device_for(settings.device)
    return device.type, precision_for(settings.precision, device)


def learning_rate(settings: LearnerSettings, update: int, *, step: int) -> float:
    """Learning rate of the policy's update 1, 2, 3 …: rises linearly over the warm-up, then stays constant.

    The first cloning updates may have a rate of their own. `step`: that of the optimizer, from 1 on; it is `update` unless the
    optimizer began anew, and the warm-up with it (`fresh_optimizer`).
    """
    cloning = update <= settings.cloning_updates and settings.cloning_rate > 0
    rate = settings.cloning_rate if cloning else settings.learning_rate
    return rate if step >= settings.warmup_updates else rate * step / settings.warmup_updates
