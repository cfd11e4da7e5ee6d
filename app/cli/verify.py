"""`hindcast verify`."""

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import typer

from app.cli.bars import progress_bar, watched
from app.cli.options import Json, SourceName
from app.cli.output import print_json, print_text
from app.sources import Source, open_source
from core.errors import ReplayDiverged

if TYPE_CHECKING:
    from learner.verify import VerifyReport

app = typer.Typer()


@app.command("verify")
def verify_run(run: SourceName = None, as_json: Json = False) -> None:
    """Recompute every batch and every update of a run from its log, and compare the digests.

    Exit code 3 names the first position that differs, what differed, and the likely cause.

    Example: hindcast verify run-1 --json
    """
    from core.models.policy import policy_folder  # loads torch: other commands must not wait for it

    handle = open_source(run)
    report = asyncio.run(_verify(handle, policy_folder(handle.settings.policy.base), as_json=as_json))
    if as_json:
        print_json(msgspec.to_builtins(report))
    else:
        _print_report(report)
    if not report.identical:
        raise typer.Exit(ReplayDiverged.exit_code)


async def _verify(handle: Source, policy: Path, *, as_json: bool) -> "VerifyReport":
    from learner.verify import verify  # loads torch: only once it is needed

    async with handle.connect_log() as log:
        with progress_bar(as_json=as_json) as bar:
            watching = watched(log, bar, "recomputing")
            return await verify(watching, handle.blobs, policy=policy, code_rev=handle.code_rev)


def _print_report(report: "VerifyReport") -> None:
    print_text(
        f"run {report.run}: {report.events} events, {report.updates} updates, {report.weights} weight versions and "
        f"{report.checkpoints} checkpoints recomputed in {report.wall_s:.1f} s"
    )
    divergence = report.first_divergence
    if divergence is None:
        print_text("identical, bit for bit")
        return
    print_text(f"DIVERGED at position {divergence.position} ({divergence.event}): {divergence.what}")
    print_text(f"  recorded    {divergence.expected}")
    print_text(f"  recomputed  {divergence.found}")
    print_text(f"  likely      {divergence.cause}")
