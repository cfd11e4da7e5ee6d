"""The table in words: Markdown, every row with its interval, n and digest; a row that was not run says so."""

from collections.abc import Iterable, Mapping, Sequence

from bench.recipes.claims import Finding, find
from bench.recipes.config import Claim, Table
from bench.recipes.failures import KINDS
from bench.recipes.results import Result
from hindcast.core.rl.statistics import wilson

Measured = Mapping[tuple[str, int], Result]
"""Results by row and seed."""


def report(table: Table, results: Measured, seeds: Sequence[int]) -> str:
    """Everything, for these seeds."""
    parts = [
        _markdown(_PAIRS, [_finding(find(claim, results, seeds), seeds) for claim in table.pairs]),
        _markdown(_PAIRS, [_finding(find(claim, results, seeds), seeds) for claim in table.ablations]),
        _markdown(_ROWS, [cells for row in table.rows for cells in _row(row.name, results, seeds)]),
        _markdown(("row", "failed", *KINDS), list(_failures(table, results, seeds))),
    ]
    titles = ("Head to head", "Ablations", "Rows", "How episodes failed")
    return "\n".join(f"### {title}\n\n{part}" for title, part in zip(titles, parts, strict=True) if part)


_PAIRS = ("claim", "ours", "theirs", "ratio", "95 %", "paper", "seeds", "higher in", "verdict")
_ROWS = ("row", "seed", "success", "95 %", "n", "lost", "updates", "minutes", "episodes", "code", "log")


def _finding(finding: Finding, seeds: Sequence[int]) -> tuple[str, ...]:
    claim: Claim = finding.claim
    paper = "-" if claim.paper is None else f"{claim.paper:g}"
    if not finding.seeds:
        return (
            claim.name,
            claim.ours,
            claim.theirs,
            "-",
            "-",
            paper,
            f"0 of {len(seeds)}",
            "-",
            finding.verdict,
        )
    ratio = finding.ratio
    return (
        claim.name,
        f"{claim.ours} {finding.ours:.1%}",
        f"{claim.theirs} {finding.theirs:.1%}",
        "-" if ratio is None else f"{ratio.rate:.2f}",
        "-" if ratio is None else f"[{ratio.low:.2f}, {ratio.high:.2f}]",
        paper,
        f"{len(finding.seeds)} of {len(seeds)}",
        f"{finding.higher_in} of {len(finding.seeds)}",
        finding.verdict,
    )


def _row(name: str, results: Measured, seeds: Sequence[int]) -> Iterable[tuple[str, ...]]:
    for seed in seeds:
        result = results.get((name, seed))
        if result is None:
            yield (name, str(seed), "not run", *["-"] * (len(_ROWS) - 3))
            continue
        band = wilson(result.successes, result.episodes)
        yield (
            name,
            str(seed),
            f"{band.rate:.1%}",
            f"[{band.low:.1%}, {band.high:.1%}]",
            str(result.episodes),
            str(result.lost),
            str(result.updates),
            f"{result.minutes:.1f}",
            str(result.training_episodes),
            result.revision or "-",
            f"`{result.log_digest[:16]}`" if result.log_digest else "-",
        )


def _failures(table: Table, results: Measured, seeds: Sequence[int]) -> Iterable[tuple[str, ...]]:
    for row in table.rows:
        own = [results[row.name, seed] for seed in seeds if (row.name, seed) in results]
        failed = sum(one.episodes - one.successes for one in own)
        if failed:
            counts = [sum(one.failures.get(kind, 0) for one in own) for kind in KINDS]
            yield (row.name, str(failed), *(f"{count / failed:.0%}" for count in counts))


def _markdown(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    if not rows:
        return ""
    lines = [heads, ["---"] * len(heads), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)
