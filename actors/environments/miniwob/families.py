"""The playable MiniWoB++ families: every page of the package that the action table can operate by reading.

`unplayable` lists the other pages, with the reason. Names are the package's page names.
"""

import msgspec


class MiniwobFamily(msgspec.Struct, frozen=True, kw_only=True):
    """One page of MiniWoB++."""

    max_steps: int
    """About twice what the demonstrator needs on the hardest seeds."""
    reload: bool = False
    """Whether each episode loads the page again, because a restart in place keeps something of the last problem."""
    clock: bool = False
    """Whether what it shows or rewards depends on elapsed time: two runs of the same actions may differ."""
    fixed: bool = False
    """Whether every seed gives the same instruction and, as observed here, the same first page."""
    dated: bool = False
    """Whether it shows the day; every run has the same one (prepare.js), so it is repeatable."""


FAMILIES: dict[str, MiniwobFamily] = {
    "ascending-numbers": MiniwobFamily(max_steps=8, fixed=True),
    "book-flight": MiniwobFamily(max_steps=40, clock=True),
    "book-flight-nodelay": MiniwobFamily(max_steps=40),
    "button-delay": MiniwobFamily(max_steps=8, clock=True),
    "buy-ticket": MiniwobFamily(max_steps=3),
    "choose-date": MiniwobFamily(max_steps=30),
    "choose-date-easy": MiniwobFamily(max_steps=8),
    "choose-date-medium": MiniwobFamily(max_steps=12),
    "choose-date-nodelay": MiniwobFamily(max_steps=30),
    "choose-list": MiniwobFamily(max_steps=5),
    "click-button": MiniwobFamily(max_steps=3),
    "click-button-sequence": MiniwobFamily(max_steps=4, fixed=True),
    "click-checkboxes": MiniwobFamily(max_steps=14),
    "click-checkboxes-large": MiniwobFamily(max_steps=26),
    "click-checkboxes-soft": MiniwobFamily(max_steps=14),
    "click-checkboxes-transfer": MiniwobFamily(max_steps=14),
    "click-collapsible": MiniwobFamily(max_steps=5),
    "click-collapsible-2": MiniwobFamily(max_steps=8),
    "click-collapsible-2-nodelay": MiniwobFamily(max_steps=8),
    "click-collapsible-nodelay": MiniwobFamily(max_steps=5),
    "click-dialog": MiniwobFamily(max_steps=3),
    "click-dialog-2": MiniwobFamily(max_steps=3),
    "click-link": MiniwobFamily(max_steps=3),
    "click-menu": MiniwobFamily(max_steps=12),
    "click-option": MiniwobFamily(max_steps=5),
    "click-pie": MiniwobFamily(max_steps=5, reload=True, clock=True),
    "click-pie-nodelay": MiniwobFamily(max_steps=5, reload=True, clock=True),
    "click-scroll-list": MiniwobFamily(max_steps=6),
    "click-tab": MiniwobFamily(max_steps=3),
    "click-tab-2": MiniwobFamily(max_steps=8),
    "click-tab-2-easy": MiniwobFamily(max_steps=6),
    "click-tab-2-hard": MiniwobFamily(max_steps=14),
    "click-tab-2-medium": MiniwobFamily(max_steps=6),
    "click-test": MiniwobFamily(max_steps=2, fixed=True),
    "click-test-2": MiniwobFamily(max_steps=2, fixed=True),
    "click-test-transfer": MiniwobFamily(max_steps=2, fixed=True),
    "click-widget": MiniwobFamily(max_steps=3),
    "copy-paste": MiniwobFamily(max_steps=5),
    "copy-paste-2": MiniwobFamily(max_steps=5),
    "daily-calendar": MiniwobFamily(max_steps=24),
    "email-inbox": MiniwobFamily(max_steps=14),
    "email-inbox-delete": MiniwobFamily(max_steps=6),
    "email-inbox-forward": MiniwobFamily(max_steps=10),
    "email-inbox-forward-nl": MiniwobFamily(max_steps=10),
    "email-inbox-forward-nl-turk": MiniwobFamily(max_steps=14),
    "email-inbox-important": MiniwobFamily(max_steps=6),
    "email-inbox-nl-turk": MiniwobFamily(max_steps=14),
    "email-inbox-noscroll": MiniwobFamily(max_steps=10),
    "email-inbox-reply": MiniwobFamily(max_steps=10),
    "email-inbox-star-reply": MiniwobFamily(max_steps=10),
    "enter-date": MiniwobFamily(max_steps=5),
    "enter-password": MiniwobFamily(max_steps=6),
    "enter-text": MiniwobFamily(max_steps=5),
    "enter-text-2": MiniwobFamily(max_steps=5),
    "enter-text-dynamic": MiniwobFamily(max_steps=5),
    "enter-time": MiniwobFamily(max_steps=5),
    "find-greatest": MiniwobFamily(max_steps=5),
    "find-word": MiniwobFamily(max_steps=5),
    "focus-text": MiniwobFamily(max_steps=2, fixed=True),
    "focus-text-2": MiniwobFamily(max_steps=3),
    "form-sequence": MiniwobFamily(max_steps=24, reload=True),
    "form-sequence-2": MiniwobFamily(max_steps=8, reload=True),
    "form-sequence-3": MiniwobFamily(max_steps=14, reload=True),
    "generate-number": MiniwobFamily(max_steps=24),
    "grid-coordinate": MiniwobFamily(max_steps=3),
    "guess-number": MiniwobFamily(max_steps=16, fixed=True),
    "login-user": MiniwobFamily(max_steps=6),
    "login-user-popup": MiniwobFamily(max_steps=14),
    "multi-layouts": MiniwobFamily(max_steps=8),
    "multi-orderings": MiniwobFamily(max_steps=8),
    "navigate-tree": MiniwobFamily(max_steps=16),
    "number-checkboxes": MiniwobFamily(max_steps=40),
    "odd-or-even": MiniwobFamily(max_steps=8),
    "order-food": MiniwobFamily(max_steps=24),
    "phone-book": MiniwobFamily(max_steps=12),
    "read-table": MiniwobFamily(max_steps=5),
    "read-table-2": MiniwobFamily(max_steps=6),
    "scroll-text": MiniwobFamily(max_steps=24),
    "scroll-text-2": MiniwobFamily(max_steps=24),
    "search-engine": MiniwobFamily(max_steps=8),
    "sign-agreement": MiniwobFamily(max_steps=40),
    "simple-algebra": MiniwobFamily(max_steps=5),
    "simple-arithmetic": MiniwobFamily(max_steps=5),
    "social-media": MiniwobFamily(max_steps=20),
    "social-media-all": MiniwobFamily(max_steps=30),
    "social-media-some": MiniwobFamily(max_steps=24),
    "terminal": MiniwobFamily(max_steps=60, clock=True, dated=True),
    "text-editor": MiniwobFamily(max_steps=80, reload=True, clock=True),
    "text-transform": MiniwobFamily(max_steps=5),
    "tic-tac-toe": MiniwobFamily(max_steps=6),
    "unicode-test": MiniwobFamily(max_steps=3),
    "use-autocomplete": MiniwobFamily(max_steps=40, clock=True),
    "use-autocomplete-nodelay": MiniwobFamily(max_steps=40),
    "use-colorwheel": MiniwobFamily(max_steps=6, reload=True),
    "use-slider": MiniwobFamily(max_steps=50),
    "use-slider-2": MiniwobFamily(max_steps=60),
    "use-spinner": MiniwobFamily(max_steps=24),
}
"""Families by name."""

USUAL = (
    "click-test",
    "click-test-2",
    "click-button",
    "click-button-sequence",
    "click-link",
    "click-dialog",
    "click-dialog-2",
    "click-tab",
    "click-tab-2",
    "click-collapsible",
    "click-collapsible-2",
    "click-checkboxes",
    "click-option",
    "click-widget",
    "click-scroll-list",
    "choose-list",
    "focus-text",
    "focus-text-2",
    "enter-text",
    "enter-password",
    "login-user",
    "multi-layouts",
    "navigate-tree",
    "read-table",
    "search-engine",
)
"""Small tasks of reading and choosing: the base policy was trained on them, and runs draw from them by default."""
