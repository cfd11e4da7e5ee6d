"""`hindcast prove` and `check-proof`: shows a stranger that a policy follows from a run's log."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hindcast.app.cli.archive import Bars
from hindcast.app.cli.bars import progress_bar
from hindcast.app.cli.options import SourceName
from hindcast.app.cli.output import Block, Fields, Report
from hindcast.app.runs.sources import open_source
from hindcast.app.system.home import home_folder
from hindcast.core.fast_import import loading
from hindcast.core.text.counts import count_of

if TYPE_CHECKING:
    from hindcast.app.proofs.proof import Checked

app = typer.Typer()


@app.command("prove")
def prove_run(
    out: Annotated[
        Path, typer.Option("--out", metavar="FOLDER", help="New folder for log, policy and proof.")
    ],
    run: SourceName = None,
    version: Annotated[
        str, typer.Option("--version", help="Policy version: a number, `last` or `best`.")
    ] = "last",
    key: Annotated[
        Path | None,
        typer.Option(
            "--key", metavar="FILE", help="Your private key; made if absent. Default: in the home's secrets."
        ),
    ] = None,
) -> Report:
    """Write a run's log and policy into a folder, signed, so that a stranger can check that one follows from the other.

    Publish the public key where others find it without this folder.

    Example: hindcast prove run-1 --out proof
    """
    source = open_source(run)
    with loading():
        from hindcast.app.proofs.proof import prove  # loads torch, so only now
    file = key or home_folder() / "secrets" / "proof.key"
    with progress_bar() as bar:
        bars = Bars(bar)
        proof = asyncio.run(
            prove(source, out, key=file, version=version, on_event=bars.events, on_blob=bars.blobs)
        )
    return Report(
        proof,
        [
            Fields(
                [
                    ("run", proof.run),
                    ("policy", f"version {proof.version}, {count_of(len(proof.policy), 'file')}"),
                    ("log", f"{count_of(proof.events, 'event')}, root {proof.root}"),
                    ("folder", str(out)),
                    ("private key", str(file)),
                    ("public key", proof.key),
                ]
            ),
            f"A stranger runs: hindcast check-proof {out} --key {proof.key}",
        ],
    )


@app.command("check-proof")
def check(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="What `hindcast prove` wrote.")],
    key: Annotated[
        str, typer.Option("--key", metavar="KEY", help="Public key of who signed, or a file with it.")
    ],
    updates: Annotated[
        int, typer.Option("--updates", min=1, help="Number of updates to draw and recompute.")
    ] = 5,
    seed: Annotated[
        int | None, typer.Option("--seed", help="Seed of the draw; by default one that nobody can foresee.")
    ] = None,
    tolerance: Annotated[
        float,
        typer.Option("--tolerance", min=0, help="Accepted difference on another machine than the recorded."),
    ] = 1e-4,
) -> Report:
    """Check a proof: signature, policy, log, and some updates drawn at random, which are recomputed. Exit code 3 if it fails.

    Example: hindcast check-proof proof --key 3b6a27bc… --updates 5
    """
    with loading():
        from hindcast.app.proofs.proof import check_proof  # loads torch, so only now
    with progress_bar() as bar:
        task = bar.add_task("recomputing updates", total=None)
        found = asyncio.run(
            check_proof(
                folder,
                public=key,
                updates=updates,
                seed=seed,
                tolerance=tolerance,
                progress=lambda done, total: bar.update(task, completed=done, total=total),
            )
        )
    return Report(found, _checked_text(found))


def _checked_text(found: "Checked") -> Iterator[Block]:
    yield (
        f"policy version {found.version} of {found.run} follows from its log of {found.events} events, as far as was checked: "
        f"updates {', '.join(map(str, found.drawn))} of {found.updates}, and {found.recomputed} recomputed in all"
    )
    if found.machine_differs:
        yield f"compared within {found.tolerance:g}, for this machine differs: {'; '.join(found.machine_differs)}"
        yield "No probability is given: a small alteration could hide within that."
        return
    for altered, chance in found.chances.items():
        yield f"if {altered} of the other {found.updates - 1} updates had been altered, this check would have met one with probability {chance:.0%}"
    yield "It shows nothing about whether the log's episodes took place."
