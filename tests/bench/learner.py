"""Our update, from a planned batch to the fact that records it, beside a bare PyTorch loop over the same batch.

Ours is `Training.begin` and `Training.step` as the learner calls them: samples unpacked from the log's bytes and packed into
passes, proximal and reference log-probabilities, corrections, shares, loss, clipping, AdamW, the digests of weights and
optimiser before and after, the digest of the inputs, metrics, and a report on every sample. The bare loop has its tensors
prepared beforehand and does the same forward and backward passes in the same packs, the same loss and the same optimiser,
and records nothing. Rates are per second of processor time: both compute all the time, and a machine that does other
work beside them changes nothing.
"""

import copy
import time
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import msgspec
import torch

from bench.engine_calls import Episode
from hindcast.core.domain.arrays import pack_floats, pack_ids, pack_positions
from hindcast.core.models.arithmetic import device_for
from hindcast.core.models.policy import WEIGHTS, load_policy
from hindcast.core.rl.algorithm import options_as
from hindcast.core.rl.loss_normalization import EpisodeTokens, loss_shares
from hindcast.core.settings.schema import LearnerSettings
from hindcast.events.catalogue import BatchPlanned, UpdateApplied
from hindcast.events.catalogue.training import PlannedEpisode
from hindcast.learner.algorithms.grpo import GrpoOptions
from hindcast.learner.batch_plan import minibatches_of
from hindcast.learner.buffer.records import Batch, Sample
from hindcast.learner.distributed.ranks import Ranks
from hindcast.learner.forward_passes import forward_passes
from hindcast.learner.numerics import configure
from hindcast.learner.training import Training
from hindcast.learner.update import BETAS, EPSILON
from hindcast.storage.blobs.store import BlobStore

GROUP = 8


class Work(NamedTuple):
    """One batch as the learner plans it."""

    plan: BatchPlanned
    batch: Batch

    @property
    def tokens(self) -> int:
        """Prompts and answers."""
        return sum(sample.length for sample in self.batch.samples)


def made_up_batch(policy: Path, episodes: Sequence[Episode], settings: LearnerSettings) -> Work:
    """Groups of `GROUP` with the lengths of `episodes`, of which every other one succeeded, in their recorded order.

    Answers are made up, their log-probabilities are the policy's own.
    """
    settings = settings.model_copy(update={"warmup_updates": 1})  # the bare loop knows one rate
    random = Random(3)
    samples = [
        _sample(
            number,
            str(index),
            call.prompt_ids,
            [random.randrange(50, 2000) for _ in range(call.answer_tokens)],
        )
        for number, (index, call) in enumerate(
            (index, call) for index, episode in enumerate(episodes) for call in episode
        )
    ]
    model = load_policy(policy).model.to(device_for(settings.device))
    behaviour: dict[int, bytes] = {}
    with torch.no_grad():
        for shared in forward_passes(samples, tokens_per_forward=settings.tokens_per_forward):
            for index, values in zip(shared.indices, shared.log_probs(model), strict=True):
                behaviour[index] = pack_floats(values.cpu().numpy())
    samples = [
        msgspec.structs.replace(sample, logprobs=behaviour[index]) for index, sample in enumerate(samples)
    ]
    planned = tuple(
        PlannedEpisode(
            episode=str(index),
            group=str(index // GROUP),
            reward=float(index % 2),
            advantage=1.0 if index % 2 else -1.0,
            samples=len(episode),
        )
        for index, episode in enumerate(episodes)
    )
    half = len(episodes) // 2
    sizes = [sum(one.samples for one in part) for part in (planned[:half], planned[half:])]
    plan = BatchPlanned(
        batch=0,
        algorithm=settings.algorithm,
        as_of=0,
        log_digest=b"",
        positions=pack_positions([sample.position for sample in samples]),
        sample_digests=b"".join(sample.digest for sample in samples),
        minibatches=pack_ids(sizes),
        episodes=planned,
        consumed=(),
        seed=0,
        version=0,
        reference_version=0,
        proximal_version=0,
        critic_version=None,
        config_digest="",
    )
    succeeded = [episode.reward > 0 for episode in planned]
    batch = Batch(
        number=0,
        position=0,
        event="",
        settings=settings,
        samples=samples,
        succeeded=succeeded,
        truncated=[False] * len(succeeded),
    )
    return Work(plan, batch)


def _sample(position: int, episode: str, prompt: Sequence[int], action: Sequence[int]) -> Sample:
    return Sample(
        position=position,
        digest=position.to_bytes(8, "little"),
        episode=episode,
        prompt_ids=pack_ids(prompt),
        action_ids=pack_ids(action),
        logprobs=pack_floats([0.0] * len(action)),
        versions=pack_ids([0] * len(action)),
        temperature=1.0,
    )


class Ours:
    """The learner's own training."""

    def __init__(self, policy: Path, work: Work, *, blobs: Path, ranks: Ranks | None = None) -> None:
        """`ranks`: see `Training`."""
        store = BlobStore(blobs)
        base = store.put((policy / WEIGHTS).read_bytes())
        self._work = work
        self.training = Training(policy, base, blobs=store, settings=work.batch.settings, ranks=ranks)

    def train(self) -> float:
        """Trained tokens per second of processor time, over one batch."""
        began = time.process_time()
        self.training.begin(self._work.plan, self._work.batch)
        for index in range(len(minibatches_of(self._work.plan))):
            fact = self.training.step(index)
            assert isinstance(fact, UpdateApplied)
        return self._work.tokens / (time.process_time() - began)


class _Pack(NamedTuple):
    """Tensors of one forward pass; the last three per action token."""

    ids: torch.Tensor
    rows: torch.Tensor
    columns: torch.Tensor
    behaviour: torch.Tensor
    advantages: torch.Tensor
    shares: torch.Tensor


class Bare:
    """The same passes, loss and optimiser steps, and nothing else."""

    def __init__(self, policy: Path, work: Work) -> None:
        settings = work.batch.settings
        self._settings, self._tokens = settings, work.tokens
        self.model: Any = load_policy(policy).model
        self._reference = copy.deepcopy(self.model).requires_grad_(False)
        self._optimizer = torch.optim.AdamW(
            self.model.parameters(),
            lr=settings.learning_rate,
            betas=BETAS,
            eps=EPSILON,
            weight_decay=settings.weight_decay,
            foreach=False,
        )
        self._parts = [
            _packs(work, part.first_episode, part.end_episode, part.first_sample, part.end_sample)
            for part in minibatches_of(work.plan)
        ]

    def train(self) -> float:
        """Trained tokens per second of processor time, over one batch."""
        began = time.process_time()
        settings = self._settings
        options = options_as(settings, GrpoOptions)
        with torch.no_grad():
            anchors = [
                [(_score(self.model, pack), _score(self._reference, pack)) for pack in packs]
                for packs in self._parts
            ]
        for packs, known in zip(self._parts, anchors, strict=True):
            for pack, (proximal, reference) in zip(packs, known, strict=True):
                log_probs = _score(self.model, pack)
                weights = torch.exp(proximal - pack.behaviour)
                weights = weights * (weights <= settings.ratio_cap)
                ratio = torch.exp(log_probs - proximal)
                clipped = ratio.clamp(1 - options.clip_low, 1 + options.clip_high)
                policy = -weights * torch.minimum(ratio * pack.advantages, clipped * pack.advantages)
                difference = reference - log_probs
                kl = torch.exp(difference) - difference - 1
                (pack.shares * (policy + options.kl_coefficient * kl)).sum().backward()  # type: ignore[no-untyped-call]
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), settings.max_gradient_norm, foreach=False)
            self._optimizer.step()
            self._optimizer.zero_grad(set_to_none=True)
        return self._tokens / (time.process_time() - began)


