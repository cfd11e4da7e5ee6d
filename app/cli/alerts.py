"""`hindcast alerts`."""

import asyncio
from typing import Annotated

import msgspec
import typer

from hindcast.app.alerts.incidents import AlertMessage
from hindcast.app.alerts.rules import Thresholds
from hindcast.app.alerts.watcher import Said, watch_alerts
from hindcast.app.alerts.webhook import require_webhook
from hindcast.app.attach.attachment import AttachmentSession
from hindcast.app.cli.options import Json, RunName
from hindcast.app.cli.output import print_json, print_text
from hindcast.app.runs.runs import open_run
from hindcast.app.system.interrupts import heed_interrupts

app = typer.Typer()
USUAL = Thresholds()


@app.command("alerts")
def alerts(
    run: RunName = None,
    webhook: Annotated[str, typer.Option(metavar="URL", help="Send each alert there, too, as JSON.")] = "",
    begin: Annotated[
        str,
        typer.Option(
            "--from", metavar="PLACE", help="Where the first start begins: start, live, a position."
        ),
    ] = "live",
    success_fall: Annotated[
        float, typer.Option(min=0, max=1, help="Drop of success against the best stretch before.")
    ] = USUAL.success_fall,
    stretch: Annotated[int, typer.Option(min=10, help="Judged episodes of a stretch.")] = USUAL.stretch,
    mismatch_times: Annotated[
        float, typer.Option(min=1, help="Mismatch of the last 10 updates against the 50 before.")
    ] = USUAL.mismatch_times,
    lag: Annotated[float, typer.Option(min=1, help="Seconds that a consumer may be behind.")] = USUAL.lag_s,
    still: Annotated[
        float, typer.Option(min=1, help="Seconds without an event while the system is up.")
    ] = USUAL.still_s,
    as_json: Json = False,
) -> None:
    """Watch a run and alert once for each drop of success, rise of mismatch, growing lag or standstill; Ctrl-C ends it.

    `hindcast start` shows the same alerts. This command is a consumer with its own store: started again, it continues from
    its position and repeats no alert.

    Example: hindcast alerts --webhook http://127.0.0.1:9000/alerts
    """
    if webhook:
        require_webhook(webhook)
    limits = Thresholds(
        success_fall=success_fall,
        stretch=stretch,
        mismatch_times=mismatch_times,
        lag_s=lag,
        still_s=still,
    )

    def said(message: AlertMessage) -> None:
        if as_json:
            print_json(msgspec.to_builtins(message))
        else:
            print_text(message.line)

    asyncio.run(_watch(run, limits, said, begin=begin, webhook=webhook))


async def _watch(run: str | None, limits: Thresholds, said: Said, *, begin: str, webhook: str) -> None:
    session = AttachmentSession()
    heed_interrupts(session.stop)
    await watch_alerts(open_run(run), limits, session, said, begin=begin, webhook=webhook)
