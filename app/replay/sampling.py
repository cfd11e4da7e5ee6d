"""`hindcast replay sampling`: recomputes recorded answers from the recorded weights, prompts and seeds.

    log ── sampled episodes, weights ──> per policy version ── Rescorer: log-probabilities, draws
                                                             └─ InProcessEngine: the answer generated anew

Invariant 9: nothing is appended; the blobs are only read.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

import msgspec

from hindcast.actors.engines.in_process import InProcessEngine
from hindcast.actors.engines.rescorer import GivenAnswer, Rescored, Rescorer
from hindcast.actors.replay.recorded import EpisodeSelection, recorded_episodes
from hindcast.actors.replay.sampling import (
    TOLERANCE,
    AnswerReplay,
    Origins,
    differing_tokens,
    read_origins,
    recorded_logprobs,
    version_of,
)
from hindcast.app.replay.steps import NothingToReplay
from hindcast.app.runs.sources import Source
from hindcast.core.domain.arrays import unpack_ids
from hindcast.core.models.engine import find_engine
from hindcast.core.models.folders import policy_folder
from hindcast.core.seeds import derive_seed
from hindcast.events.log.episode_assembler import AssembledStep
from hindcast.learner.forward_passes import ScreenshotStore
from hindcast.storage.blobs.store import BlobStore

DEMONSTRATED = -1
CHUNK = 32
"""Answers computed together: the engine's usual batch."""


class SamplingReport(msgspec.Struct, frozen=True, kw_only=True):
    """Results of recomputing the answers."""

    run: str
    episodes: int
    answers: int
    """Answers sampled by a policy whose weights are there; all figures are about them."""
    tokens: int
    versions: tuple[int, ...]
    tolerance: float
    largest_difference: float
    """Largest difference of a log-probability."""
    beyond: int
    """Tokens beyond the tolerance."""
    not_drawn: int
    """Tokens that their recorded seed does not draw."""
    rounded: int
    """Tokens that their seed draws except for rounding."""
    regenerated_alike: int
    """Answers that are generated again token for token."""
    differing_tokens: int
    seeds_derived: int
    """Answers whose recorded seed follows from the run's seed."""
    differing: tuple[AnswerReplay, ...]
    """Answers that do not follow from weights, prompt and seed."""
    otherwise: tuple[AnswerReplay, ...]
    """Answers that differ only by rounding."""
    demonstrated: int
    """Steps that no policy sampled."""
    mixed: int
    """Steps whose tokens name more than one version; they are not checked."""
    released: dict[int, int]
    """Version -> steps whose weights the retention rule deleted; `hindcast verify` recomputes those weights."""
    batch_invariant: bool
    """Whether vLLM servers computed each answer alike whatever else they computed (`vllm.batch_invariant`)."""
    missing: dict[int, int]
    """Version -> steps whose weights are missing although they should be there."""


async def replay_sampling(
    source: Source, wanted: EpisodeSelection, *, said: Callable[[int], None] = lambda _: None
) -> SamplingReport:
    """Recompute the answers of the selected episodes. `said` is called with finished answers.

    Raises:
        NothingToReplay: there is no such episode.
        NoSuchEpisode, CorruptEvent, BlobCorrupt, ModelFileError.

    """
    async with source.connect_log() as log:
        origins = await read_origins(log)
        episodes = [episode async for episode in recorded_episodes(log, wanted)]
    if not episodes:
        raise NothingToReplay(
            f"run {source.name} has begun none of the selected episodes. Run: hindcast episode list {source.name}"
        )
    lot = _Lot(origins, source.blobs)
    for episode in episodes:
        for step in episode.steps:
            lot.add(step)
    replays: list[AnswerReplay] = []
    if lot.by_version:
        async with _Again(source, run_seeds=origins.run_seeds) as again:
            for version, steps in sorted(lot.by_version.items()):
                ref = origins.refs[version]
                source.blobs.get(ref)  # checks the digest
                await again.adopt(version, source.blobs.path(ref))
                for first in range(0, len(steps), CHUNK):
                    replays += await again.replay(version, steps[first : first + CHUNK])
                    said(len(replays))
    settings = source.settings
    served = find_engine(settings.policy.engine).traits.uses_policy_servers
    invariant = served and settings.vllm.batch_invariant
    return _report(source.name, len(episodes), lot, replays, batch_invariant=invariant)


