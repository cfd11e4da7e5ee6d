"""The MiniWoB++ families that can be played here: every page of the package that the action table can drive by reading.

Pages that cannot are in `unplayable`, with the reason. Names are the package's page names.
"""

import msgspec


class Family(msgspec.Struct, frozen=True, kw_only=True):
    """One page of MiniWoB++."""

    max_steps: int
    """About twice what the demonstrator needs on the hardest seeds."""
    reload: bool = False
    """Whether the page is loaded again for each episode: one that begins anew in place keeps something of the last."""
    clock: bool = False
    """Whether what it shows or rewards depends on the time that passes: two runs of the same actions may differ."""
    fixed: bool = False
    """Whether every seed gives the same instruction and, as it is read here, the same first page."""
    dated: bool = False
    """Whether it shows the day; every run has the same one (prepare.js), so it is repeatable all the same."""


FAMILIES: dict[str, Family] = {
    "ascending-numbers": Family(max_steps=8, fixed=True),
    "book-flight": Family(max_steps=40, clock=True),
    "book-flight-nodelay": Family(max_steps=40),
    "button-delay": Family(max_steps=8, clock=True),
    "buy-ticket": Family(max_steps=3),
    "choose-date": Family(max_steps=30),
    "choose-date-easy": Family(max_steps=8),
    "choose-date-medium": Family(max_steps=12),
    "choose-date-nodelay": Family(max_steps=30),
    "choose-list": Family(max_steps=5),
    "click-button": Family(max_steps=3),
    "click-button-sequence": Family(max_steps=4, fixed=True),
    "click-checkboxes": Family(max_steps=14),
    "click-checkboxes-large": Family(max_steps=26),
    "click-checkboxes-soft": Family(max_steps=14),
    "click-checkboxes-transfer": Family(max_steps=14),
    "click-collapsible": Family(max_steps=5),
    "click-collapsible-2": Family(max_steps=8),
    "click-collapsible-2-nodelay": Family(max_steps=8),
    "click-collapsible-nodelay": Family(max_steps=5),
    "click-dialog": Family(max_steps=3),
    "click-dialog-2": Family(max_steps=3),
    "click-link": Family(max_steps=3),
    "click-menu": Family(max_steps=12),
    "click-option": Family(max_steps=5),
    "click-pie": Family(max_steps=5, reload=True, clock=True),
    "click-pie-nodelay": Family(max_steps=5, reload=True, clock=True),
    "click-scroll-list": Family(max_steps=6),
    "click-tab": Family(max_steps=3),
    "click-tab-2": Family(max_steps=8),
    "click-tab-2-easy": Family(max_steps=6),
    "click-tab-2-hard": Family(max_steps=14),
    "click-tab-2-medium": Family(max_steps=6),
    "click-test": Family(max_steps=2, fixed=True),
    "click-test-2": Family(max_steps=2, fixed=True),
    "click-test-transfer": Family(max_steps=2, fixed=True),
    "click-widget": Family(max_steps=3),
    "copy-paste": Family(max_steps=5),
    "copy-paste-2": Family(max_steps=5),
    "daily-calendar": Family(max_steps=24),
    "email-inbox": Family(max_steps=14),
    "email-inbox-delete": Family(max_steps=6),
    "email-inbox-forward": Family(max_steps=10),
    "email-inbox-forward-nl": Family(max_steps=10),
    "email-inbox-forward-nl-turk": Family(max_steps=14),
    "email-inbox-important": Family(max_steps=6),
    "email-inbox-nl-turk": Family(max_steps=14),
    "email-inbox-noscroll": Family(max_steps=10),
    "email-inbox-reply": Family(max_steps=10),
    "email-inbox-star-reply": Family(max_steps=10),
    "enter-date": Family(max_steps=5),
    "enter-password": Family(max_steps=6),
    "enter-text": Family(max_steps=5),
    "enter-text-2": Family(max_steps=5),
    "enter-text-dynamic": Family(max_steps=5),
    "enter-time": Family(max_steps=5),
    "find-greatest": Family(max_steps=5),
    "find-word": Family(max_steps=5),
    "focus-text": Family(max_steps=2, fixed=True),
    "focus-text-2": Family(max_steps=3),
    "form-sequence": Family(max_steps=24, reload=True),
    "form-sequence-2": Family(max_steps=8, reload=True),
    "form-sequence-3": Family(max_steps=14, reload=True),
    "generate-number": Family(max_steps=24),
    "grid-coordinate": Family(max_steps=3),
    "guess-number": Family(max_steps=16, fixed=True),
    "login-user": Family(max_steps=6),
    "login-user-popup": Family(max_steps=14),
    "multi-layouts": Family(max_steps=8),
    "multi-orderings": Family(max_steps=8),
    "navigate-tree": Family(max_steps=16),
    "number-checkboxes": Family(max_steps=40),
    "odd-or-even": Family(max_steps=8),
    "order-food": Family(max_steps=24),
    "phone-book": Family(max_steps=12),
    "read-table": Family(max_steps=5),
    "read-table-2": Family(max_steps=6),
    "scroll-text": Family(max_steps=24),
    "scroll-text-2": Family(max_steps=24),
    "search-engine": Family(max_steps=8),
    "sign-agreement": Family(max_steps=40),
    "simple-algebra": Family(max_steps=5),
    "simple-arithmetic": Family(max_steps=5),
    "social-media": Family(max_steps=20),
    "social-media-all": Family(max_steps=30),
    "social-media-some": Family(max_steps=24),
    "terminal": Family(max_steps=60, clock=True, dated=True),
    "text-editor": Family(max_steps=80, reload=True, clock=True),
    "text-transform": Family(max_steps=5),
    "tic-tac-toe": Family(max_steps=6),
    "unicode-test": Family(max_steps=3),
    "use-autocomplete": Family(max_steps=40, clock=True),
    "use-autocomplete-nodelay": Family(max_steps=40),
    "use-colorwheel": Family(max_steps=6, reload=True),
    "use-slider": Family(max_steps=50),
    "use-slider-2": Family(max_steps=60),
    "use-spinner": Family(max_steps=24),
}
"""By name."""

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
"""Small tasks of reading and choosing: those that the base policy was made with and that runs draw from by default."""
