"""Asynchrony as arithmetic: how old a step is, and how many more episodes may be begun.

The admission rule is AReaL's (arXiv 2505.24298, section 5.1), with a term for episodes that were lost: without it
every lost episode would use up room for ever, and admission would stop in the end. Invariant "Counters are
projections": the arguments are folded from the log, so a restart cannot get them wrong.
"""


def staleness(*, version: int, sampled: int) -> int:
    """How many versions a token sampled from `sampled` is behind `version`."""
    return version - sampled


def is_stale(*, version: int, sampled: int, eta: int) -> bool:
    """Whether a fresh online step is too old to be trained into `version`."""
    return staleness(version=version, sampled=sampled) > eta


def room(*, eta: int, version: int, batch: int, accepted: int, discarded: int, running: int) -> int:
    """Episodes that may still be begun if none is to be older than `eta` when its turn to be trained comes.

    Args:
        eta: versions an episode may be behind (`learner.max_staleness`).
        version: current policy version; each has used up one batch.
        batch: episodes in one batch.
        accepted: episodes that have reached their end, ever.
        discarded: those of them that no update used or will use: swept, undecided, abandoned, dropped.
        running: episodes begun, or promised to a group, that have not ended.

    Returns:
        `(eta + version + 1) * batch - (accepted - discarded + running)`; negative when too many are under way.

    """
    return (eta + version + 1) * batch - (accepted - discarded + running)


def capacity(
    *, max_running: int, eta: int, version: int, batch: int, accepted: int, discarded: int, running: int
) -> int:
    """Episodes that may be begun now: `min(max_running - running, room)`; not positive when none may."""
    admitted = room(
        eta=eta, version=version, batch=batch, accepted=accepted, discarded=discarded, running=running
    )
    return min(max_running - running, admitted)