class _Lot:
    """Steps sorted by what can be computed for them."""

    def __init__(self, origins: Origins, blobs: BlobStore) -> None:
        self._origins = origins
        self._blobs = blobs
        self.by_version: dict[int, list[AssembledStep]] = {}
        self.demonstrated = 0
        self.mixed = 0
        self.released: Counter[int] = Counter()
        self.missing: Counter[int] = Counter()

    def add(self, step: AssembledStep) -> None:
        version = version_of(step)
        if version is None:
            self.mixed += 1
        elif version == DEMONSTRATED:
            self.demonstrated += 1
        elif (ref := self._origins.refs.get(version)) is not None and self._blobs.has(ref):
            self.by_version.setdefault(version, []).append(step)
        elif ref is not None and ref.sha256 in self._origins.released:
            self.released[version] += 1
        else:
            self.missing[version] += 1


class _Again:
    """The model twice: to score answers, and as the engine that samples."""

    def __init__(self, source: Source, *, run_seeds: Collection[int]) -> None:
        settings = source.settings
        folder = policy_folder(settings.policy.base)
        self._album = ScreenshotStore(folder, source.blobs)
        self._run_seeds = run_seeds
        self._rescorer = Rescorer(
            folder,
            threads=settings.policy.threads,
            tokens_per_forward=settings.learner.tokens_per_forward,
            device=settings.policy.model_device,
        )
        self._engine = InProcessEngine(folder, settings.policy)

    async def __aenter__(self) -> "_Again":
        return self

    async def __aexit__(self, *raised: object) -> None:
        await self._engine.close()

    async def adopt(self, version: int, weights: Path) -> None:
        await asyncio.to_thread(self._rescorer.load, weights)
        await self._engine.adopt(version, weights)

    async def replay(self, version: int, steps: Sequence[AssembledStep]) -> list[AnswerReplay]:
        given = await asyncio.to_thread(lambda: [_given(step, self._album) for step in steps])
        rescored = await asyncio.to_thread(self._rescorer.rescore, given)
        generated = await asyncio.gather(
            *(
                self._engine.generate_seeing(
                    answer.prompt_ids, answer.pictures, answer.sampling, answer.allowed or None
                )
                for answer in given
            )
        )
        return [
            self._replay(version, step, answer, score, again.token_ids)
            for step, answer, score, again in zip(steps, given, rescored, generated, strict=True)
        ]

    def _replay(
        self, version: int, step: AssembledStep, answer: GivenAnswer, score: Rescored, again: list[int]
    ) -> AnswerReplay:
        fact = step.fact
        seeds = {derive_seed(seed, "episode", fact.episode, "step", fact.index) for seed in self._run_seeds}
        return AnswerReplay(
            episode=fact.episode,
            step=fact.index,
            position=step.position,
            version=version,
            tokens=len(answer.action_ids),
            largest_difference=max(score.differences, default=0.0),
            beyond=sum(not difference <= TOLERANCE for difference in score.differences),
            not_drawn=sum(not miss <= TOLERANCE for miss in score.misses),
            rounded=sum(0.0 < miss <= TOLERANCE for miss in score.misses),
            differing_tokens=differing_tokens(answer.action_ids, again),
            seed_derived=fact.sampling.seed in seeds,
        )


def _given(step: AssembledStep, album: ScreenshotStore) -> GivenAnswer:
    return GivenAnswer(
        prompt_ids=unpack_ids(step.fact.prompt_ids).tolist(),
        action_ids=unpack_ids(step.fact.action_ids).tolist(),
        logprobs=recorded_logprobs(step),
        sampling=step.fact.sampling,
        allowed=step.fact.allowed,
        pictures=album.seen(step.fact.pictures),
    )


def _report(
    run: str, episodes: int, lot: _Lot, replays: Sequence[AnswerReplay], *, batch_invariant: bool
) -> SamplingReport:
    return SamplingReport(
        run=run,
        episodes=episodes,
        answers=len(replays),
        tokens=sum(replay.tokens for replay in replays),
        versions=tuple(sorted(lot.by_version)),
        tolerance=TOLERANCE,
        largest_difference=max((replay.largest_difference for replay in replays), default=0.0),
        beyond=sum(replay.beyond for replay in replays),
        not_drawn=sum(replay.not_drawn for replay in replays),
        rounded=sum(replay.rounded for replay in replays),
        regenerated_alike=sum(replay.differing_tokens == 0 for replay in replays),
        differing_tokens=sum(replay.differing_tokens for replay in replays),
        seeds_derived=sum(replay.seed_derived for replay in replays),
        differing=tuple(replay for replay in replays if replay.differs),
        otherwise=tuple(replay for replay in replays if replay.differing_tokens and not replay.differs),
        demonstrated=lot.demonstrated,
        mixed=lot.mixed,
        batch_invariant=batch_invariant,
        released=dict(sorted(lot.released.items())),
        missing=dict(sorted(lot.missing.items())),
    )
