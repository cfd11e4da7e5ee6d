"""Which version a vLLM server's answers are from: whole weights by their label, adapters by their names.

Invariant "Adopted is not published": the server labels every token with the weights that sampled it
(`weight_versions`), and labels weights that were never labelled `default`. Our label names the run's log and a version.
So an answer from another run's weights, even of the same name in another home, from unknown weights or from an older
version is never mistaken for ours.

    whole weights   label log:VERSION on every token
    adapters        label log:0 on every token, because the base weights never change, and `model` is log:VERSION;
                    version 0 has no adapter

An adapter's name denotes one version forever, so an answer has one version.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

import msgspec

from hindcast.actors.engines.vllm.server import VllmServer
from hindcast.core.errors import HindcastError
from hindcast.core.settings.schema import Settings


class WrongVersion(HindcastError):
    """A server sampled from other weights than expected."""


class Unusable(HindcastError):
    """A server's answer cannot be parsed, or lacks a required field."""


class Span(msgspec.Struct, frozen=True):
    """Output tokens `[start, end)` were sampled by weights of this label."""

    version: str
    start: int
    end: int


def label_of(run: str, version: int) -> str:
    """The label of a server's weights, or an adapter's name. `run`: the name of its log (`events.log.run_identity.log_name`),
    here and below.
    """
    return f"{run}:{version}"


def version_in(label: str, run: str) -> int | None:
    """The version that a label names; None: the label is of another run."""
    name, _, version = label.rpartition(":")
    return int(version) if name == run and version.isdecimal() else None


def versions_in(labels: Iterable[str], run: str) -> list[int]:
    """The versions that labels name, of this run alone, sorted."""
    return sorted(version for label in labels if (version := version_in(label, run)) is not None)


class ServedWeights(Protocol):
    """How requests and answers name versions."""

    run: str

    def request_fields(self, version: int) -> Mapping[str, str]:
        """The fields of a request that name a version. The cache salt keeps prompts of other versions out."""
        ...

    def versions(self, spans: Sequence[Span], tokens: int, *, model: str, requested: int) -> list[int]:
        """The version of each token of an answer to a request for the version `requested`.

        Raises:
            WrongVersion: some token was sampled from weights of another run, or of another version than requested.
            Unusable: some token has no version.
        """
        ...

    async def shown_by(self, server: VllmServer, *, timeout_s: float) -> int | None:
        """The newest version that a server has now; None: none of this run. Raises ServerTroubled, EngineFailed."""
        ...


def served_weights(settings: Settings, run: str) -> ServedWeights:
    """The kind of weights that a run's servers get: its published weights, or the adapters trained in their place."""
    return Adapters(run) if settings.learner.lora_rank else WholeWeights(run)


class WholeWeights:
    """A server has one version at a time and samples everything from it; a running answer may span two."""

    def __init__(self, run: str) -> None:
        self.run = run

    def request_fields(self, version: int) -> Mapping[str, str]:
        """See `ServedWeights.request_fields`: a server has one version at a time, so a request cannot choose."""
        return {"cache_salt": label_of(self.run, version)}

    def versions(self, spans: Sequence[Span], tokens: int, *, model: str, requested: int) -> list[int]:
        """See `ServedWeights.versions`."""
        return versions_of(spans, tokens, self.run)

    async def shown_by(self, server: VllmServer, *, timeout_s: float) -> int | None:
        """See `ServedWeights.shown_by`."""
        return version_in(await server.label(timeout_s=timeout_s), self.run)


class Adapters:
    """A server has the base weights and some versions' adapters; a request names its adapter."""

    def __init__(self, run: str) -> None:
        self.run = run

    def request_fields(self, version: int) -> Mapping[str, str]:
        """See `ServedWeights.request_fields`: without a model's name a server samples from the base weights."""
        name = label_of(self.run, version)
        return {"cache_salt": name, "model": name} if version else {"cache_salt": name}

    def versions(self, spans: Sequence[Span], tokens: int, *, model: str, requested: int) -> list[int]:
        """See `ServedWeights.versions`."""
        if any(versions_of(spans, tokens, self.run)):
            raise WrongVersion(
                f"it samples from weights labelled {', '.join(span.version for span in spans)}, where adapters stand on "
                f"{label_of(self.run, 0)!r}"
            )
        if requested and model != label_of(self.run, requested):
            raise WrongVersion(
                f"it answers as {model!r}, where adapter {label_of(self.run, requested)!r} was asked for"
            )
        return [requested] * tokens

    async def shown_by(self, server: VllmServer, *, timeout_s: float) -> int | None:
        """See `ServedWeights.shown_by`."""
        if version_in(await server.label(timeout_s=timeout_s), self.run) != 0:
            return None
        return max(versions_in(await server.models(timeout_s=timeout_s), self.run), default=0)


def versions_of(spans: Sequence[Span], tokens: int, run: str) -> list[int]:
    """The version of each token. Raises WrongVersion, Unusable."""
    versions: list[int] = []
    for span in spans:
        version = version_in(span.version, run)
        if version is None:
            raise WrongVersion(
                f"it samples from weights labelled {span.version!r}, which are not run {run}'s"
            )
        if span.start != len(versions):
            raise Unusable(
                f"versions of tokens {span.start} to {span.end} came where {len(versions)} was due"
            )
        versions += [version] * (span.end - span.start)
    if len(versions) != tokens:
        raise Unusable(
            f"{tokens} tokens came with the versions of {len(versions)}: vLLM 0.32 or newer names all"
        )
    return versions
