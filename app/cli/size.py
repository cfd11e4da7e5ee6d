"""`hindcast size`: estimates what a run needs."""

from typing import Annotated

import msgspec
import typer

from hindcast.app.cli.options import Json
from hindcast.app.cli.output import print_fields, print_json
from hindcast.app.settings.sizing import GPUS, MODELS, Load, size_of

app = typer.Typer()


@app.command("size")
def size(
    model: Annotated[str, typer.Option(help=f"One of {', '.join(MODELS)}.")] = "8B",
    gpu: Annotated[str, typer.Option(help=f"One of {', '.join(GPUS)}.")] = "h100",
    actors: Annotated[int, typer.Option(min=1, help="Actor processes, each with a browser.")] = 16,
    contexts: Annotated[int, typer.Option(min=1, help="Episodes that an actor plays at once.")] = 8,
    steps: Annotated[float, typer.Option(min=1, help="Steps of an episode, on average.")] = 10,
    prompt: Annotated[int, typer.Option(min=1, help="Tokens of a step's prompt.")] = 3000,
    answer: Annotated[int, typer.Option(min=1, help="Tokens of a step's answer.")] = 100,
    page_s: Annotated[float, typer.Option(min=0.01, help="Seconds of a step outside the model.")] = 1.0,
    page_bytes: Annotated[int, typer.Option(min=1, help="Bytes of a page's snapshot.")] = 8000,
    lora_rank: Annotated[int, typer.Option(min=0, help="Rank of an adapter; 0: all weights.")] = 0,
    reference: Annotated[
        bool, typer.Option(help="Whether the learner holds a reference policy for the KL penalty.")
    ] = True,
    as_json: Json = False,
) -> None:
    """Estimate a run's memory, GPUs, throughput, log and blobs; docs/scale.md gives the formulas and measurements.

    Example: hindcast size --model 8B --actors 64 --gpu h200
    """
    found = size_of(
        Load(
            model=model,
            gpu=gpu,
            actors=actors,
            contexts=contexts,
            steps=steps,
            prompt=prompt,
            answer=answer,
            page_s=page_s,
            page_bytes=page_bytes,
            lora_rank=lora_rank,
            reference=reference,
        )
    )
    if as_json:
        print_json(msgspec.to_builtins(found))
        return
    print_fields(
        [
            (
                "model",
                f"{model}: {found.parameters / 1e9:.2f} billion parameters, {found.weights_gib:.1f} GiB in bf16",
            ),
            (
                "policy servers",
                f"{found.servers} of {found.server_gpus} {gpu} each: {found.server_contexts} contexts and "
                f"{found.server_steps_s:.1f} steps/s each, at most",
            ),
            ("played", f"{found.steps_s:.1f} steps/s, {found.episodes_day:,.0f} episodes a day"),
            (
                "learner",
                f"{found.learner_gib:.0f} GiB on {found.learner_gpus} {gpu} (activations apart), "
                f"{found.learner_tokens_s:,.0f} tokens/s; {found.learner_gpus_to_keep_up} to train once on every step",
            ),
            ("checkpoint", f"{found.checkpoint_gib:.1f} GiB"),
            ("actors", f"{actors} with browsers: {found.actors_gib:.0f} GiB of main memory"),
            ("log", f"{found.log_bytes_step:,.0f} bytes a step, {found.log_gib_day:.1f} GiB a day"),
            (
                "pages",
                f"{found.blob_bytes_episode:,.0f} bytes an episode, {found.blobs_gib_day:.1f} GiB a day",
            ),
        ]
    )
