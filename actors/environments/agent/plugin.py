"""Tasks that an agent of the user's own brings along: it gets a seed, and says itself how well it did. See docs/agents.md."""

from hindcast.actors.environments.base import Answers, TaskSource, Venue, decided, undecided
from hindcast.actors.environments.plugin import Environment, SitePlaces
from hindcast.actors.environments.python.plugin import SUCCESS, PythonTasks, reward_share
from hindcast.core.domain.evidence import Evidence, Judgment
from hindcast.core.domain.task import Task
from hindcast.core.settings.schema import Settings

NAME = "agent"
"""Its entry point."""
FAMILY = "own"


class AgentTasks(Environment):
    """Any seed is a task."""

    takes_agents = True
    needs = "an agent: actors.agent, or `hindcast start --agent COMMAND`"

    def tasks(self, name: str, settings: Settings) -> TaskSource | None:
        """See `Environment.tasks`."""
        return (
            PythonTasks(name, (FAMILY,), max_steps=settings.actors.agent_steps)
            if settings.actors.agent
            else None
        )

    def open_site(self, name: str, settings: Settings, places: SitePlaces) -> Venue | None:
        """See `Environment.open_site`."""
        from hindcast.actors.environments.agent.site import OwnTasks

        return OwnTasks(name) if settings.actors.agent else None

    def check(self, settings: Settings) -> list[str]:
        """See `Environment.check`."""
        missing = NAME in settings.curriculum.environments and not settings.actors.agent
        return [f"tasks of an agent's own need {self.needs}"] if missing else []

    def evaluate(self, task: Task, evidence: Evidence, answers: Answers) -> Judgment:
        """A success from the middle of the range of rewards on (`actors.agent_reward_range`), by default from 0.5 on."""
        reward, call_limit = evidence.probes.get("reward"), evidence.probes.get("cut_after")
        if not isinstance(reward, int | float):
            stopped = (
                f" before it was ended after {call_limit} calls (actors.agent_steps)" if call_limit else ""
            )
            return undecided(
                f"the agent sent no reward{stopped}: POST it to HINDCAST_EPISODE_URL/reward, or judge with --reward"
            )
        share = reward_share(evidence)
        share_text = f", {share:g} of its range" if "reward_range" in evidence.probes else ""
        judgment = decided(
            share >= SUCCESS, f"the agent's reward is {reward:g}{share_text}; {SUCCESS:g} is a success"
        )
        return Judgment(outcome=judgment.outcome, reward=share, reason=judgment.reason)


ENVIRONMENT = AgentTasks()
