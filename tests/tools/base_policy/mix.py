"""What the base policy is trained on: which families it may imitate, from how few episodes, and what it only reads.

A base that chooses perfectly leaves nothing to learn, one that cannot read learns nothing, and one that never does what
a task asks explores nothing. So it reads every page of the sites, asked by generated questions, imitates a part of the
families, is shown another part a few times only (`GLIMPSED`), late and briefly, and in some (`HASTY`) its demonstrators
mostly leave too early: it then wins those sometimes.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from hindcast.actors.environments.base import DemonstratedStep
from hindcast.actors.environments.early_stopping_demonstrator import hasten
from hindcast.core.domain.observation import Page

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
"""Family -> episodes that are imitated from the first demonstrations on."""

GLIMPSES = 10
"""Episodes of a glimpsed family."""
GLIMPSED: dict[str, int] = dict.fromkeys(
    (
        "store/add_several",
        "store/cancel_order",
        "store/change_address",
        "store/change_quantity",
        "store/write_review",
        "miniwob/click-button-sequence",
        "miniwob/click-collapsible-2",
        "miniwob/click-dialog-2",
        "miniwob/click-menu",
        "miniwob/click-scroll-list",
        "miniwob/click-tab-2",
        "miniwob/email-inbox-delete",
        "miniwob/email-inbox-important",
        "miniwob/email-inbox-reply",
        "miniwob/enter-password",
        "miniwob/login-user-popup",
        "miniwob/multi-orderings",
        "miniwob/navigate-tree",
        "miniwob/phone-book",
        "miniwob/read-table",
        "miniwob/search-engine",
        "miniwob/social-media",
        "miniwob/use-autocomplete",
        "miniwob/use-spinner",
    ),
    GLIMPSES,
)
"""Family -> episodes that are imitated in the later phases alone. Families named in neither are never imitated."""

HASTY: frozenset[str] = frozenset(
    (
        "store/add_to_cart",
        "store/buy",
        "store/cancel_order",
        "store/change_address",
        "store/change_quantity",
        "store/remove_from_cart",
        "store/wish_list",
        "store/write_review",
        "miniwob/choose-list",
        "miniwob/click-button-sequence",
        "miniwob/click-checkboxes",
        "miniwob/click-option",
        "miniwob/click-scroll-list",
        "miniwob/email-inbox-reply",
        "miniwob/enter-password",
        "miniwob/enter-text",
        "miniwob/login-user",
        "miniwob/login-user-popup",
        "miniwob/use-autocomplete",
        "miniwob/use-spinner",
    )
)
"""Families whose demonstrators are in haste in the last phase."""


class Mix(NamedTuple):
    """What is trained on; the rest of the samples, up to all, are look-ups."""

    demonstrations: Sequence[DemonstratedStep] = ()
    share: float = 0.0
    """Of demonstrations among all samples, every family as often as another."""
    pages: Sequence[Page] = ()
    """Pages that are only asked about."""
    page_share: float = 0.0
    """Of such pages among all samples."""
    vocabulary: tuple[str, ...] = ()
    """Words of the sites, for look-ups."""


def choose(
    recorded: Iterable[DemonstratedStep],
    *,
    imitated: Mapping[str, int],
    share: float,
    page_share: float,
    vocabulary: tuple[str, ...],
    hasty: Collection[str] = (),
) -> Mix:
    """Keep the first episodes of each imitated family as demonstrations, and every page for questions.

    `hasty`: families whose demonstrations mostly end early (`haste`).
    """
    seeds: dict[str, list[int]] = {}
    demonstrations: list[DemonstratedStep] = []
    pages: list[Page] = []
    for sample in recorded:
        known = seeds.setdefault(sample.source, [])
        if sample.seed not in known:
            known.append(sample.seed)
        if known.index(sample.seed) < imitated.get(sample.source, 0):
            demonstrations.append(sample)
        pages.append(sample.page)
    return Mix(hasten(demonstrations, hasty), share, pages, page_share, vocabulary)
