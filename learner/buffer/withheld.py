"""Episodes that a derived run leaves out (`hindcast without`): nothing is trained on them, and nothing remembers them.

They stay in the log and in their groups. The learner sweeps each once it has ended (`withheld`), so a group continues without it,
as without an undecided one.
"""

from collections.abc import Iterable

from hindcast.learner.buffer.state import BufferState


def withhold(state: BufferState, episodes: Iterable[str]) -> None:
    """Leave episodes out from here on: of later batches, and of all that is kept for them."""
    state.withheld |= set(episodes)
    withheld = state.withheld
    for remembered in (state.successes, state.stored):
        for key, latest in remembered.items():
            remembered[key] = [episode for episode in latest if episode.id not in withheld]
    state.earlier = {key: episode for key, episode in state.earlier.items() if episode.id not in withheld}
    state.hindsight = [episode for episode in state.hindsight if episode.episode.id not in withheld]
    state.phase = [name for name in state.phase if name not in withheld]
    for name in withheld:
        state.pending.pop(name, None)
        state.outcomes.withhold(name)
        state.lessons.withhold(name)
