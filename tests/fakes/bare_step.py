"""A step for folds that look at who took it, when and with which weights, not at what it read or did."""

from hindcast.core.domain.arrays import pack_floats, pack_ids
from hindcast.core.domain.sampling import Sampling
from hindcast.events.catalogue import StepTaken


def bare_step(
    episode: str,
    index: int,
    *,
    version: int = 0,
    observe_ms: float = 0.0,
    generate_ms: float = 0.0,
    act_ms: float = 0.0,
) -> StepTaken:
    """Two tokens read, one sampled from `version`."""
    return StepTaken(
        episode=episode,
        index=index,
        observation_digest="",
        observation=None,
        url="",
        world_ordinal=0,
        prompt_ids=pack_ids([1, 2]),
        action_ids=pack_ids([3]),
        logprobs=pack_floats([-0.5]),
        versions=pack_ids([version]),
        sampling=Sampling(temperature=1.0, max_tokens=8, seed=1),
        prompt_truncated=False,
        answer="",
        action=None,
        result="ok",
        detail="",
        observe_ms=observe_ms,
        generate_ms=generate_ms,
        act_ms=act_ms,
    )
