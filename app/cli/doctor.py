"""`hindcast doctor`."""

import msgspec
import typer

from app.cli.options import Json
from app.cli.output import print_json, print_text
from app.configuration import resolve
from app.doctor import examine
from app.supervisor import home_folder

app = typer.Typer()


@app.command("doctor")
def doctor(as_json: Json = False) -> None:
    """Look at everything a run needs: broker, browser, policy, disk, memory, ports; a line each, with what to do.

    Example: hindcast doctor
    """
    settings = resolve().settings
    findings = examine(home_folder(), browser_path=settings.actors.browser_path, base=settings.policy.base)
    if as_json:
        print_json(msgspec.to_builtins(findings))
    for finding in [] if as_json else findings:
        print_text(f"{'ok     ' if finding.ok else 'MISSING'}  {finding.part:<9} {finding.result}")
        if not finding.ok:
            print_text(f"         {'':<9} -> {finding.fix}")
    if not all(finding.ok for finding in findings):
        raise typer.Exit(1)
