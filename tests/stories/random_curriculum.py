"""Random facts for the curriculum's folds, by a seed."""

from random import Random

from hypothesis import strategies as st

from hindcast.core.domain.arrays import unpack_ids
from stories.curriculum_story import Story, settings_of, skipped

SHAPES = st.fixed_dictionaries(
    {
        "group_size": st.integers(1, 5),
        "max_running": st.integers(1, 12),
        "group_batch": st.integers(1, 3),
        "max_staleness": st.integers(0, 2),
        "max_attempts": st.integers(1, 3),
        "algorithm": st.sampled_from(["grpo", "cloning", "webrl", "branching"]),
        "phase_episodes": st.integers(1, 9),
        "demonstrations": st.integers(0, 3),
        "branches": st.integers(0, 2),
        "branch_steps": st.integers(1, 2),
        "success_replay": st.sampled_from(["off", "random", "first"]),
        "format_penalty": st.sampled_from([0.0, 1.0]),
    }
)


LEARNER = (
    "group_batch",
    "max_staleness",
    "algorithm",
    "phase_episodes",
    "success_replay",
    "format_penalty",
)


class Chance:
    """Moves a story on at random, as the settings and the seed say."""

    def __init__(self, shape: dict[str, object], seed: int) -> None:
        self.random = Random(seed)
        self.lossy = self.random.random() < 0.7
        loss = self.random.choice([0.05, 0.3, 0.9]) if self.lossy else 0.0
        self.loss = loss
        self.rate = self.random.choice([0.0, 0.1, 0.5, 1.0])
        self.story = Story(
            settings_of(
                run={"seed": seed},
                curriculum={
                    name: shape[name]
                    for name in ("group_size", "max_running", "max_attempts", "demonstrations")
                }
                | (
                    {name: shape[name] for name in ("branches", "branch_steps")}
                    if shape["algorithm"] == "branching"
                    else {}
                ),
                learner={
                    "cloning_batch": 6,
                    **{name: value for name, value in shape.items() if name in LEARNER},
                },
            )
        )
        self.running: list[str] = []
        self.ended: list[str] = []
        self.planned: list[tuple[int, int]] = []

    def move(self) -> None:
        """One thing happens."""
        match self.random.randrange(7):
            case 0 | 1:
                for fact in self.story.wanted()[: self.random.randint(1, 4)]:
                    self.story.tell(fact)
                    self.story.tasks[fact.episode] = fact.task
                    self.running.append(fact.episode)
            case 2 | 3 if self.running:
                episode = self.running.pop(self.random.randrange(len(self.running)))
                if self.random.random() < self.loss:
                    self.story.abandon(episode)
                else:
                    # An episode may have been sampled from weights that are old by now.
                    sampled = max(0, self.story.state.version - self.random.choice([0, 0, 0, 1, 3]))
                    self.story.end(episode, version=sampled, steps=self.random.randint(1, 3))
                    self.ended.append(episode)
            case 4 | 5 if self.ended:
                self.judge(self.ended.pop(self.random.randrange(len(self.ended))), loss=self.loss)
            case 6:
                self.learn()

    def judge(self, episode: str, *, loss: float) -> None:
        draw = self.random.random
        outcome = "undecided" if draw() < loss else "success" if draw() < self.rate else "failure"
        self.story.judge(episode, outcome)

    def learn(self) -> bool:
        """The learner plans, or goes on with what it planned; False when it waits."""
        if self.story.buffer.batch is None:
            return self.story.plan() is not None
        batch = self.story.buffer.plan
        assert batch is not None
        if self.random.random() < 0.1 and len(unpack_ids(batch.minibatches)) > 1:
            self.story.tell(skipped(batch.batch, 0, model=batch.model))
        self.story.train(batch)
        return True

    def come_to_rest(self) -> None:
        """Everything that was begun is finished: whoever waits now waits for the curriculum."""
        while self.running or self.ended:
            while self.running:
                episode = self.running.pop()
                self.story.end(episode)
                self.ended.append(episode)
            while self.ended:
                self.judge(self.ended.pop(), loss=0.0)
        while self.learn():
            pass

    def check_limits(self) -> None:
        state, settings = self.story.state, self.story.settings
        online = sum(member.standing in ("running", "owed") for _, member in state.members("online"))
        most = (settings.learner.max_staleness + 1) * self.story.batch
        assert state.running <= settings.curriculum.max_running
        assert state.waiting + online <= most, "more is under way than eta allows"
        assert state.running == len(self.running)
