"""Tasks that an agent of the user's own brings along: it gets a seed, and says itself how well it did. See docs/agents.md."""

from hindcast.actors.environments.base import Answers, TaskSource, Venue, decided, undecided
from hindcast.actors.environments.plugin import Environment, SitePlaces
from hindcast.actors.environments.python.plugin import SUCCESS, PythonTasks
from hindcast.core.domain.evidence import Evidence, Judgment
from hindcast.core.domain.task import Task
from hindcast.core.settings.schema import Settings

MAX_STEPS = 30
"""Calls after which an episode is truncated."""
NAME = "agent"
"""Its entry point."""
FAMILY = "own"


class AgentTasks(Environment):
    """Any seed is a task."""

    takes_agents = True
    needs = "an agent: actors.agent, or `hindcast start --agent COMMAND`"

    def tasks(self, name: str, settings: Settings) -> TaskSource | None:
        """See `Environment.tasks`."""
        return PythonTasks(name, (FAMILY,), max_steps=MAX_STEPS) if settings.actors.agent else None

    def open_site(self, name: str, settings: Settings, places: SitePlaces) -> Venue | None:
        """See `Environment.open_site`."""
        from hindcast.actors.environments.agent.site import OwnTasks

        return OwnTasks(name) if settings.actors.agent else None

    def check(self, settings: Settings) -> list[str]:
        """See `Environment.check`."""
        missing = NAME in settings.curriculum.environments and not settings.actors.agent
        return [f"tasks of an agent's own need {self.needs}"] if missing else []

    def evaluate(self, task: Task, evidence: Evidence, answers: Answers) -> Judgment:
        """A success from a reward of 0.5 on; the reward is the agent's, cut to 0 to 1."""
        reward = evidence.probes.get("reward")
        if not isinstance(reward, int | float):
            return undecided(
                "the agent sent no reward: POST it to HINDCAST_EPISODE_URL/reward, or judge with --reward"
            )
        found = decided(reward >= SUCCESS, f"the agent's reward is {reward:g}; {SUCCESS:g} is a success")
        return Judgment(outcome=found.outcome, reward=min(1.0, max(0.0, float(reward))), reason=found.reason)


ENVIRONMENT = AgentTasks()
