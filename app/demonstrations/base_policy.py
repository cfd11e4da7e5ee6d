"""`hindcast train base`: record demonstrations in a browser, then train the base policy from nothing.

The learner's part reads files alone; what needs sites and browsers happens here.
"""

import re
from pathlib import Path

import miniwob

from hindcast.actors.environments.miniwob.families import USUAL as MINIWOB_FAMILIES
from hindcast.actors.environments.store.families import FAMILIES as STORE_FAMILIES
from hindcast.actors.environments.store.words import vocabulary_words
from hindcast.app.demonstrations.scripted import record
from hindcast.core.settings.schema import Settings
from hindcast.learner.base_policy.building import PHASES, build
from hindcast.learner.base_policy.mix import CLONED, GLIMPSED

DEMONSTRATIONS = "demonstrations.jsonl"
WORDS = "words.txt"
PAGES_ONLY_EPISODES = 8
"""Episodes recorded of a family that is not imitated: its pages are read, its actions are not learned."""
MINIWOB_WORDS = ("lorem_words", "FIFTY_NAMES")
"""Lists of MiniWoB++'s own script that its pages draw their texts from."""

_WORD = re.compile(r"""["']([A-Za-z]+),?["']""")


async def record_all(folder: Path, *, settings: Settings) -> int:
    """Write demonstrations of the usual and glimpsed families, and the sites' words, into the folder; returns the steps."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / WORDS).write_text("\n".join(site_words()) + "\n")
    (folder / DEMONSTRATIONS).unlink(missing_ok=True)
    names = [f"store/{name}" for name in STORE_FAMILIES] + [f"miniwob/{name}" for name in MINIWOB_FAMILIES]
    wanted = dict.fromkeys(names, PAGES_ONLY_EPISODES) | GLIMPSED | CLONED
    return await record(wanted, folder / DEMONSTRATIONS, settings=settings)


def train_base(folder: Path, *, minutes: float, seed: int) -> None:
    """Train in the folder that `record_all` has filled. Takes `minutes` of two cores."""
    scale = minutes / sum(phase.minutes for phase in PHASES)
    build(
        folder,
        demonstrations=folder / DEMONSTRATIONS,
        words=(folder / WORDS).read_text().split(),
        seed=seed,
        phases=[phase._replace(minutes=phase.minutes * scale) for phase in PHASES],
    )


def site_words() -> tuple[str, ...]:
    """What the sites' pages are made of, each word once, in order of the alphabet."""
    script = Path(miniwob.__file__).parent / "html" / "common" / "ui_utils.js"
    source = script.read_text(encoding="utf-8", errors="replace")
    found = set(vocabulary_words())
    for name in MINIWOB_WORDS:
        match = re.search(rf"ui_utils\.{name} = \[(.*?)\];", source, flags=re.DOTALL)
        found.update(_WORD.findall(match.group(1)) if match else ())
    return tuple(sorted(found))
