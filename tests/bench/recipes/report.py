"""The table in words: Markdown, every claim with its interval beside the paper's ratio; a row that was not run says so."""

from collections.abc import Iterable, Sequence
from math import isfinite

from bench.recipes.claims import Finding, Results, find
from bench.recipes.config import Claim, Table
from bench.recipes.failures import KINDS
from bench.recipes.paired import mean_of, points, power
from hindcast.core.rl.statistics import Interval, wilson


def findings(
    table: Table, claims: Sequence[Claim], results: Results, seeds: Sequence[int], *, temperature: float
) -> list[Finding]:
    """How claims stand over those of the seeds that each is for."""
    return [
        find(
            claim, results, [seed for seed in seeds if seed in table.seeds_of(claim)], temperature=temperature
        )
        for claim in claims
    ]


def report(table: Table, results: Results, seeds: Sequence[int]) -> str:
    """Everything, for these seeds."""
    primary, *others = table.temperatures

    def stand(claims: Sequence[Claim], temperature: float) -> str:
        found = findings(table, claims, results, seeds, temperature=temperature)
        return _markdown(_CLAIMS, [_finding(one) for one in found])

    parts = [
        (f"Claims (temperature {primary:g})", stand(table.claims, primary)),
        (f"Ablations and controls (temperature {primary:g})", stand(table.ablations, primary)),
        *((f"Secondary: claims at temperature {one:g}", stand(table.claims, one)) for one in others),
        (f"Claims by family (temperature {primary:g})", _by_family(table, results, seeds)),
        (
            "Rows",
            _markdown(
                _ROWS, [cells for row in table.rows for cells in _row(row.name, table, results, seeds)]
            ),
        ),
        ("How episodes failed", _markdown(("row", "failed", *KINDS), [*_failures(table, results, seeds)])),
        ("Diagnostics", _diagnostics(table, results, seeds)),
    ]
    return "\n".join(f"### {title}\n\n{part}" for title, part in parts if part)


def power_report(table: Table) -> str:
    """How likely each claim's interval is to exclude 1, by the pilot's rates."""
    lines = []
    for claim in (*table.claims, *table.ablations):
        if claim.pilot is None or claim.margin is not None:
            continue
        ours, theirs = claim.pilot
        seeds = table.planned_seeds(claim)
        found = power(ours, theirs, seeds=seeds, tasks=table.episodes, spread=table.spread)
        lines.append((claim.name, f"{ours:.0%}", f"{theirs:.0%}", str(seeds), f"{found:.0%}"))
    return _markdown(("claim", "ours", "theirs", "seeds", "power"), lines)


_CLAIMS = (
    "claim",
    "ours",
    "theirs",
    "ratio",
    "95 %",
    "points",
    "95 %",
    "paper",
    "seeds",
    "higher in",
    "verdict",
    "fixed on",
)
_ROWS = (
    "row",
    "seed",
    "temperature",
    "success",
    "95 %",
    "n",
    "lost",
    "updates",
    "minutes",
    "episodes",
    "code",
    "log",
)


def _finding(finding: Finding) -> tuple[str, ...]:
    claim = finding.claim
    fixed = claim.fixed or "not yet"
    paper = "-" if claim.paper is None else f"{claim.paper:g}"
    if claim.margin is not None:
        paper = f"margin {claim.margin:g} points"
    if not finding.pairs:
        unknown = ["-"] * 4
        return (claim.name, claim.ours, claim.theirs, *unknown, paper, "0", "-", finding.verdict, fixed)
    ours, theirs = finding.rates
    ratio, gain = finding.ratio, finding.points
    return (
        claim.name,
        f"{claim.ours} {ours.rate:.1%}",
        f"{claim.theirs} {theirs.rate:.1%}",
        f"{ratio.rate:.2f}",
        _interval(ratio, "{:.2f}", 1),
        f"{100 * gain.rate:+.1f}",
        _interval(gain, "{:+.1f}", 100),
        paper,
        str(len(finding.pairs)),
        f"{finding.higher_in} of {len(finding.pairs)}",
        finding.verdict,
        fixed,
    )


def _by_family(table: Table, results: Results, seeds: Sequence[int]) -> str:
    """Points by family, at the first temperature."""
    found = findings(table, table.claims, results, seeds, temperature=table.temperatures[0])
    lines = [
        (
            one.claim.name,
            family,
            f"{mean_of([pair.ours for pair in pairs]).rate:.0%}",
            f"{mean_of([pair.theirs for pair in pairs]).rate:.0%}",
            f"{100 * points(pairs).rate:+.0f}",
            _interval(points(pairs), "{:+.0f}", 100),
        )
        for one in found
        for family, pairs in one.by_family.items()
    ]
    return _markdown(("claim", "family", "ours", "theirs", "points", "95 %"), lines)


def _interval(found: Interval, form: str, scale: float) -> str:
    if not isfinite(found.high):
        return "-"  # one seed has no spread
    return f"[{form.format(scale * found.low)}, {form.format(scale * found.high)}]"


def _row(name: str, table: Table, results: Results, seeds: Sequence[int]) -> Iterable[tuple[str, ...]]:
    for seed in seeds:
        result = results.get((name, seed))
        if result is None:
            yield (name, str(seed), "not run", *["-"] * (len(_ROWS) - 3))
            continue
        for temperature in table.temperatures:
            found = result.last(temperature)
            band = wilson(found.successes, found.episodes)
            yield (
                name,
                str(seed),
                f"{temperature:g}",
                f"{band.rate:.1%}",
                _interval(band, "{:.1f}", 100),
                str(found.episodes),
                str(found.lost),
                str(result.updates),
                f"{result.minutes:.1f}",
                str(result.training_episodes),
                result.revision or "-",
                f"`{result.log_digest[:16]}`" if result.log_digest else "-",
            )


def _failures(table: Table, results: Results, seeds: Sequence[int]) -> Iterable[tuple[str, ...]]:
    for row in table.rows:
        own = [
            results[row.name, seed].last(table.temperatures[0])
            for seed in seeds
            if (row.name, seed) in results
        ]
        failed = sum(one.episodes - one.successes for one in own)
        if failed:
            counts = [sum(one.failures.get(kind, 0) for one in own) for kind in KINDS]
            yield (row.name, str(failed), *(f"{count / failed:.0%}" for count in counts))


def _diagnostics(table: Table, results: Results, seeds: Sequence[int]) -> str:
    """One line per row: each figure's mean over the seeds."""
    lines = []
    for row in table.rows:
        own = [results[row.name, seed].diagnostics for seed in seeds if (row.name, seed) in results]
        names = sorted({name for one in own for name in one})
        told = [f"{name} {sum(one.get(name, 0.0) for one in own) / len(own):.4g}" for name in names]
        if told:
            lines.append(f"- **{row.name}**: {', '.join(told)}\n")
    return "".join(lines)


def _markdown(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    if not rows:
        return ""
    lines = [heads, ["---"] * len(heads), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)
