"""Episodes that a derived run leaves out (`hindcast without`): nothing is trained on them, and nothing remembers them.

They stay in the log and in their groups. The learner sweeps each once it has ended (`withheld`), so a group continues without it,
as without an undecided one.
"""

from collections.abc import Iterable

from hindcast.learner.buffer.state import BufferState


def withhold(state: BufferState, episodes: Iterable[str]) -> None:
    """Leave episodes out from here on: of later batches, and of all that is kept for them."""
    state.withheld |= set(episodes)
    gone = state.withheld
    for remembered in (state.successes, state.stored):
        for key, latest in remembered.items():
            remembered[key] = [one for one in latest if one.id not in gone]
    state.earlier = {key: one for key, one in state.earlier.items() if one.id not in gone}
    state.hindsight = [one for one in state.hindsight if one.episode.id not in gone]
    state.phase = [name for name in state.phase if name not in gone]
    for name in gone:
        state.pending.pop(name, None)
        state.outcomes.withhold(name)
        state.lessons.withhold(name)
