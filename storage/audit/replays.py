"""Checks replayed successes, format terms and length terms in a plan against the episodes, by ARPO's rules (arXiv 2505.16282).

Invariant: a replay takes the place of exactly one member of a group of the same task that failed altogether, and was
used up before its batch was planned. No state is kept between plans.
"""

from collections import defaultdict
from typing import Any

from hindcast.core.rl.advantages import SUCCESS_RESULT, failed_altogether
from hindcast.storage.audit.check import Check
from hindcast.storage.audit.decoder import Event
from hindcast.storage.audit.episodes import Episode, Episodes

Planned = dict[str, Any]


def check_replays(check: Check, event: Event, episodes: Episodes) -> None:
    """Check all replays of one `batch.planned`, before its own use of episodes is counted."""
    compared = _compared(event)
    for planned in compared.values():
        if planned.get("replaces") is not None:
            _check_source(check, event, episodes, planned)
    groups: dict[str, list[Planned]] = defaultdict(list)
    for planned in compared.values():
        groups[planned["group"]].append(planned)
    for name, members in groups.items():
        replays = [planned for planned in members if planned.get("replaces") is not None]
        check.require(len(replays) < 2, event, f"replays into group {name}", "1 at most", len(replays))
        if len(replays) == 1:
            _check_trigger(check, event, episodes, members, replays[0])
    for planned in event.payload["episodes"]:
        odd = planned.get("rehearsed") and (
            planned.get("replaces") is not None
            or planned.get("format_term", 0.0) != 0
            or planned.get("length_term", 0.0) != 0
        )
        check.require(not odd, event, f"{planned['episode']} is rehearsed, and compared as well")


def check_format_terms(check: Check, event: Event, episodes: Episodes) -> None:
    """Check that each episode with an unparsable action has the same penalty in its batch, and others have none."""
    compared = _compared(event).values()
    terms = {planned.get("format_term", 0.0) for planned in compared} - {0.0}
    if not terms:
        return
    if len(terms) > 1 or max(terms) > 0:
        check.defect(event, "format terms differ, or add to a reward", "one below 0", sorted(terms))
        return
    for planned in compared:
        episode = episodes.find(planned["episode"])
        if episode is None or not episodes.is_seen(episode):
            continue
        expected = min(terms) if episode.unparsable else 0.0
        check.require(
            planned.get("format_term", 0.0) == expected,
            event,
            f"format term of {planned['episode']}",
            expected,
            planned.get("format_term", 0.0),
        )


def check_length_terms(check: Check, event: Event) -> None:
    """Check that the length of an episode adds nothing to its reward."""
    for planned in _compared(event).values():
        term = planned.get("length_term", 0.0)
        check.require(term <= 0, event, f"length term of {planned['episode']}", "0 or below", term)


def _compared(event: Event) -> dict[tuple[str, str], Planned]:
    """Each place of each group once, in however many epochs."""
    return {
        (planned["group"], planned["episode"]): planned
        for planned in event.payload["episodes"]
        if not planned.get("rehearsed")
    }


def _check_source(check: Check, event: Event, episodes: Episodes, planned: Planned) -> None:
    name, episode = planned["episode"], episodes.find(planned["episode"])
    if episode is None or not episodes.is_seen(episode):
        return
    was_used = episode.uses or episode.swept_at
    check.require(was_used, event, f"it replays {name}, which was not used up before")
    check.require(
        episode.origin == "online", event, f"it replays {name}", "an online episode", episode.origin
    )
    reward = planned["reward"]
    check.require(reward > SUCCESS_RESULT, event, f"it replays {name}", f"above {SUCCESS_RESULT}", reward)


def _check_trigger(
    check: Check, event: Event, episodes: Episodes, members: list[Planned], replay: Planned
) -> None:
    """Check that the replaced member belongs to the group, is not trained on, and that the whole group had failed."""
    name = replay["replaces"]
    replaced, success = episodes.find(name), episodes.find(replay["episode"])
    is_known = replaced is not None and episodes.is_seen(replaced)
    if not is_known or replaced is None:
        return
    group = replay["group"]
    check.require(
        replaced.group == group, event, f"group of {name}, which is replaced", group, replaced.group
    )
    given_up = name in event.payload["consumed"] and all(member["episode"] != name for member in members)
    check.require(given_up, event, f"{name} is replaced, and not given up")
    if success is not None and success.task and success.task != replaced.task:
        check.defect(event, f"{replay['episode']} is of another task", replaced.task, success.task)
    if success is not None and success.group == group:
        check.defect(event, f"{replay['episode']} is replayed into its own group", "", group)
    other_rewards = [member["reward"] for member in members if member is not replay]
    group_failed = any(failed_altogether([*other_rewards, reward]) for reward in _results(replaced))
    check.require(group_failed, event, f"it replays into group {group}, which had not failed altogether")


def _results(episode: Episode) -> list[float]:
    """Rewards from all judges; which of them trains does not matter here."""
    return [reward for _, outcome, reward in episode.verdicts if outcome != "undecided"]
