"""The judge `webrl_orm`: WebRL's published outcome reward model, which the run does not train (arXiv 2411.02337).

It reads the released prompt (`core.prompts.webrl_verdict_prompt`) and says success where P(YES) over {YES, NO} is at least
`judge.orm_threshold`. The model is a local folder computed in this process, or a vLLM server serves it.

The judge's version combines the prompt's version, the folder's name and a digest of the folder's files, so that another
checkpoint's verdict is a separate event.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from hashlib import sha256
from pathlib import Path
from threading import Lock
from typing import Any, Protocol

from hindcast.actors.engines.vllm.choice import ServedChoice
from hindcast.actors.engines.vllm.server import ServerTroubled, VllmServer
from hindcast.actors.engines.vllm.weights import Unusable
from hindcast.actors.judges.base import Verdict, undecided
from hindcast.actors.judges.judged_episode import EpisodeTranscript, JudgedEpisode
from hindcast.actors.judges.orm import judgment_of
from hindcast.core.domain.arrays import pack_ids
from hindcast.core.models.auxiliary import OutcomeModel
from hindcast.core.models.model_files import CONFIG, TOKENIZER
from hindcast.core.models.tokenizer import load_tokenizer
from hindcast.core.prompts.prompt import Prompt
from hindcast.core.prompts.verdict_prompt import AnswerIds, answer_ids
from hindcast.core.prompts.webrl_verdict_prompt import PROMPT_DIGEST, WEBRL_ORM, build_webrl_verdict_prompt
from hindcast.core.settings.schema import Settings
from hindcast.events.catalogue.verdict import JudgeIdentity, Reading

FORMAT_VERSION = "1"
UNTRAINED = 0
"""`Reading.model_version` of a model that the run does not train."""

_OTHER = re.compile(r"[^a-z0-9]+")


class OutcomeScorer(Protocol):
    """Computes P(YES) of a prompt."""

    async def probability(self, prompt_ids: Sequence[int]) -> float:
        """P(YES) over {YES, NO}, in [0, 1]."""
        ...


class LocalScorer:
    """Computes the model in this process, one prompt at a time."""

    def __init__(self, model: OutcomeModel) -> None:
        self._model = model
        self._computing = Lock()

    async def probability(self, prompt_ids: Sequence[int]) -> float:
        """See `OutcomeScorer`."""
        return await asyncio.to_thread(self._probability, prompt_ids)

    def _probability(self, prompt_ids: Sequence[int]) -> float:
        with self._computing:
            return self._model.probability(prompt_ids)


class ServedScorer:
    """Scores with a model that a vLLM server holds."""

    def __init__(self, choice: ServedChoice, answers: AnswerIds) -> None:
        self._choice = choice
        self._answers = answers

    async def probability(self, prompt_ids: Sequence[int]) -> float:
        """See `OutcomeScorer`. Raises ServerTroubled, Unusable, EngineFailed."""
        return await self._choice.probability(prompt_ids, token=self._answers.yes, other=self._answers.no)


class WebrlOrmJudge:
    """Judges by the published model."""

    asks_model = True

    def __init__(self, tokenizer: Any, scorer: OutcomeScorer, *, version: str, settings: Settings) -> None:
        self.identity = JudgeIdentity(name=WEBRL_ORM, version=version, prompt_digest=PROMPT_DIGEST)
        self._tokenizer = tokenizer
        self._scorer = scorer
        self._settings = settings.judge
        self._encoding = Lock()

    async def judge(self, episode: JudgedEpisode) -> Verdict:
        """Compute whether the agent reached its goal.

        Raises:
            SettingsError: instruction and answers leave no room for the page.
            EngineFailed: the server rejects the prompt.
        """
        prompt = await asyncio.to_thread(self._prompt, await episode.transcript())
        try:
            probability = await self._scorer.probability(prompt.ids)
        except (ServerTroubled, Unusable) as error:
            return undecided(f"outage: {error}", may_pass=True)
        return Verdict(
            judgment=judgment_of(probability, threshold=self._settings.orm_threshold),
            reading=Reading(
                prompt_ids=pack_ids(prompt.ids),
                truncated=prompt.truncated,
                model_version=UNTRAINED,
                probability=probability,
            ),
        )

    def _prompt(self, story: EpisodeTranscript) -> Prompt:
        page = story.final_page()
        with self._encoding:
            return build_webrl_verdict_prompt(
                self._tokenizer,
                instruction=story.instruction,
                answers=story.answers,
                ended_itself=story.ended_itself,
                page=page,
                max_tokens=self._settings.webrl_orm_tokens,
            )


@asynccontextmanager
async def open_webrl_orm(settings: Settings) -> AsyncIterator[WebrlOrmJudge]:
    """Open the judge under these settings, with its model loaded or its server's connections open.

    Raises ModelFileError when the folder cannot be loaded.
    """
    folder, address = Path(settings.judge.webrl_orm), settings.judge.webrl_orm_server
    if address:
        tokenizer = await asyncio.to_thread(load_tokenizer, folder)
        version = await asyncio.to_thread(model_version, folder, served=True)
        async with VllmServer(address) as server:
            choice = ServedChoice(server, timeout_s=settings.judge.timeout_s)
            scorer = ServedScorer(choice, answer_ids(tokenizer))
            yield WebrlOrmJudge(tokenizer, scorer, version=version, settings=settings)
        return
    policy = settings.policy
    model = await asyncio.to_thread(
        lambda: OutcomeModel(folder, None, threads=policy.threads, device=policy.model_device)
    )
    version = await asyncio.to_thread(model_version, folder, served=False)
    yield WebrlOrmJudge(model.tokenizer, LocalScorer(model), version=version, settings=settings)


def model_version(folder: Path, *, served: bool) -> str:
    """The judge's version, such as `1-webrl-orm-llama-3-1-8b-8a1f22c0`: prompt version, folder name, digest of its files.

    A served model has the suffix `-vllm`, because its probabilities differ in their last digits.
    """
    digest = sha256()
    for path in sorted([folder / CONFIG, folder / TOKENIZER, *folder.glob("*.safetensors")]):
        if path.is_file():
            digest.update(f"{path.name} {path.stat().st_size}\n".encode())
            with path.open("rb") as content:
                while chunk := content.read(1 << 20):
                    digest.update(chunk)
    spelled = _OTHER.sub("-", folder.resolve().name.lower()).strip("-")[:40]
    return f"{FORMAT_VERSION}-{spelled}-{digest.hexdigest()[:8]}{'-vllm' if served else ''}"
