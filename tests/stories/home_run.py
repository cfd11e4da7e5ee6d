"""A run in a home, on a real broker: made-up episodes are recorded by each role, and a real learner trains on them."""

from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path

from hindcast.app.runs.runs import RunHandle, create_run
from hindcast.app.settings.configuration import resolve
from hindcast.core.settings.old_names import renamed
from hindcast.events.envelope import Recorded
from hindcast.events.log.publisher import Publisher
from hindcast.events.log.reader import read
from hindcast.learner.loop import LearnerReport, run_learner
from stories.training_story import LEARNER, Told, tell


def small_run(home: Path, policy: Path, *, name: str, overrides: Sequence[str] = ()) -> RunHandle:
    """A new run of a tiny policy, with groups of four."""
    chosen = [f"{renamed(f'learner.{key}')}={value}" for key, value in LEARNER.items()]
    chosen += [f"policy.base={policy}", "curriculum.group_size=4", *overrides]
    return create_run(resolve(environment={}, folder=home, overrides=chosen), home=home, name=name)


async def record(run: RunHandle, facts: Sequence[Told]) -> None:
    """Append facts, each by its role."""
    async with AsyncExitStack() as stack:
        roles = {"app": "admin", "curriculum": "curriculum", "actor": "actor", "judge": "judge"}
        logs = {name: await stack.enter_async_context(run.connect_log(role)) for name, role in roles.items()}
        await tell(logs["app"], facts, logs=logs)


async def learn(run: RunHandle, *, until: int) -> LearnerReport:
    """Run a learner up to a number of updates."""
    async with (
        run.connect_log("learner") as log,
        Publisher(log, producer="learner.1", code_rev="test", settings=run.settings.log) as publisher,
    ):
        policy = Path(run.settings.policy.base)
        return await run_learner(log, run.blobs, publisher=publisher, policy=policy, until_updates=until)


async def events_of(run: RunHandle) -> list[Recorded]:
    """Everything in the run's log."""
    async with run.connect_log() as log:
        return [recorded async for recorded in read(log)]
