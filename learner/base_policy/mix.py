"""What the base policy is trained on: which families it may imitate, from how few episodes, and what it only reads.

A base that chooses perfectly leaves nothing to learn, one that cannot read learns nothing. So it reads every page of
the sites, asked by generated questions, and imitates few episodes of a part of the families.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from core.observation import Page
from learner.base_policy.lookups import Sample

CLONED: dict[str, int] = {
    "store/find_price": 60,
    "store/find_feature": 20,
    "store/find_product": 20,
    "store/add_to_cart": 40,
    "store/buy": 20,
    "store/remove_from_cart": 20,
    "store/wish_list": 30,
    "store/order_status": 30,
    "miniwob/click-test": 8,
    "miniwob/click-test-2": 20,
    "miniwob/click-button": 50,
    "miniwob/click-link": 50,
    "miniwob/click-dialog": 20,
    "miniwob/click-tab": 30,
    "miniwob/click-collapsible": 20,
    "miniwob/click-checkboxes": 50,
    "miniwob/click-option": 30,
    "miniwob/click-widget": 20,
    "miniwob/choose-list": 40,
    "miniwob/focus-text": 8,
    "miniwob/focus-text-2": 20,
    "miniwob/enter-text": 40,
    "miniwob/login-user": 40,
}
"""Family -> episodes that are imitated. Families that are not named are never imitated."""


class Mix(NamedTuple):
    """What is trained on; the rest of the samples, up to all, are look-ups."""

    demonstrations: Sequence[Sample] = ()
    share: float = 0.0
    """Of demonstrations among all samples, every family as often as another."""
    pages: Sequence[Page] = ()
    """Pages that are only asked about."""
    page_share: float = 0.0
    """Of such pages among all samples."""
    vocabulary: tuple[str, ...] = ()
    """Words of the sites, for look-ups."""


def choose(
    recorded: Iterable[Sample], *, share: float, page_share: float, vocabulary: tuple[str, ...]
) -> Mix:
    """Keep the first episodes of each cloned family as demonstrations, and every page for questions."""
    seeds: dict[str, list[int]] = {}
    demonstrations: list[Sample] = []
    pages: list[Page] = []
    for sample in recorded:
        known = seeds.setdefault(sample.source, [])
        if sample.seed not in known:
            known.append(sample.seed)
        if known.index(sample.seed) < CLONED.get(sample.source, 0):
            demonstrations.append(sample)
        pages.append(sample.page)
    return Mix(demonstrations, share, pages, page_share, vocabulary)
