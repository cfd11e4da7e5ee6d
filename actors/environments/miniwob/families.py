"""The MiniWoB++ families used here: tasks of reading and choosing that the action table can solve."""

import msgspec


class Family(msgspec.Struct, frozen=True, kw_only=True):
    """One page of MiniWoB++."""

    max_steps: int
    """About twice what the demonstrator needs on the hardest seeds."""


FAMILIES: dict[str, Family] = {
    "click-test": Family(max_steps=2),
    "click-test-2": Family(max_steps=2),
    "click-button": Family(max_steps=3),
    "click-button-sequence": Family(max_steps=4),
    "click-link": Family(max_steps=3),
    "click-dialog": Family(max_steps=3),
    "click-dialog-2": Family(max_steps=3),
    "click-tab": Family(max_steps=3),
    "click-tab-2": Family(max_steps=8),
    "click-collapsible": Family(max_steps=5),
    "click-collapsible-2": Family(max_steps=8),
    "click-checkboxes": Family(max_steps=14),
    "click-option": Family(max_steps=5),
    "click-widget": Family(max_steps=3),
    "click-scroll-list": Family(max_steps=6),
    "choose-list": Family(max_steps=5),
    "focus-text": Family(max_steps=2),
    "focus-text-2": Family(max_steps=3),
    "enter-text": Family(max_steps=5),
    "enter-password": Family(max_steps=6),
    "login-user": Family(max_steps=6),
    "multi-layouts": Family(max_steps=8),
    "navigate-tree": Family(max_steps=16),
    "read-table": Family(max_steps=5),
    "search-engine": Family(max_steps=8),
}
"""Family names are the package's page names."""
