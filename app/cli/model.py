"""`hindcast model check`."""

from pathlib import Path
from typing import Annotated

import typer

from hindcast.app.cli.options import Json
from hindcast.app.cli.output import print_json, print_text
from hindcast.app.settings.configuration import resolve

app = typer.Typer(name="model", help="Check a model folder before it becomes a policy.", no_args_is_help=True)

MARKS = {"ok": "ok    ", "note": "NOTE  ", "failed": "FAILED"}


@app.command("check")
def check(
    folder: Annotated[Path, typer.Argument(help="Folder of a Hugging Face causal model.")],
    recipe: Annotated[str | None, typer.Option(help="Recipe whose settings it is checked for.")] = None,
    overrides: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="A setting; repeatable.")
    ] = None,
    config: Annotated[
        Path | None, typer.Option(help="Settings file; default: hindcast.toml if there is one.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Check whether a model can be a policy: files, architecture, tokenizer, chat template, stop tokens, context, memory, use.

    `hindcast start` does the same before a new run begins from a folder. Exit code 1 if a check failed; a NOTE is no failure.

    Example: hindcast model check /models/Qwen2.5-0.5B-Instruct --json
    """
    from hindcast.app.system.model_check import check_model

    settings = resolve(recipe=recipe, file=config, overrides=overrides or []).settings
    findings = check_model(folder, settings)
    if as_json:
        print_json(findings)
    else:
        for finding in findings:
            print_text(f"{MARKS[finding.verdict]}  {finding.part:<9} {finding.result}")
            if finding.fix:
                print_text(f"        {'':<9} -> {finding.fix}")
    if any(finding.verdict == "failed" for finding in findings):
        raise typer.Exit(1)
