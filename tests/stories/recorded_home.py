"""A home with a run whose log stands in a real broker, written by roles that may write what they write."""

from collections.abc import Sequence
from contextlib import AsyncExitStack
from itertools import groupby
from pathlib import Path

from hindcast.app.runs.runs import RunHandle, create_run
from hindcast.app.settings.configuration import resolve
from hindcast.core.settings.schema import LogSettings
from hindcast.events.jetstream.accounts import PUBLISHES
from hindcast.events.log.publisher import Publisher
from hindcast.events.registry import BY_CLASS
from stories.synthetic_run import Told

ROLES = ("learner", "actor", "judge", "relabeler", "curriculum", "control", "admin")


def role_for(told: Told) -> str:
    """A role that may append this fact."""
    family = BY_CLASS[type(told.fact)].family
    return next(role for role in ROLES if family in PUBLISHES[role])


async def make_home(
    home: Path, facts: Sequence[Told], *, run: str = "tale", overrides: Sequence[str] = ()
) -> RunHandle:
    """Append the facts in their order; the broker is stopped again afterwards."""
    resolved = resolve(environment={}, folder=home.parent, overrides=overrides)
    handle = create_run(resolved, home=home, name=run)
    await tell(handle, facts)
    return handle


async def tell(handle: RunHandle, facts: Sequence[Told]) -> None:
    """Append facts to a run's log in their order."""
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(handle.connect_log("admin"))
        publishers: dict[tuple[str, str], Publisher] = {}
        for key, group in groupby(facts, key=lambda told: (role_for(told), told.producer)):
            if key not in publishers:
                log = await stack.enter_async_context(handle.connect_log(key[0]))
                publisher = Publisher(
                    log, producer=key[1], code_rev="test", settings=LogSettings(linger_ms=0)
                )
                publishers[key] = await stack.enter_async_context(publisher)
            for told in group:
                await publishers[key].publish(told.fact, entity=told.entity, correlation=told.entity)
            await publishers[key].commit()
