"""`hindcast size`: what a run needs, and the settings and launcher files for given GPUs."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from hindcast.app.cli.output import Fields, Report
from hindcast.app.settings.deployment import (
    DeploymentRequest,
    load_of,
    plan_deployment,
    require_gpus,
    shape_in,
)
from hindcast.app.settings.deployment_text import assumption_lines, settings_text
from hindcast.app.settings.launchers.launcher import LAUNCHERS, launcher_text
from hindcast.app.settings.sizing import GPUS, MODELS, Load, Size, size_of
from hindcast.core.errors import SettingsError
from hindcast.learner.recipes import DEFAULT

app = typer.Typer()

ACTORS = 16
"""Actors of an estimate without `--actors`."""


@app.command("size")
def size(
    model: Annotated[str, typer.Option(help=f"One of {', '.join(MODELS)}.")] = "8B",
    base: Annotated[
        str,
        typer.Option(help="Model folder for policy.base; if it is here, its config.json gives the shape."),
    ] = "",
    gpu: Annotated[str, typer.Option(help=f"One of {', '.join(GPUS)}.")] = "h100",
    gpus: Annotated[
        int | None, typer.Option(min=1, max=1024, help="GPUs of the machine, for --emit.")
    ] = None,
    emit: Annotated[
        Literal["settings.toml", "slurm", "skypilot", "compose", "k8s"] | None,
        typer.Option(help="Write a settings file or a launcher file instead of the estimate."),
    ] = None,
    to: Annotated[Path | None, typer.Option(help="File for --emit; default: standard output.")] = None,
    recipe: Annotated[
        str, typer.Option(help="Recipe whose group, batch, checkpoints, screenshots and precision count.")
    ] = DEFAULT,
    overrides: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="A setting of the run; repeatable."),
    ] = None,
    actors: Annotated[
        int | None,
        typer.Option(
            min=1,
            help=f"Actor processes, each with a browser. Default: {ACTORS}; with --emit as many as are busy.",
        ),
    ] = None,
    contexts: Annotated[int, typer.Option(min=1, help="Episodes that an actor plays at once.")] = 8,
    steps: Annotated[float, typer.Option(min=1, help="Steps of an episode, on average.")] = 10,
    prompt: Annotated[int, typer.Option(min=1, help="Tokens of a step's prompt, on average.")] = 3000,
    answer: Annotated[int, typer.Option(min=1, help="Tokens of a step's answer, on average.")] = 100,
    page_s: Annotated[float, typer.Option(min=0.01, help="Seconds of a step outside the model.")] = 1.0,
    page_bytes: Annotated[int, typer.Option(min=1, help="Bytes of a page's snapshot.")] = 8000,
    lora_rank: Annotated[int, typer.Option(min=0, help="Rank of an adapter; 0: all weights.")] = 0,
    reference: Annotated[
        bool,
        typer.Option(
            help="Whether the learner holds a reference policy for the KL; --emit reads the recipe."
        ),
    ] = True,
) -> Report:
    """Estimate a run's memory, GPUs, throughput, log and blobs; docs/scale.md gives the formulas and measurements.

    With --emit and --gpus it places learner and policy servers on the GPUs of one machine and writes files that run there. What
    cannot fit is refused, with the nearest that does.

    Example: hindcast size --model 8B --gpus 8 --emit settings.toml
    """
    load = Load(
        model=model,
        shape=shape_in(Path(base)) if base and Path(base).is_dir() else None,
        gpu=gpu,
        actors=actors or (0 if emit else ACTORS),
        contexts=contexts,
        steps=steps,
        prompt=prompt,
        answer=answer,
        page_s=page_s,
        page_bytes=page_bytes,
        lora_rank=lora_rank,
        reference=reference,
    )
    if emit is None:
        load = load_of(load, recipe=recipe, overrides=overrides or [])
        found = size_of(load)
        return Report(found, [_estimate(load, found)])
    request = DeploymentRequest(
        load=load,
        gpus=require_gpus(gpus),
        recipe=recipe,
        base=base,
        addresses=LAUNCHERS[emit].addresses if emit in LAUNCHERS else lambda servers: {},
        overrides=overrides or [],
    )
    deployment = plan_deployment(request)
    text = launcher_text(emit, deployment) if emit in LAUNCHERS else settings_text(deployment)
    if to is not None:
        _write(to, text)
    said = text.rstrip("\n").split("\n") if to is None else [f"{emit} written to {to}"]
    return Report(
        {"emit": emit, "placement": deployment.placement, "size": deployment.size, "content": text}, said
    )


def _write(file: Path, text: str) -> None:
    """Write a new file. Raises SettingsError if it exists with other content."""
    if file.exists() and file.read_text(encoding="utf-8", errors="replace") != text:
        raise SettingsError(f"--to {file} exists and has other content: delete it, or name another file")
    file.write_text(text, encoding="utf-8")


def _estimate(load: Load, found: Size) -> Fields:
    return Fields(
        [
            (
                "model",
                f"{load.model}: {found.parameters / 1e9:.2f} billion parameters, {found.weights_gib:.1f} GiB in bf16",
            ),
            (
                "policy servers",
                f"{found.servers} of {found.server_gpus} {load.gpu} each: {found.server_contexts} contexts and "
                f"{found.server_steps_s:.1f} steps/s each, at most",
            ),
            ("played", f"{found.steps_s:.1f} steps/s, {found.episodes_day:,.0f} episodes a day"),
            (
                "learner",
                f"{found.learner_gib:.0f} GiB on {found.learner_gpus} {load.gpu} ({load.precision}, without activations), "
                f"{found.learner_tokens_s:,.0f} tokens/s; {found.learner_gpus_to_keep_up} to train once on every step",
            ),
            (
                "checkpoints",
                f"{found.checkpoint_gib:.1f} GiB each, {found.checkpoints_gib:.1f} for {load.keep_checkpoints} kept ones and a new one; "
                f"{found.checkpoints_gib_day:,.0f} GiB a day if the learner keeps up, one after {_batches(load)}",
            ),
            ("actors", f"{load.actors} with browsers: {found.actors_gib:.0f} GiB of main memory"),
            ("log", f"{found.log_bytes_step:,.0f} bytes a step, {found.log_gib_day:.1f} GiB a day"),
            (
                "pages",
                f"{found.blob_bytes_episode:,.0f} bytes an episode, {found.blobs_gib_day:.1f} GiB a day",
            ),
            ("screenshots", f"{found.screenshots_gib_day:.1f} GiB a day"),
            *(("assumed", line) for line in assumption_lines(load)),
        ]
    )


def _batches(load: Load) -> str:
    every = "each batch" if load.checkpoint_every == 1 else f"every {load.checkpoint_every} batches"
    return f"{every} of {load.batch} episodes"
