"""A Gymnasium environment as text: Frozen Lake, whose map the agent reads and whose four moves it chooses from."""

import gymnasium


class FrozenLake:
    """Reach G from S without falling into a hole H."""

    max_steps = 30
    choices = ("left", "down", "right", "up")

    def __init__(self) -> None:
        self.lake = gymnasium.make("FrozenLake-v1", render_mode="ansi", is_slippery=False)

    def reset(self, seed: int) -> str:
        """Return the map."""
        self.lake.reset(seed=seed)
        return self.shown()

    def step(self, action: str) -> tuple[str, float, bool]:
        """Move. Return the map, 1.0 at the goal, and whether the episode is over."""
        _, reward, reached, cut, _ = self.lake.step(self.choices.index(action))
        return self.shown(), float(reward), reached or cut

    def shown(self) -> str:
        """The map, with the agent's square as `*`."""
        rows = ["".join(square.decode() for square in row) for row in self.lake.unwrapped.desc]
        row, column = divmod(int(self.lake.unwrapped.s), len(rows[0]))
        rows[row] = f"{rows[row][:column]}*{rows[row][column + 1 :]}"
        return "\n".join(rows)
