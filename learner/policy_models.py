"""The policy's models of one run: the trained one, its reference, and plain copies of the base policy.

All start from the base weights in the blob store, on the device and with the memory options of the settings. A model is made
without weights and sharded; then each process reads its shards of one tensor after the other. So no process holds more than
its part and one whole tensor.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import torch

from hindcast.core.errors import BlobMissing
from hindcast.core.models.adapter import adapter_of, adapter_off, add_adapter, initialize_adapter
from hindcast.core.models.arithmetic import (
    device_for,
    precision_for,
    recompute_activations,
    round_frozen_layers,
)
from hindcast.core.models.attention import attention_for
from hindcast.core.models.logprobs import FLOAT32_HEAD, computes_packed_alike
from hindcast.core.models.policy import allocate_weights, load_weights, model_without_weights, weights_of
from hindcast.core.models.sharded_tensors import is_split, whole
from hindcast.core.models.token_trees import can_share, reach_back
from hindcast.core.models.vision import freeze_tower
from hindcast.core.seeds import derive_seed
from hindcast.core.settings.schema import LearnerSettings
from hindcast.events.catalogue import BatchPlanned
from hindcast.events.envelope import BlobRef
from hindcast.learner.buffer.records import Batch
from hindcast.learner.distributed.ranks import Ranks
from hindcast.storage.blobs.store import BlobStore


class Policies:
    """Makes the policy's models, and keeps the KL's reference policy."""

    def __init__(
        self, folder: Path, base: BlobRef, *, blobs: BlobStore, settings: LearnerSettings, ranks: Ranks
    ) -> None:
        """`folder`: the policy that the base weights `base` belong to."""
        self._folder = folder
        self._base = base
        self._blobs = blobs
        self._settings = settings
        self._ranks = ranks
        self._device = device_for(settings.device)
        self._precision = precision_for(settings.precision, self._device)
        self._reference: tuple[int, Any] | None = None
        """Version and model of the last reference policy."""
        self.joinable = False
        """Whether sequences can share one row; known once the trained model is made, as is `reach`."""
        self.reach: int | None = None
        """How far back the model's convolutions see, if samples that begin alike share their tokens; None: they do not."""

    def plain(self) -> Any:
        """A model with the base weights. Raises ModelFileError, BlobMissing, BlobCorrupt."""
        return self._loaded(self._without_weights(), self._base)

    def copy_of(self, policy: Any) -> Any:
        """A model with the weights that the trained one has now. Raises as `plain`."""
        return _with_weights_of(policy, self.plain())

    def trained(self) -> Any:
        """The model to train, before its first update. Raises as `plain`."""
        model, settings = self._without_weights(), self._settings
        freeze_tower(model)
        if settings.lora_rank:
            add_adapter(
                model, rank=settings.lora_rank, alpha=settings.lora_alpha, targets=settings.lora_targets
            )
            round_frozen_layers(model, self._precision, head=not self._settings.float32_head)
        if settings.gradient_checkpointing:
            recompute_activations(model)
        model = self._loaded(self._ranks.spread(model, self._device), self._base)
        if settings.lora_rank:
            initialize_adapter(model, seed=derive_seed(0, "adapter", self._base.sha256))
        self.joinable = settings.packed_sequences and computes_packed_alike(model, self._precision)
        shares = settings.shared_prefixes and settings.attention == "sdpa"
        self.reach = reach_back(model) if shares and can_share(model, self._precision) else None
        return model

    @contextmanager
    def reference(self, policy: Any, plan: BatchPlanned, batch: Batch) -> Iterator[Any]:
        """The plan's reference policy for the KL, within the context.

        Raises:
            BlobMissing: its weights were released.
        """
        version = plan.reference_version
        assert version is not None
        if not self._settings.lora_rank:
            if self._reference is None or self._reference[0] != version:
                self._reference = version, self._frozen(policy, version, plan, batch)
            yield self._reference[1]
            return
        with ExitStack() as changed:
            if version == 0:
                changed.enter_context(adapter_off(policy))
            elif version != plan.version:
                path = self._blobs.checked_path(_kept(plan, batch))
                changed.enter_context(_adapter_swapped(policy, path))
            yield policy

    def _frozen(self, policy: Any, version: int, plan: BatchPlanned, batch: Batch) -> Any:
        """A separate model with the weights of a version."""
        model = self._without_weights().requires_grad_(False)
        round_frozen_layers(model, self._precision, head=not self._settings.float32_head)
        model = self._ranks.spread(model, self._device)
        if version == plan.version and version != 0:
            allocate_weights(model, self._device)
            return _with_weights_of(policy, model)
        return self._loaded(model, self._base if version == 0 else _kept(plan, batch))

    def _without_weights(self) -> Any:
        """A model without weights."""
        model, settings = model_without_weights(self._folder), self._settings
        attention = attention_for(
            settings.attention, self._device, self._precision, version=settings.arithmetic
        )
        if attention != "sdpa":
            model.set_attn_implementation(attention)
        setattr(model, FLOAT32_HEAD, settings.float32_head)
        return model

    def _loaded(self, model: Any, weights: BlobRef) -> Any:
        """The model with these weights, on its device."""
        allocate_weights(model, self._device)
        load_weights(model, self._blobs.checked_path(weights))
        return model


def _with_weights_of(policy: Any, model: Any) -> Any:
    """`model` with the weights of `policy`, which may be sharded although `model` is not."""
    weights = weights_of(model)
    with torch.no_grad():
        for name, value in weights_of(policy).items():
            weights[name].copy_(value if is_split(weights[name]) else whole(value))
    return model


def _kept(plan: BatchPlanned, batch: Batch) -> BlobRef:
    if batch.reference is None:
        raise BlobMissing(
            f"batch {plan.batch} takes its KL to version {plan.reference_version}, whose weights were released: recompute "
            "from an earlier position. Run: hindcast verify"
        )
    return batch.reference


@contextmanager
def _adapter_swapped(model: Any, path: Path) -> Iterator[None]:
    """Replace the model's adapter by that of a file within the context."""
    original = {name: value.clone() for name, value in adapter_of(model).items()}
    load_weights(model, path)
    try:
        yield
    finally:
        with torch.no_grad():
            for name, value in adapter_of(model).items():
                value.copy_(original[name])
