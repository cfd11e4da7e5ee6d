"""Translates settings of earlier versions: fields of `learner` that are now options of algorithms.

Decoding translates recorded settings. New settings files and overrides with an old name are refused.
"""

from collections.abc import Mapping
from typing import Any

OPTIONS = frozenset(
    {
        "group_deviation",
        "group_epsilon",
        "clip_low",
        "clip_high",
        "dual_clip",
        "format_penalty",
        "success_replay",
        "replay_memory",
        "replay_correction",
        "kl_coefficient",
        "cloning_coefficient",
        "rehearsal_episodes",
        "rehearsal_coefficient",
        "rehearsal_memory",
        "group_batch",
        "loss",
        "beta",
        "advantage",
        "advantage_blend",
        "discount",
        "episode_share",
        "phase_replay",
        "phase_demonstrations",
        "phase_memory",
        "phase_replay_ratio",
        "phase_window",
        "phase_window_open",
        "filter_episodes",
        "filter_percentile",
        "filter_discount",
        "pair_batch",
        "dpo_beta",
        "hsl_episodes",
        "hsl_memory",
        "hsl_batch",
        "hsl_weighting",
        "hsl_alpha",
        "hsl_mixture",
        "hsl_tokens",
        "hsl_mask",
        "hsl_failures_only",
    }
)
"""Options that earlier versions had as settings: `learner.NAME` is now `learner.options.NAME`."""


def renamed(key: str) -> str:
    """Return today's name of a setting, which is the same if it has not changed."""
    section, _, name = key.partition(".")
    return f"learner.options.{name}" if section == "learner" and name in OPTIONS else key


def translate(sections: Mapping[str, Any]) -> dict[str, Any]:
    """Rename settings from a log or a file to today's names. If an option has both names, the value under the new one wins."""
    learner = sections.get("learner")
    if not isinstance(learner, Mapping) or not OPTIONS & learner.keys():
        return dict(sections)
    remaining = {name: value for name, value in learner.items() if name not in OPTIONS}
    moved = {name: value for name, value in learner.items() if name in OPTIONS}
    return {**sections, "learner": {**remaining, "options": {**moved, **remaining.get("options", {})}}}
