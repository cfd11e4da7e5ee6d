"""Where things are in a browser window: whole CSS pixels from its upper left corner."""

import msgspec


class Box(msgspec.Struct, frozen=True):
    """A rectangle of the window."""

    x: int
    y: int
    width: int
    height: int


class Mark(msgspec.Struct, frozen=True):
    """Where an element is that can be acted upon."""

    element: int
    """Its number on the page that was shown (`core.domain.observation.Node.id`)."""
    box: Box
    """The part of it that can be seen."""
