"""How an episode failed, in the four kinds of WebRL's error analysis (arXiv 2411.02337, figure 3), by rules.

The paper's kinds were given by people; ours follow from the recorded steps alone:

- `no attempt`: no action changed anything: none of its steps led to another page.
- `stuck midway`: it ran out of steps, the last `STUCK` of them on one page.
- `no recovery`: an action failed (no such element, not actionable, no action at all, …), and from there on it came to no
  page that it had not seen.
- `wrong stop`: it ended by its own decision, or ran out of steps elsewhere, where the task was not done.

The first that fits counts.
"""

from typing import Literal

from hindcast.app.evaluation.evaluation import EvaluatedEpisode

Failure = Literal["no attempt", "stuck midway", "no recovery", "wrong stop"]
KINDS: tuple[Failure, ...] = ("no attempt", "stuck midway", "no recovery", "wrong stop")
STUCK = 3
"""Steps in a row on one page."""


def failure_kind(episode: EvaluatedEpisode) -> Failure:
    """Which kind a failed episode is."""
    pages = [step.page for step in episode.steps]
    if len(set(pages)) < 2:
        return "no attempt"
    if episode.end == "max_steps" and len(pages) >= STUCK and len(set(pages[-STUCK:])) == 1:
        return "stuck midway"
    broken = [index for index, step in enumerate(episode.steps) if step.result not in ("ok", "exit")]
    if broken and set(pages[broken[0] :]) <= set(pages[: broken[0] + 1]):
        return "no recovery"
    return "wrong stop"
