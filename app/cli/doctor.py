"""`hindcast doctor / model check / plugin list / plugin check`: checks what a run needs before it starts."""

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Annotated

import typer

from hindcast.app.cli.bars import progress_bar
from hindcast.app.cli.output import Block, Output, Report, Table
from hindcast.app.plugins import PluginFinding, find_plugins
from hindcast.app.settings.configuration import resolve
from hindcast.app.system.doctor import examine, examine_gpus, parts
from hindcast.app.system.home import home_folder
from hindcast.core.models.folder_check import CheckFinding
from hindcast.core.settings.schema import Settings

app = typer.Typer()

MARKS = {"ok": "ok    ", "note": "NOTE  ", "failed": "FAILED"}


Overrides = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="A setting; repeatable.")
]
ConfigFile = Annotated[
    Path | None, typer.Option("--config", help="Settings file; default: hindcast.toml if it exists.")
]


@app.command("doctor")
def doctor(output: Output, config: ConfigFile = None, overrides: Overrides = None) -> Report:
    """Use every part that a run needs, and report the result and the remedy for each.

    It checks packages, disk and its speed, broker, room in the log, browser, base policy, memory, ports, clock and GPUs. Exit
    code 1 if a part failed; a NOTE is no failure.

    Example: hindcast doctor --config settings.toml
    """
    settings = resolve(file=config, overrides=overrides or []).settings
    return findings_report(asyncio.run(_examine(output, settings)), [])


async def _examine(output: Output, settings: Settings) -> list[CheckFinding]:
    """Check every part and print each finding immediately; with `--json`, print all as one document at the end."""
    findings = []
    wanted = parts(home_folder(), settings)
    with progress_bar() as bar:
        looking = bar.add_task("", total=len(wanted) + 1)

        def show(finding: CheckFinding) -> None:
            findings.append(finding)
            if not output.as_json:
                output.print(Report(finding, finding_text(finding)))

        for part, look, fix in wanted:
            bar.update(looking, description=part)
            show(await examine(part, look, fix))
            bar.advance(looking)
        bar.update(looking, description="gpu")
        for finding in await examine_gpus(settings):
            show(finding)
        bar.advance(looking)
    return findings


def finding_text(finding: CheckFinding) -> Iterator[Block]:
    """Lines of one finding."""
    yield f"{MARKS[finding.verdict]}  {finding.part:<9} {finding.result}"
    if finding.fix:
        yield f"        {'':<9} -> {finding.fix}"


def findings_report(findings: Sequence[CheckFinding], text: Iterable[Block]) -> Report:
    """Report findings; its exit code is 1 if one failed."""
    failed = any(finding.verdict == "failed" for finding in findings)
    return Report(findings, text, exit_code=1 if failed else 0)


model_app = typer.Typer(
    name="model", help="Check a model folder before it becomes a policy.", no_args_is_help=True
)


@model_app.command("check")
def check_model_folder(
    folder: Annotated[Path, typer.Argument(help="Folder of a Hugging Face causal model.")],
    recipe: Annotated[str | None, typer.Option(help="Recipe whose settings the model must support.")] = None,
    overrides: Overrides = None,
    config: ConfigFile = None,
) -> Report:
    """Check whether a model can be a policy: files, architecture, tokenizer, chat template, stop tokens, context, memory, use.

    `hindcast start` does the same before a new run begins from a folder. Exit code 1 if a check failed; a NOTE is no failure.

    Example: hindcast model check /models/Qwen2.5-0.5B-Instruct --json
    """
    from hindcast.app.system.model_check import check_model

    settings = resolve(recipe=recipe, file=config, overrides=overrides or []).settings
    findings = check_model(folder, settings)
    text = (line for finding in findings for line in finding_text(finding))
    return findings_report(findings, text)


plugin_app = typer.Typer(
    name="plugin",
    help="List and check plugins: algorithms, environments, judges, and more.",
    no_args_is_help=True,
)

Kind = Annotated[str | None, typer.Option(help="Only plugins of this kind, such as algorithms.")]


@plugin_app.command("list")
def list_plugins(kind: Kind = None) -> Report:
    """List the plugins that installed packages declare, Hindcast's own included.

    Example: hindcast plugin list --kind algorithms --json
    """
    found = find_plugins(kind)
    rows = [
        (finding.kind, finding.name, "cannot be loaded", "", "", None)
        if (one := finding.identity) is None
        else (one.kind, one.name, one.distribution, one.version, one.module, one.state_version)
        for finding in found
    ]
    return Report(
        {"plugins": found},
        [Table(("kind", "name", "distribution", "version", "module", "state"), rows, empty="no plugins")],
    )


@plugin_app.command("check")
def check_plugins(
    name: Annotated[
        str | None, typer.Argument(help="A plugin's name, or module:object; default: every plugin.")
    ] = None,
    kind: Kind = None,
) -> Report:
    """Load plugins and check whether a run can use them. Exit code 1 if one cannot be used.

    Example: hindcast plugin check grpo --json
    """
    found = find_plugins(kind, name)
    failed = any(finding.problems for finding in found)
    return Report({"plugins": found}, _plugins_text(found), exit_code=1 if failed else 0)


def _plugins_text(found: Sequence[PluginFinding]) -> Iterator[Block]:
    for finding in found:
        yield f"{'FAILED' if finding.problems else 'ok    '}  {finding.kind} {finding.name}"
        for problem in finding.problems:
            yield f"        -> {problem}"


app.add_typer(model_app)
app.add_typer(plugin_app)
