"""An order form whose wrong answer is known and cannot be mended: an environment in Python with a demonstrator who errs once.

Each of five pages names one of three buttons. A click on another one sends a wrong order, and the next page follows.
The demonstrator clicks as asked but at one step, which the task's seed says.
"""

from collections.abc import Mapping, Sequence
from random import Random

from hindcast.actors.environments.base import Demonstrate
from hindcast.actors.environments.python.plugin import PythonEnvironment
from hindcast.core.domain.action import Action
from hindcast.core.domain.observation import Observation
from hindcast.core.domain.task import Task

COLORS = ("red", "green", "blue", "yellow", "black", "white", "orange", "pink")
PAGES = 5


class OrderForm:
    """Click on the button that each page names."""

    max_steps = PAGES + 1

    def reset(self, seed: int) -> str:
        """Return the first page."""
        self._random = Random(seed)
        self._page, self._mistakes = 0, 0
        return self._asked()

    def step(self, action: str) -> tuple[str, float, bool]:
        """Take an answer for good. Return the next page, the reward, and whether the form is complete."""
        self._mistakes += action != self.wanted
        self._page += 1
        if self._page == PAGES:
            return "Sent.", float(self._mistakes == 0), True
        return self._asked(), 0.0, False

    def _asked(self) -> str:
        self.choices = self._random.sample(COLORS, 3)
        self.wanted = self._random.choice(self.choices)
        return f'{self._page + 1}. Click on the "{self.wanted}" button.'


def wrong_step(seed: int) -> int:
    """The step at which the demonstrator errs at the task of this seed."""
    return seed % PAGES


def demonstrate(
    task: Task, _instruction: str, _observation: Observation, actions: Sequence[Action | None]
) -> Action:
    """Click as the page asks, and at the wrong step on another button."""
    form, step = OrderForm(), len(actions)
    form.reset(task.seed)
    for _ in range(step):
        form.step("")
    right = form.choices.index(form.wanted)
    place = (right + 1) % len(form.choices) if step == wrong_step(task.seed) else right
    return Action(name="Click", element=place + 1)


class FormEnvironment(PythonEnvironment):
    """The form with its demonstrator."""

    def demonstrators(self) -> Mapping[str, Demonstrate]:
        """See `Environment.demonstrators`."""
        return {"all": demonstrate}


ENVIRONMENT = FormEnvironment(OrderForm)
