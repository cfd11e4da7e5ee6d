"""Forms of five kinds, three of which ask for a button and two of which ask to avoid one. docs/why.md takes them apart."""

from random import Random

WORDS = {
    "colors": ("red", "green", "blue", "yellow", "black", "white"),
    "animals": ("cat", "dog", "horse", "mouse", "bird", "fish"),
    "tools": ("hammer", "saw", "drill", "file", "knife", "rope"),
}


class Forms:
    """Click on the button that each page asks for."""

    families = ("colors", "animals", "tools", "not_colors", "not_animals")
    max_steps = 4
    pages = 3

    def reset(self, seed: int, family: str) -> str:
        """Return the first page."""
        self.random, self.family = Random(f"{family} {seed}"), family
        self.page, self.mistakes = 0, 0
        return self._asked()

    def step(self, action: str) -> tuple[str, float, bool]:
        """Take an answer for good. Return the next page, the reward, and whether the form is complete."""
        self.mistakes += (action == self.named) == self.family.startswith("not_")
        self.page += 1
        if self.page == self.pages:
            return "Sent.", float(self.mistakes == 0), True
        return self._asked(), 0.0, False

    def _asked(self) -> str:
        self.choices = self.random.sample(WORDS[self.family.removeprefix("not_")], 2)
        self.named = self.random.choice(self.choices)
        words = "Do not click" if self.family.startswith("not_") else "Click"
        return f'{self.page + 1}. {words} on the "{self.named}" button.'
