"""Staleness of steps, and admission: how many more episodes may start.

The admission rule is AReaL's (arXiv 2505.24298, section 5.1), with a term for lost episodes: without it every lost episode
would use up room forever, and admission would stop in the end. Invariant "Counters are projections": the arguments are
folded from the log, so a restart cannot get them wrong.
"""


def is_stale(*, version: int, sampled: int, eta: int) -> bool:
    """Whether a token sampled from version `sampled` is more than `eta` versions behind `version`: too old to be trained on."""
    return version - sampled > eta


def room(*, eta: int, version: int, batch: int, accepted: int, discarded: int, running: int) -> int:
    """Count the episodes that may still start if none shall be older than `eta` when it is trained on.

    Args:
        eta: versions that an episode may be behind (`learner.max_staleness`).
        version: current policy version; each version has used up one batch.
        batch: episodes in one batch.
        accepted: all episodes that have ended so far.
        discarded: accepted episodes that no update uses: swept, undecided, abandoned, dropped.
        running: episodes started, or promised to a group, that have not ended.

    Returns:
        `(eta + version + 1) * batch - (accepted - discarded + running)`; negative if too many are running.
    """
    return (eta + version + 1) * batch - (accepted - discarded + running)


def capacity(
    *, max_running: int, eta: int, version: int, batch: int, accepted: int, discarded: int, running: int
) -> int:
    """Count the episodes that may start now: `min(max_running - running, room)`; 0 or less if none may."""
    admitted = room(
        eta=eta, version=version, batch=batch, accepted=accepted, discarded=discarded, running=running
    )
    return min(max_running - running, admitted)
