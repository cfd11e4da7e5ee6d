"""`hindcast doctor`."""

import asyncio

import typer

from hindcast.app.cli.bars import progress_bar
from hindcast.app.cli.options import Json
from hindcast.app.cli.output import print_json, print_text
from hindcast.app.settings.configuration import resolve
from hindcast.app.system.doctor import DoctorFinding, examine, parts
from hindcast.app.system.home import home_folder

app = typer.Typer()

MARKS = {"ok": "ok    ", "note": "NOTE  ", "failed": "FAILED"}


@app.command("doctor")
def doctor(as_json: Json = False) -> None:
    """Use every part that a run needs, and report the result and the remedy for each.

    It checks packages, disk and its speed, broker, room in the log, browser, base policy, memory, ports and clock. Exit code 1
    if a part failed; a NOTE is no failure.

    Example: hindcast doctor --json
    """
    findings = asyncio.run(_examine(as_json=as_json))
    if as_json:
        print_json(findings)
    if any(finding.verdict == "failed" for finding in findings):
        raise typer.Exit(1)


async def _examine(*, as_json: bool) -> list[DoctorFinding]:
    findings = []
    wanted = parts(home_folder(), resolve().settings)
    with progress_bar(as_json=as_json) as bar:
        looking = bar.add_task("", total=len(wanted))
        for part, look, fix in wanted:
            bar.update(looking, description=part)
            finding = await examine(part, look, fix)
            findings.append(finding)
            bar.advance(looking)
            if not as_json:
                _print(finding)
    return findings


def _print(finding: DoctorFinding) -> None:
    print_text(f"{MARKS[finding.verdict]}  {finding.part:<9} {finding.result}")
    if finding.fix:
        print_text(f"        {'':<9} -> {finding.fix}")
