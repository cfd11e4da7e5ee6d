"""`hindcast bench engine`."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from bench.cli.policies import UNTIED, measured_policy
from bench.cli.printing import comparisons_report, machine
from bench.comparison import Comparison, compare
from hindcast.app.cli.output import Report, say
from hindcast.core.scratch import scratch_folder

if TYPE_CHECKING:
    from bench.engine_calls import Episode  # loads torch

GOAL = 5.0
LENGTHS = (12, 24, 40)
"""Answers of the base policy are 6 to 16 tokens long, of policies that explain themselves longer."""

app = typer.Typer()


@app.command("engine")
def engine(
    against: Annotated[
        Literal["generate", "vllm"],
        typer.Option(
            help="Transformers' `generate()`, or a vLLM server that is started for it (`make vllm`)."
        ),
    ] = "generate",
    repeats: Annotated[int, typer.Option(min=1, help="Pairs of measurements.")] = 5,
    contexts: Annotated[int, typer.Option(min=1, help="Calls under way at the same time.")] = 16,
    episodes: Annotated[int, typer.Option(min=1, help="Recorded episodes to ask.")] = 48,
    steps: Annotated[int, typer.Option(min=2, help="Calls of each made-up episode.")] = 4,
    threads: Annotated[int, typer.Option(min=1, help="Threads of both.")] = 1,
    policy: Annotated[
        str | None,
        typer.Option(
            help="`base`, `untied` (a Llama of the same size with random weights, which vLLM's build for CPUs computes as "
            "we do), or the folder of a Hugging Face causal model. Default: base; with --against vllm: untied."
        ),
    ] = None,
    python: Annotated[
        str,
        typer.Option(
            help="Beside vllm: Python of the environment that has it. Default: that of `make vllm`."
        ),
    ] = "",
) -> Report:
    """Output tokens per second of the policy engine, compared with one `generate()` after the other or a vLLM server.

    Beside a server also how far each engine's log-probabilities are from the learner's (mismatch_kl).

    Example: hindcast bench engine --repeats 5
    """
    from bench.engine import write_endless

    chosen = policy or (UNTIED if against == "vllm" else "base")
    with scratch_folder() as root:
        folder = write_endless(measured_policy(chosen, root), root / "endless")
        mixtures = _mixtures(folder, contexts=contexts, episodes=episodes, steps=steps)
        if against == "vllm":
            return _beside_vllm(
                folder,
                root,
                mixtures,
                repeats=repeats,
                contexts=contexts,
                threads=threads,
                python=python,
            )
        found = asyncio.run(
            _beside_generate(folder, mixtures, repeats=repeats, contexts=contexts, threads=threads)
        )
    return comparisons_report(found)


def _mixtures(folder: Path, *, contexts: int, episodes: int, steps: int) -> "dict[str, list[Episode]]":
    from bench.engine_calls import different_pages, groups, recorded_episodes
    from hindcast.core.models.tokenizer import load_tokenizer

    tokenizer = load_tokenizer(folder)
    found = {"as actors ask (recorded)": recorded_episodes(episodes)}
    for length in LENGTHS:
        found[f"groups of 8, answers of {length}"] = groups(
            tokenizer, contexts=contexts, steps=steps, answer_tokens=length
        )
        found[f"no page twice, answers of {length}"] = different_pages(
            tokenizer, contexts=contexts, steps=steps, answer_tokens=length
        )
    return found


def _beside_vllm(
    folder: Path,
    scratch: Path,
    mixtures: "dict[str, list[Episode]]",
    *,
    repeats: int,
    contexts: int,
    threads: int,
    python: str,
) -> Report:
    from bench.engine_vllm import measure

    found, mismatches = asyncio.run(
        measure(
            folder,
            scratch,
            mixtures,
            repeats=repeats,
            contexts=contexts,
            threads=threads,
            python=python,
            said=say,
        )
    )
    told = {"comparisons": found, "mismatch": mismatches}
    apart = (
        f"{one.engine}: mismatch_kl {one.mismatch_kl:.2g} nats per token, largest difference of a log-probability "
        f"{one.largest:.2g}, of {one.tokens:,} tokens"
        for one in mismatches
    )
    return Report({"machine": machine(), **told}, (*comparisons_report(found).text, *apart))


async def _beside_generate(
    folder: Path, mixtures: "dict[str, list[Episode]]", *, repeats: int, contexts: int, threads: int
) -> Sequence[Comparison]:
    from bench.engine import Answering
    from bench.engine_calls import describe

    answering = Answering(folder, contexts=contexts, threads=threads)
    found: list[Comparison] = []
    for figure, asked in mixtures.items():
        found.append(
            await compare(
                lambda asked=asked: answering.ours(asked),  # type: ignore[misc]
                lambda asked=asked: answering.one_at_a_time(asked),  # type: ignore[misc]
                figure=figure,
                unit="tokens/CPU s",
                peer_name="generate()",
                goal=GOAL,
                repeats=repeats,
                detail=f"{describe(asked)}; {contexts} contexts, {threads} thread",
                said=say,
            )
        )
    return found
