"""Suggestions for unknown names: aliases from papers and other tools, then similar spellings."""

import re
from collections.abc import Iterable, Mapping

from rapidfuzz import fuzz, process, utils

ALIKE = 60.0
"""Least similarity of a suggestion, in percent: 2 x common letters in order / letters of both. `grpo` and `mgrpo` have 89."""
MOST_NAMED = 20
"""Most names that a sentence lists."""

ALIASES: Mapping[str, tuple[str, ...]] = {
    # algorithms and recipes
    "advantage_weighted_regression": ("awr",),
    "bc": ("sft", "cloning"),
    "behavior_cloning": ("sft", "cloning"),
    "behavioral_cloning": ("sft", "cloning"),
    "behaviour_cloning": ("sft", "cloning"),
    "best_of_n": ("filtered_bc",),
    "dapo": ("mgrpo", "grpo"),
    "direct_preference_optimization": ("dpo",),
    "expert_iteration": ("filtered_bc",),
    "fine_tuning": ("sft",),
    "finetuning": ("sft",),
    "grpo": ("mgrpo",),
    "her": ("hsl", "rules"),
    "hindsight": ("hsl", "rules"),
    "hindsight_experience_replay": ("hsl", "rules"),
    "hindsight_supervised_learning": ("hsl", "rules"),
    "imitation": ("sft", "cloning"),
    "imitation_learning": ("sft", "cloning"),
    "ppo": ("mgrpo", "grpo"),
    "raft": ("filtered_bc",),
    "reinforce": ("mgrpo",),
    "rejection_sampling": ("filtered_bc",),
    "rft": ("filtered_bc",),
    "rloo": ("mgrpo", "grpo"),
    "sil": ("self_imitation",),
    "star": ("filtered_bc",),
    "supervised": ("sft",),
    # judges and relabelers
    "evaluator": ("rules", "judge"),
    "gpt": ("endpoint",),
    "gpt_4": ("endpoint",),
    "gpt_4o": ("endpoint",),
    "llm": ("endpoint",),
    "llm_as_a_judge": ("endpoint",),
    "llm_judge": ("endpoint",),
    "openai": ("endpoint",),
    "outcome_reward_model": ("orm",),
    "programmatic": ("rules",),
    "reward_model": ("orm",),
    "rm": ("orm",),
    "verifier": ("orm", "judge"),
    "vlm": ("endpoint",),
    # environments and suites
    "assistantbench": ("browsergym",),
    "custom": ("web",),
    "shop": ("store", "webshop"),
    "vab": ("webarena",),
    "visualagentbench": ("webarena",),
    "visualwebarena": ("browsergym",),
    "wob": ("miniwob",),
    "workarena": ("browsergym",),
    # formats of exports
    "arrow": ("parquet",),
    "csv": ("parquet",),
    "duckdb": ("parquet",),
    "harbor": ("atif",),
    "hf": ("dataset",),
    "hugging_face": ("dataset",),
    "huggingface": ("dataset",),
    "json": ("jsonl",),
    "ndjson": ("jsonl",),
    "pandas": ("parquet",),
    "tables": ("parquet",),
    "traces": ("sts",),
    "trajectories": ("atif",),
    # roles
    "dashboard": ("page",),
    "generator": ("actor",),
    "rollout": ("actor",),
    "rollout_worker": ("actor",),
    "sampler": ("actor",),
    "scheduler": ("curriculum",),
    "trainer": ("learner",),
    "ui": ("page",),
    "worker": ("actor",),
    # states, outcomes and origins
    "done": ("ended",),
    "eval": ("evaluation",),
    "expert": ("demonstration",),
    "fail": ("failure",),
    "finished": ("ended",),
    "killed": ("abandoned",),
    "pass": ("success",),
    "queued": ("requested",),
    "running": ("started",),
    "training": ("online",),
    # commands
    "backup": ("archive",),
    "branch": ("fork",),
    "delete": ("forget",),
    "demo": ("record",),
    "diff": ("compare",),
    "evaluate": ("eval",),
    "events": ("log", "tail"),
    "kill": ("cancel", "ctl"),
    "logs": ("log",),
    "ls": ("list", "run"),
    "rescore": ("rejudge",),
    "restore": ("repair",),
    "resume": ("start",),
    "score": ("rejudge",),
    "serve": ("page",),
    "settings": ("config",),
    "status": ("show", "run"),
    "stop": ("drain", "ctl"),
    "submit": ("start",),
    "summary": ("show", "run"),
    "top": ("watch",),
    "validate": ("check", "verify"),
    # metrics
    "entropy": ("entropy_estimate",),
    "grad_norm": ("gradient_norm",),
    "importance_ratio": ("ratio_mean",),
    "kl_divergence": ("kl",),
}
"""Names in papers and other tools -> our names; the first known one is suggested."""


def nearest(name: str, known: Iterable[str], *, most: int = 1) -> list[str]:
    """Find the known names most like a name, best first: its alias, then by spelling."""
    names = sorted(known)
    plain = re.sub(r"[\W_]+", "_", name.lower()).strip("_")
    meant = [one for one in ALIASES.get(plain, ()) if one in names][:1]
    alike = process.extract(
        name, names, scorer=fuzz.ratio, processor=utils.default_process, score_cutoff=ALIKE, limit=most
    )
    return list(dict.fromkeys([*meant, *(match for match, *_ in alike)]))[:most]


def advice(name: str, known: Iterable[str]) -> str:
    """Suggest a replacement for an unknown name, as the end of a sentence: the nearest known name, and all names if few.

    >>> advice("grpo", ["mgrpo", "webrl"])
    'the nearest is mgrpo; there are: mgrpo, webrl'
    >>> advice("xyz", ["mgrpo", "webrl"])
    'there are: mgrpo, webrl'
    """
    names = sorted(known)
    near = nearest(name, names)
    said = [f"the nearest is {near[0]}"] if near else []
    if not near or len(names) <= MOST_NAMED:
        more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
        said.append(f"there are: {', '.join(names[:MOST_NAMED]) or 'none'}{more}")
    return "; ".join(said)
