"""Facts about a run as a whole."""

from typing import Any, Literal

import msgspec

from hindcast.core.plugins import PluginIdentity
from hindcast.events.envelope import BlobRef, Fact
from hindcast.events.registry import fact
from hindcast.events.subjects import LEARNER, RUN


class Fingerprint(msgspec.Struct, frozen=True, kw_only=True):
    """The conditions under which floating-point results are bit-equal."""

    cpu_capability: str
    """torch's instruction set level, such as `AVX512`."""
    threads: int
    """Threads of the learner."""
    blas: str
    torch: str
    transformers: str
    python: str
    platform: str
    """Operating system and architecture; with a GPU also its model and CUDA's release; with several learner processes also
    their number."""
    processor: str = ""
    """Vendor, family and model, by which matrix libraries choose kernels. Empty in older events."""
    details: dict[str, str] = {}
    """Further facts by name: of a GPU, its software and its collectives, and environment variables that choose kernels."""


@fact("run.started", subject=RUN, roles="admin", version=4)
class RunStarted(Fact, frozen=True, kw_only=True):
    """A run started: the first event of every log."""

    settings: dict[str, Any]
    """All resolved settings."""
    recipe: str
    run_seed: int
    packages: dict[str, str]
    """Versions of the relevant packages."""
    fingerprint: Fingerprint
    base_policy: BlobRef
    """Weights of policy version 0 (safetensors)."""
    base_policy_name: str
    behaviour: dict[str, str]
    """Named, versioned parts that shape what is sampled: renderer, grammar, prompt, evaluators."""
    plugins: tuple[PluginIdentity, ...] = ()
    """The plugins that the run uses. Empty: recorded before they were noted."""


@fact("run.resumed", subject=RUN, roles="admin", version=3, refs={"after_position": "position"})
class RunResumed(Fact, frozen=True, kw_only=True):
    """The system started again on an existing log."""

    after_position: int
    fingerprint: Fingerprint
    until: dict[str, int]
    """Finite goal of this start (`updates`, `episodes`, `minutes`); empty if open-ended."""


class Derivation(msgspec.Struct, frozen=True, kw_only=True):
    """How a run was derived from its parent by `hindcast without`: what its updates leave out, and how they were planned."""

    choice: str
    """What is left out, in the words of the command."""
    episodes: tuple[str, ...]
    """Episodes of the parent, before and after the fork position, that nothing is trained on."""
    plans: Literal["again", "keep"]
    """`again`: planned by the rules from what remains; `keep`: the recorded batches, less what is left out."""
    judge: str
    """Judge whose verdicts replace those of the parent's training judge; empty: none."""
    until: int
    """Position of the parent up to which it was derived."""
    until_digest: bytes
    """Rolling digest of the parent's log up to there."""


@fact("run.forked", subject=RUN, roles="admin", version=6, refs={"at_position": "position"})
class RunForked(Fact, frozen=True, kw_only=True):
    """This run is a fork of another run's prefix: the first event of its own, at `at_position + 1`."""

    parent: str
    at_position: int
    parent_digest: bytes
    """Rolling digest of the parent's log up to `at_position`."""
    start: RunStarted | None
    """The fork's own `run.started`, whose settings apply from here on. None in version 1: the parent's settings apply."""
    derived: Derivation | None = None
    """None: an ordinary fork, which continues with episodes of its own."""


@fact("learner.started", subject=LEARNER, roles="learner")
class LearnerStarted(Fact, frozen=True, kw_only=True):
    """A learner started on a machine, or with software, other than those recorded last. Its next updates are computed there."""

    fingerprint: Fingerprint


@fact("run.finished", subject=RUN, roles="admin")
class RunFinished(Fact, frozen=True, kw_only=True):
    """The run reached its finite goal; it may be resumed with another."""

    reason: str
    updates: int
    episodes: int


@fact("recipe.changed", subject=RUN, roles="admin")
class RecipeChanged(Fact, frozen=True, kw_only=True):
    """Settings changed; the changed ones apply from here on."""

    author: str
    reason: str
    changes: dict[str, Any]
