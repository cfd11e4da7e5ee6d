"""A text environment and a reward for it, in plain Python. docs/python.md trains on them."""

from random import Random


class Colors:
    """Choose a color and submit it."""

    max_steps = 4

    def reset(self, seed: int) -> str:
        """Return the first text of an episode."""
        colors = Random(seed).sample(["red", "green", "blue", "yellow", "black"], 3)
        self.wanted, self.chosen = Random(seed).choice(colors), ""
        self.instruction = f'Click on the "{self.wanted}" button, then on Submit.'
        self.choices = [*colors, "Submit"]
        return "Colors"

    def step(self, action: str) -> tuple[str, float, bool]:
        """Return the next text, the reward, and whether the episode is over."""
        if action == "Submit":
            return "Submitted.", float(self.chosen == self.wanted), True
        self.chosen = action
        return f"Chosen: {action}", 0.0, False


def short(answers: tuple[str, ...], reward: float) -> float:
    """Reward the right color; half of it where there were detours."""
    return reward if len(answers) == 2 else reward / 2
