"""Checks pairs in a DPO plan: each a demonstration that succeeded, then an agent's failure at the same task."""

from typing import Any

from hindcast.storage.audit.check import Check
from hindcast.storage.audit.decoder import Event
from hindcast.storage.audit.episodes import Episodes


def check_pairs(check: Check, event: Event, episodes: Episodes) -> None:
    """Check all pairs of one `batch.planned`."""
    planned = event.payload["episodes"]
    signs = [episode["advantage"] for episode in planned]
    expected = [1.0, -1.0] * (len(planned) // 2)
    algorithm = event.payload["algorithm"]
    check.require(signs == expected, event, f"{algorithm!r}: its episodes are not pairs", expected, signs)
    for better, worse in zip(planned[::2], planned[1::2], strict=False):
        _check_pair(check, event, episodes, better, worse)


def _check_pair(
    check: Check, event: Event, episodes: Episodes, better: dict[str, Any], worse: dict[str, Any]
) -> None:
    demonstration, failure = episodes.find(better["episode"]), episodes.find(worse["episode"])
    if demonstration is None or failure is None:
        return
    if not (episodes.is_seen(demonstration) and episodes.is_seen(failure)):
        return
    names = f"{better['episode']} and {worse['episode']}"
    origins = (demonstration.origin, failure.origin)
    check.require(
        origins == ("demonstration", "online"),
        event,
        f"origins of the pair {names}",
        "demonstration, online",
        origins,
    )
    check.require(
        demonstration.task == failure.task,
        event,
        f"tasks of the pair {names}",
        demonstration.task,
        failure.task,
    )
    outcomes = [{outcome for _, outcome, _ in episode.verdicts} for episode in (demonstration, failure)]
    fits = "success" in outcomes[0] and "failure" in outcomes[1]
    check.require(fits, event, f"outcomes of the pair {names}", "success, failure", outcomes)
