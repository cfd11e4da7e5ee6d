"""`hindcast bench actor`."""

import os
from typing import Annotated

import typer
import uvloop

from bench.cli.printing import comparisons_report
from bench.comparison import Comparison
from hindcast.app.cli.output import Report, say
from hindcast.app.system.home import home_folder

app = typer.Typer()


@app.command("actor")
def actor(
    repeats: Annotated[int, typer.Option(min=1, help="Pairs of measurements per comparison.")] = 3,
    episodes: Annotated[int, typer.Option(min=6, help="Episodes of ours and of the bare loop.")] = 96,
    contexts: Annotated[int, typer.Option(min=1, help="Episodes at the same time, ours and bare.")] = 8,
    peer_episodes: Annotated[int, typer.Option(min=1, help="Episodes of BrowserGym.")] = 12,
    peer_processes: Annotated[int, typer.Option(min=1, help="Processes of BrowserGym.")] = os.cpu_count()
    or 1,
    peer: Annotated[bool, typer.Option(help="Compare with BrowserGym, installed apart on first use.")] = True,
) -> Report:
    """Environment steps per second with scripted clicks and no model: ours, a bare Playwright loop, BrowserGym.

    Every side plays the same clicks on the same problems of MiniWoB++ in the same Chromium, resets in the time. The bare
    loop takes the same observations and keeps nothing else of ours: no boundary, no deadlines, no evidence.
    BrowserGym's observation holds more, and no setting leaves out a part of it: it is measured a second time with
    `use_raw_page_output`, which leaves out dom, axtree and screenshot. Its two browsers per reset stay.

    Example: hindcast bench actor --repeats 3 --peer-episodes 6
    """

    async def measure() -> list[Comparison]:
        from bench.actor import ActorBench
        from hindcast.core.settings.schema import ActorSettings

        bench = ActorBench(home=home_folder(), settings=ActorSettings(contexts=contexts), said=say)
        await bench.record(episodes)
        found = [await bench.compare_bare(repeats=repeats)]
        sizes = {"episodes": min(peer_episodes, episodes), "processes": peer_processes}
        modes = (False, True) if peer else ()
        found += [await bench.compare_browsergym(repeats=repeats, raw=raw, **sizes) for raw in modes]
        return found

    return comparisons_report(uvloop.run(measure()))
