"""`hindcast policy`: a run's policy versions, and the trained model as a folder that other tools load."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from hindcast.app.cli.bars import progress_bar
from hindcast.app.cli.doctor import ConfigFile, Overrides, finding_text, findings_report
from hindcast.app.cli.options import AsOf, SourceName
from hindcast.app.cli.output import Block, Output, Report, Table, rate, shorten
from hindcast.app.cli.read_model import connect_read_model, position_at
from hindcast.app.evaluation.evaluation_lines import finished_line
from hindcast.app.exports.policy_folder import (
    BEST,
    LAST,
    PolicyVersion,
    find_version,
    write_policy_folder,
)
from hindcast.app.runs.sources import open_source
from hindcast.app.settings.configuration import resolve
from hindcast.app.system.home import home_folder, users_umask
from hindcast.core.models.folders import policy_folder
from hindcast.core.settings.computing import Precision
from hindcast.core.text.counts import count_of
from hindcast.storage.readmodel.run_queries import list_policies

policy_app = typer.Typer(name="policy", help="Policy versions: exact weights.", no_args_is_help=True)

DIGEST_WIDTH = 13


@policy_app.command("list")
def list_versions(run: SourceName = None, as_of: AsOf = None) -> Report:
    """List policy versions, newest first, with the success of the online episodes that each began.

    Example: hindcast policy list --json
    """
    with connect_read_model(run) as connection:
        found = list_policies(connection, as_of=position_at(connection, as_of))
    return Report(
        {"policies": found},
        [
            Table(
                ("version", "update", "success", "sampled by", "position", "weights", "kept"),
                [
                    (
                        p.version,
                        p.at_update,
                        rate(p.success),
                        ", ".join(p.adopted_by),
                        p.published_position,
                        shorten(p.sha256, DIGEST_WIDTH),
                        not p.released,
                    )
                    for p in found
                ],
                empty="No policy version is published yet.",
            )
        ],
    )


@policy_app.command("import")
def import_base(
    folder: Annotated[Path, typer.Argument(help="Folder of a Hugging Face causal model.")],
    to: Annotated[
        Path | None,
        typer.Option("--to", metavar="FOLDER", help="New folder; default: models/NAME in the home."),
    ] = None,
    recipe: Annotated[str | None, typer.Option(help="Recipe whose settings the model must support.")] = None,
    overrides: Overrides = None,
    config: ConfigFile = None,
) -> Report:
    """Check a model folder as `hindcast model check` does, and copy it into the home as a base for new runs.

    Only what a policy is read from is copied: configuration, tokenizer, chat template, safetensors. A run's base then stays as it
    is, whatever happens to the folder. Exit code 1 if a check failed; then nothing is copied.

    Example: hindcast policy import /models/Qwen2.5-0.5B-Instruct --recipe mgrpo
    """
    from hindcast.app.system.model_import import MODELS, import_model

    home = home_folder()
    target = (to or home / MODELS / folder.absolute().name).absolute()
    settings = resolve(recipe=recipe, file=config, overrides=overrides or []).settings
    with progress_bar() as bar, users_umask(target, home):
        bar.add_task(f"checking and copying {folder}", total=None)
        findings = import_model(folder, target, settings)
    text: list[Block] = [line for finding in findings for line in finding_text(finding)]
    if all(finding.verdict != "failed" for finding in findings):
        chosen = f" --recipe {recipe}" if recipe else ""
        text.append(f"Imported. Train it: hindcast start{chosen} --set policy.base={target}")
    return findings_report(findings, text)


@policy_app.command("export")
def export_version(
    version: Annotated[
        str,
        typer.Argument(
            metavar="VERSION", help=f"Number of the version, {LAST}, or {BEST} by the run's evaluations."
        ),
    ],
    to: Annotated[Path, typer.Option("--to", metavar="FOLDER", help="New folder to write.")],
    run: SourceName = None,
    merge: Annotated[
        bool, typer.Option("--merge", help="Fold an adapter into the weights of its base.")
    ] = False,
    dtype: Annotated[Precision, typer.Option(help="Precision of the weights.")] = "float32",
    base: Annotated[
        Path | None,
        typer.Option(help="Folder of the base model, if it is not where the run's settings say."),
    ] = None,
) -> Report:
    """Write a policy version as a model folder in Hugging Face's format, which transformers, peft and vLLM load.

    With tokenizer, chat template, generation settings and a model card. A run that trained an adapter gives an adapter, or with
    --merge a whole model. `--set policy.base=FOLDER` trains on from it.

    Example: hindcast policy export last --to ./my-agent
    """
    source = open_source(run)
    with progress_bar() as bar, users_umask(to, home_folder()):
        bar.add_task("reading the log", total=None)
        found = asyncio.run(find_version(source, version))
        bar.add_task(f"writing version {found.version}", total=None)
        write_policy_folder(found, to, base=base, merge=merge, precision=dtype)
    written = {
        "run": found.run,
        "version": found.version,
        "choice": found.choice,
        "evaluation": found.evaluation,
        "position": found.position,
        "log_digest": found.log_digest,
        "folder": str(to),
    }
    return Report(written, _export_text(found, to))


@policy_app.command("serve")
def serve_version(
    output: Output,
    version: Annotated[
        str,
        typer.Argument(
            metavar="VERSION", help=f"Number of the version, {LAST}, or {BEST} by the run's evaluations."
        ),
    ] = LAST,
    run: SourceName = None,
    host: Annotated[
        str, typer.Option(help="Address to listen on; other machines reach it unless it is loopback.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 takes a free one.")] = 8000,
) -> None:
    """Serve a policy version as an OpenAI-compatible server until Ctrl-C: chat completions, responses, models.

    Computed in this process. For large models and many clients, export the version and serve the folder with vLLM. Anybody who
    reaches the address may ask.

    Example: hindcast policy serve best --port 8000
    """
    from hindcast.actors.agents.served_policy import serve_policy
    from hindcast.actors.engines.in_process import InProcessEngine

    source = open_source(run)
    found = asyncio.run(find_version(source, version))
    settings = source.settings

    def ready(address: str) -> None:
        told = {"run": found.run, "version": found.version, "address": address}
        output.print(Report(told, [f"{address}   version {found.version} of {found.run} (Ctrl-C ends it)"]))

    async def serve() -> None:
        folder = policy_folder(settings.policy.base)
        async with await asyncio.to_thread(InProcessEngine, folder, settings.policy) as engine:
            await engine.adopt(found.version, found.weights)
            await serve_policy(engine, settings.actors, host=host, port=port, ready=ready)

    asyncio.run(serve())


def _export_text(found: PolicyVersion, to: Path) -> Iterator[Block]:
    choice = f", {found.choice}" if found.choice else ""
    yield f"policy version {found.version} of {found.run}, after {count_of(found.update, 'update')}{choice}, in {to}"
    if found.evaluation is not None:
        yield finished_line(found.evaluation, first=None)


app = typer.Typer()
app.add_typer(policy_app)