def _packs(work: Work, first: int, end: int, first_sample: int, end_sample: int) -> list[_Pack]:
    settings, samples = work.batch.settings, work.batch.samples[first_sample:end_sample]
    episodes = work.plan.episodes[first:end]
    advantages = [episode.advantage for episode in episodes for _ in range(episode.samples)]
    lengths = iter(sample.tokens for sample in samples)
    counted = [
        EpisodeTokens(episode.group, tuple(next(lengths) for _ in range(episode.samples)))
        for episode in episodes
    ]
    shares = loss_shares(settings.loss_mean, counted)
    found = []
    for shared in forward_passes(samples, tokens_per_forward=settings.tokens_per_forward):
        longest = max(samples[index].length for index in shared.indices)
        ids = torch.zeros((len(shared.indices), longest), dtype=torch.long)
        rows: list[int] = []
        columns: list[int] = []
        for row, one in enumerate(shared.scored):
            ids[row, : len(one.prompt_ids) + len(one.action_ids)] = torch.tensor(
                [*one.prompt_ids, *one.action_ids]
            )
            rows += [row] * len(one.action_ids)
            columns += range(len(one.prompt_ids) - 1, len(one.prompt_ids) + len(one.action_ids) - 1)
        owners = [index for index in shared.indices for _ in range(samples[index].tokens)]
        behaviour = b"".join(samples[index].logprobs for index in shared.indices)
        found.append(
            _Pack(
                ids,
                torch.tensor(rows),
                torch.tensor(columns),
                torch.frombuffer(bytearray(behaviour), dtype=torch.float32),
                torch.tensor([advantages[index] for index in owners]),
                torch.tensor([shares[index] for index in owners]),
            )
        )
    return found


def _score(model: Any, pack: _Pack) -> torch.Tensor:
    """Log-probabilities of the pack's action tokens."""
    hidden = model.base_model(input_ids=pack.ids, use_cache=False).last_hidden_state[pack.rows, pack.columns]
    logits = model.get_output_embeddings()(hidden)
    targets = pack.ids[pack.rows, pack.columns + 1]
    return torch.log_softmax(logits, dim=-1).gather(-1, targets[:, None])[:, 0]


def prepare(threads: int) -> None:
    """The learner's numerics, for both."""
    configure(threads)
