"""Facts about a run as a whole."""

from typing import Any

import msgspec

from hindcast.core.plugins import PluginIdentity
from hindcast.events.envelope import BlobRef, Fact
from hindcast.events.registry import fact


class Fingerprint(msgspec.Struct, frozen=True, kw_only=True):
    """What decides whether floating-point results come out bit-equal."""

    cpu_capability: str
    """torch's instruction set level, such as `AVX512`."""
    threads: int
    """Threads the learner computes with."""
    blas: str
    torch: str
    transformers: str
    python: str
    platform: str
    """Operating system and architecture; where the learner computes on a GPU, which one, and CUDA's release; where
    several processes compute each update together, how many."""
    processor: str = ""
    """Vendor, family and model: matrix libraries choose their kernels by it. Empty: recorded before it was noted."""


@fact("run.started", family="run", version=3)
class RunStarted(Fact, frozen=True, kw_only=True):
    """The first event of every log."""

    settings: dict[str, Any]
    """All settings, resolved."""
    recipe: str
    run_seed: int
    packages: dict[str, str]
    """Installed versions that matter."""
    fingerprint: Fingerprint
    base_policy: BlobRef
    """Weights of policy version 0 (safetensors)."""
    base_policy_name: str
    behaviour: dict[str, str]
    """Named, versioned parts that shape what is sampled: renderer, grammar, prompt, evaluators."""
    plugins: tuple[PluginIdentity, ...] = ()
    """The plugins that the run uses. Empty: recorded before they were noted."""


@fact("run.resumed", family="run", version=2)
class RunResumed(Fact, frozen=True, kw_only=True):
    """The system was started again on an existing log."""

    after_position: int
    fingerprint: Fingerprint
    until: dict[str, int]
    """The finite goal of this start (`updates`, `episodes`, `minutes`); empty when open-ended."""


@fact("run.forked", family="run", version=4)
class RunForked(Fact, frozen=True, kw_only=True):
    """This run's prefix is another run's. The first event of its own, at `at_position + 1`."""

    parent: str
    at_position: int
    parent_digest: bytes
    """Rolling digest of the parent's log up to `at_position`."""
    start: RunStarted | None
    """What `run.started` would say of the fork: its settings hold from here on. None: of version 1, the parent's hold."""


@fact("run.finished", family="run")
class RunFinished(Fact, frozen=True, kw_only=True):
    """A finite goal was reached; the run may be resumed with another."""

    reason: str
    updates: int
    episodes: int


@fact("recipe.changed", family="run")
class RecipeChanged(Fact, frozen=True, kw_only=True):
    """From here on other settings hold."""

    author: str
    reason: str
    changes: dict[str, Any]
