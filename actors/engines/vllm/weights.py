"""How a vLLM server tells which version its answers are of: whole weights by their label, adapters by their names.

Invariant "Adopted is not published": the server labels every token with the weights that it was sampled from
(`weight_versions`), and says `default` of weights that nobody gave it. A label of ours names the run's log and a version, so
that an answer from the weights of another run, be it of the same name in another home, from weights of unknown origin or
from an older version is never taken for one of ours.

    whole weights   label log:VERSION on every token
    adapters        label log:0 on every token, since the weights below stay the first ones, and `model` is log:VERSION;
                    version 0 has no adapter

An adapter's name stands for one version for ever, so an answer that begins with it ends with it.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

import msgspec

from hindcast.actors.engines.vllm.server import VllmServer
from hindcast.core.errors import HindcastError
from hindcast.core.settings.schema import Settings


class WrongVersion(HindcastError):
    """A server sampled from other weights than it is expected to have."""


class Unusable(HindcastError):
    """A server's answer cannot be read, or lacks what every answer needs."""


class Span(msgspec.Struct, frozen=True):
    """Output tokens `[start, end)` were sampled by weights of this label."""

    version: str
    start: int
    end: int


def label_of(run: str, version: int) -> str:
    """What a server's weights, or an adapter, are called. `run`: its log's name (`events.log.run_identity.log_name`), here and
    below.
    """
    return f"{run}:{version}"


def version_in(label: str, run: str) -> int | None:
    """The version that a label names; None: it is not one of this run's."""
    name, _, version = label.rpartition(":")
    return int(version) if name == run and version.isdecimal() else None


def versions_in(labels: Iterable[str], run: str) -> list[int]:
    """The versions that labels name, of this run alone, sorted."""
    return sorted(version for label in labels if (version := version_in(label, run)) is not None)


class ServedWeights(Protocol):
    """What a question and its answer say of versions."""

    run: str

    def named(self, version: int) -> Mapping[str, str]:
        """The fields of a request that ask for a version. Prompts read under another salt are not taken from the cache."""
        ...

    def versions(self, spans: Sequence[Span], tokens: int, *, model: str, asked: int) -> list[int]:
        """The version of each token of an answer to what was asked of the version `asked`.

        Raises:
            WrongVersion: some token was sampled from weights that are not this run's, or not those that were named.
            Unusable: not every token has a version.

        """
        ...

    async def shown_by(self, server: VllmServer, *, timeout_s: float) -> int | None:
        """The newest version that a server has now; None: none of this run. Raises ServerTroubled, EngineFailed."""
        ...


def served_weights(settings: Settings, run: str) -> ServedWeights:
    """What a run's servers are given: its published weights, or the adapters that are trained in their place."""
    return Adapters(run) if settings.learner.lora_rank else WholeWeights(run)


class WholeWeights:
    """A server has one version, and samples everything from it; an answer under way may come from two."""

    def __init__(self, run: str) -> None:
        self.run = run

    def named(self, version: int) -> Mapping[str, str]:
        """See `ServedWeights.named`: a server has one version at a time, and nobody chooses."""
        return {"cache_salt": label_of(self.run, version)}

    def versions(self, spans: Sequence[Span], tokens: int, *, model: str, asked: int) -> list[int]:
        """See `ServedWeights.versions`."""
        return versions_of(spans, tokens, self.run)

    async def shown_by(self, server: VllmServer, *, timeout_s: float) -> int | None:
        """See `ServedWeights.shown_by`."""
        return version_in(await server.label(timeout_s=timeout_s), self.run)


class Adapters:
    """A server has the first weights and some versions' adapters; a question names the one it is asked of."""

    def __init__(self, run: str) -> None:
        self.run = run

    def named(self, version: int) -> Mapping[str, str]:
        """See `ServedWeights.named`: without a model's name a server samples from the weights below."""
        name = label_of(self.run, version)
        return {"cache_salt": name, "model": name} if version else {"cache_salt": name}

    def versions(self, spans: Sequence[Span], tokens: int, *, model: str, asked: int) -> list[int]:
        """See `ServedWeights.versions`."""
        if any(versions_of(spans, tokens, self.run)):
            raise WrongVersion(
                f"it samples from weights labelled {', '.join(span.version for span in spans)}, where adapters stand on "
                f"{label_of(self.run, 0)!r}"
            )
        if asked and model != label_of(self.run, asked):
            raise WrongVersion(
                f"it answers as {model!r}, where adapter {label_of(self.run, asked)!r} was asked for"
            )
        return [asked] * tokens

    async def shown_by(self, server: VllmServer, *, timeout_s: float) -> int | None:
        """See `ServedWeights.shown_by`."""
        if version_in(await server.label(timeout_s=timeout_s), self.run) != 0:
            return None
        return max(versions_in(await server.models(timeout_s=timeout_s), self.run), default=0)


def versions_of(spans: Sequence[Span], tokens: int, run: str) -> list[int]:
    """The version on each token. Raises WrongVersion, Unusable."""
    found: list[int] = []
    for span in spans:
        version = version_in(span.version, run)
        if version is None:
            raise WrongVersion(
                f"it samples from weights labelled {span.version!r}, which are not run {run}'s"
            )
        if span.start != len(found):
            raise Unusable(f"versions of tokens {span.start} to {span.end} came where {len(found)} was due")
        found += [version] * (span.end - span.start)
    if len(found) != tokens:
        raise Unusable(
            f"{tokens} tokens came with the versions of {len(found)}: vLLM 0.32 or newer names all"
        )
    return found
