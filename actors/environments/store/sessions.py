"""Sessions of the running store: isolated from each other, bounded in number, size and age."""

from collections import OrderedDict
from collections.abc import Callable

from hindcast.actors.environments.store.catalogue import Catalogue
from hindcast.actors.environments.store.initial_state import opening_state
from hindcast.actors.environments.store.session import AnyFact, VisitorState, apply

MAX_SESSIONS = 2048
"""Most sessions; beyond it the least recently used one ends."""
IDLE_S = 1800.0
"""A session unused for longer ends."""
MAX_FACTS = 500
"""Most facts in one journal: an episode of 30 steps leaves fewer than 100."""


class Session:
    """One visitor's visit."""

    def __init__(self, catalogue: Catalogue, *, family: str, seed: int) -> None:
        self.family = family
        self.seed = seed
        self.opening: VisitorState = opening_state(catalogue, family, seed)
        self.state: VisitorState = self.opening
        self.journal: list[AnyFact] = []

    @property
    def full(self) -> bool:
        """Whether the journal takes no more facts."""
        return len(self.journal) >= MAX_FACTS

    def record(self, fact: AnyFact) -> None:
        """Append a fact and fold it into the state. Callers check `full` once per request."""
        self.journal.append(fact)
        self.state = apply(self.state, fact)


class Sessions:
    """Sessions by token. The clock decides only when a session ends, never what a page shows."""

    def __init__(
        self, *, clock: Callable[[], float], token: Callable[[], str], capacity: int = MAX_SESSIONS
    ) -> None:
        self._clock = clock
        self._token = token
        self._capacity = capacity
        self._held: OrderedDict[str, tuple[float, Session]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._held)

    def open(self, session: Session) -> str:
        """Add a session and return its token."""
        self._expire()
        while len(self._held) >= self._capacity:
            self._held.popitem(last=False)
        token = self._token()
        self._held[token] = (self._clock(), session)
        return token

    def get(self, token: str) -> Session | None:
        """The session of a token, now the latest used; None when unknown or ended."""
        self._expire()
        held = self._held.pop(token, None)
        if held is None:
            return None
        self._held[token] = (self._clock(), held[1])
        return held[1]

    def close(self, token: str) -> bool:
        """End a session; False when there was none."""
        return self._held.pop(token, None) is not None

    def _expire(self) -> None:
        oldest = self._clock() - IDLE_S
        while self._held:
            token, (used, _) = next(iter(self._held.items()))
            if used >= oldest:
                return
            del self._held[token]
