"""Visits to the store without a browser, noted down step by step as an actor does."""

from random import Random

import msgspec

from hindcast.actors.environments.store.families import DEMONSTRATORS
from hindcast.actors.environments.store.hindsight import Hindsight, Walk, hindsight_of
from hindcast.actors.episodes.prompt_reader import prompt_of
from hindcast.core.domain.action import Action
from hindcast.core.domain.arrays import pack_floats, pack_ids
from hindcast.core.domain.evidence import Evidence
from hindcast.core.domain.observation import Page
from hindcast.core.domain.sampling import Sampling
from hindcast.core.domain.task import Task
from hindcast.core.grammar.answer_parser import format_answer
from hindcast.core.models.folders import base_policy_folder
from hindcast.core.models.tokenizer import load_tokenizer
from hindcast.core.prompts.prompt import encode_answer
from hindcast.core.settings.schema import ActorSettings
from hindcast.events.catalogue import EpisodeEnded, EpisodeRequested, EpisodeStarted, StepTaken
from hindcast.events.envelope import Fact
from hindcast.events.log.episode_assembler import AssembledEpisode, AssembledStep
from hindcast.storage.blobs.store import BlobStore
from stories.store_visitor import Form, Visitor

TOKENIZER = load_tokenizer(base_policy_folder())


class Visit:
    """A visit that is noted down as an actor does."""

    def __init__(self, store: str, task: Task) -> None:
        self.task = task
        self.visitor = Visitor(store, task)
        self._form = Form(self.visitor)
        self.pages: list[Page] = []
        self.actions: list[Action] = []
        self.answer: str | None = None

    def do(self, action: Action) -> None:
        self.pages.append(self._form.observation().page)
        self.actions.append(action)
        if action.name == "exit":
            self.answer = action.argument
        else:
            self._form.do(action)

    def press(self, text: str) -> None:
        """Click the first thing that says so."""
        nodes = self._form.observation().page.nodes
        self.do(Action(name="Click", element=next(n.id for n in nodes if n.text.startswith(text) and n.id)))

    def search(self, words: str) -> None:
        nodes = self._form.observation().page.nodes
        box = next(node.id for node in nodes if node.kind == "input")
        self.do(Action(name="Search", element=box, argument=words))

    def demonstrate(self, task: Task | None = None) -> None:
        """Let the demonstrator of a task go on from here."""
        task, mine = task or self.task, len(self.actions)
        act = DEMONSTRATORS[task.family]
        while self.answer is None and len(self.actions) - mine < task.max_steps:
            self.do(act(task, task.instruction, self._form.observation(), self.actions[mine:]))

    def wander(self, random: Random) -> None:
        """Press something, or choose something."""
        nodes = [node for node in self._form.observation().page.nodes if node.id is not None]
        pressed = [node for node in nodes if node.kind in ("link", "button", "radio")]
        chosen = [node for node in nodes if node.options]
        node = random.choice([*pressed, *(node for node in pressed if node.kind == "button"), *chosen])
        if node.options:
            name, argument = "Select Dropdown Option", random.choice(node.options)
            self.do(Action(name=name, element=node.id, argument=argument))
        else:
            self.do(Action(name="Click", element=node.id))

    @property
    def evidence(self) -> Evidence:
        return Evidence(answer=self.answer, final_url="", probes=self.visitor.record())

    @property
    def walk(self) -> Walk:
        return Walk(self.pages, self.actions, [True] * len(self.actions))

    def hindsight(self, most: int = 50) -> list[Hindsight]:
        return hindsight_of(self.task, self.evidence, self.walk, max_goals=most)

    def facts(
        self, episode: str, blobs: BlobStore, *, origin: str = "online", settings: ActorSettings | None = None
    ) -> list[Fact]:
        """What the log would tell of it, from its request to its end."""
        settings = settings or ActorSettings()
        answers: list[str] = []
        steps: list[Fact] = []
        for index, (page, action) in enumerate(zip(self.pages, self.actions, strict=True)):
            prompt = prompt_of(
                TOKENIZER, settings, instruction=self.task.instruction, answers=answers, page=page, earlier=()
            )
            answers.append(format_answer(action, page))
            ids = encode_answer(TOKENIZER, answers[-1])
            steps.append(
                StepTaken(
                    episode=episode,
                    index=index,
                    observation_digest="",
                    observation=blobs.put(msgspec.msgpack.encode(page)),
                    url=page.url,
                    world_ordinal=page.ordinal,
                    prompt_ids=pack_ids(prompt.ids),
                    action_ids=pack_ids(ids),
                    logprobs=pack_floats([-0.1] * len(ids)),
                    versions=pack_ids([0] * len(ids)),
                    sampling=Sampling(temperature=1.0, max_tokens=64, seed=1),
                    prompt_truncated=prompt.truncated,
                    answer=answers[-1],
                    action=action,
                    result="exit" if action.name == "exit" else "ok",
                    detail="",
                    observe_ms=1.0,
                    generate_ms=1.0,
                    act_ms=1.0,
                )
            )
        request = EpisodeRequested(
            episode=episode,
            task=self.task,
            group=f"g_{episode}",
            member=0,
            group_size=1,
            attempt=0,
            origin=origin,  # type: ignore[arg-type]
            temperature=1.0,
            phase=0,
            min_version=0,
            lease_s=60,
        )
        started = EpisodeStarted(
            episode=episode, actor="actor.1", instruction=self.task.instruction, renderer=settings.renderer
        )
        ended = EpisodeEnded(
            episode=episode,
            task_id=self.task.id,
            actor="actor.1",
            reason="max_steps" if self.answer is None else "exit",
            steps=len(steps),
            evidence=self.evidence,
            final_observation=None,
            policy_versions=(0, 0),
            duration_ms=1.0,
        )
        return [request, started, *steps, ended]

    def episode(self, name: str, blobs: BlobStore) -> AssembledEpisode:
        """The same as a reader of the log puts it together."""
        request, started, *steps, ended = self.facts(name, blobs)
        assert isinstance(request, EpisodeRequested)
        assert isinstance(started, EpisodeStarted)
        assert isinstance(ended, EpisodeEnded)
        return AssembledEpisode(
            request=request,
            started=started,
            started_ns=0,
            code_rev="",
            packages={},
            steps=[
                AssembledStep(position=index, occurred_ns=0, fact=step)
                for index, step in enumerate(steps, 3)
                if isinstance(step, StepTaken)
            ],
            end=ended,
        )
