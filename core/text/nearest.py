"""Suggestions for unknown names: aliases from papers and other tools, then similar spellings."""

import re
from collections.abc import Iterable, Mapping

from rapidfuzz import fuzz, process, utils

ALIKE = 60.0
"""Least similarity of a suggestion, in percent: 2 x common letters in order / letters of both. `grpo` and `mgrpo` have 89."""
MOST_NAMED = 20
"""Most names that a sentence lists."""

_ALIASES_OF = {
    # algorithms and recipes
    "awr": "advantage_weighted_regression",
    "sft cloning": "bc behavior_cloning behavioral_cloning behaviour_cloning imitation imitation_learning",
    "filtered_bc": "best_of_n expert_iteration raft rejection_sampling rft star",
    "mgrpo grpo": "cispo dapo dr_grpo gspo ppo rloo",
    "dpo": "direct_preference_optimization",
    "sft": "fine_tuning finetuning supervised",
    "mgrpo": "grpo reinforce",
    "hsl rules": "her hindsight hindsight_experience_replay hindsight_supervised_learning",
    "self_imitation": "sil",
    # judges and relabelers
    "rules judge": "evaluator",
    "endpoint": "gpt gpt_4 gpt_4o llm llm_as_a_judge llm_judge openai vlm",
    "orm": "outcome_reward_model reward_model rm",
    "rules": "programmatic",
    "orm judge": "verifier",
    # environments and suites
    "browsergym": "assistantbench visualwebarena workarena",
    "web": "custom",
    "store webshop": "shop",
    "webarena": "vab visualagentbench",
    "miniwob": "wob",
    # formats of exports
    "parquet": "arrow csv duckdb pandas tables",
    "atif": "harbor trajectories",
    "dataset": "hf hugging_face huggingface",
    "jsonl": "json ndjson",
    "sts": "traces",
    # roles
    "page": "dashboard serve ui",
    "actor": "generator rollout rollout_worker sampler worker",
    "curriculum": "scheduler",
    "learner": "trainer",
    # states, outcomes and origins
    "ended": "done finished",
    "evaluation": "eval",
    "demonstration": "expert",
    "failure": "fail",
    "abandoned": "killed",
    "success": "pass",
    "requested": "queued",
    "started": "running",
    "online": "training",
    # commands
    "archive": "backup",
    "fork": "branch",
    "forget": "delete",
    "record": "demo",
    "compare": "diff",
    "eval": "evaluate",
    "log tail": "events",
    "cancel ctl": "kill",
    "log": "logs",
    "list run": "ls",
    "rejudge": "rescore score",
    "repair": "restore",
    "start": "resume submit",
    "config": "settings",
    "show run": "status summary",
    "drain ctl": "stop",
    "watch": "top",
    "check verify": "validate",
    # metrics
    "entropy_estimate": "entropy",
    "gradient_norm": "grad_norm",
    "ratio_mean": "importance_ratio",
    "kl": "kl_divergence",
}
"""Our names, the first known one is suggested -> their names in papers and other tools."""
ALIASES: Mapping[str, tuple[str, ...]] = {
    alias: tuple(ours.split()) for ours, aliases in _ALIASES_OF.items() for alias in aliases.split()
}


def nearest(name: str, known: Iterable[str], *, limit: int = 1) -> list[str]:
    """Find the known names most like a name, best first: its alias, then by spelling."""
    names = sorted(known)
    plain = re.sub(r"[\W_]+", "_", name.lower()).strip("_")
    aliases = [alias for alias in ALIASES.get(plain, ()) if alias in names][:1]
    alike = process.extract(
        name, names, scorer=fuzz.ratio, processor=utils.default_process, score_cutoff=ALIKE, limit=limit
    )
    return list(dict.fromkeys([*aliases, *(match for match, *_ in alike)]))[:limit]


def advice(name: str, known: Iterable[str]) -> str:
    """Suggest a replacement for an unknown name, as the end of a sentence: the nearest known name, and all names if few.

    >>> advice("grpo", ["mgrpo", "webrl"])
    'the nearest is mgrpo; there are: mgrpo, webrl'
    >>> advice("xyz", ["mgrpo", "webrl"])
    'there are: mgrpo, webrl'
    """
    names = sorted(known)
    near = nearest(name, names)
    clauses = [f"the nearest is {near[0]}"] if near else []
    if not near or len(names) <= MOST_NAMED:
        more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
        clauses.append(f"there are: {', '.join(names[:MOST_NAMED]) or 'none'}{more}")
    return "; ".join(clauses)
