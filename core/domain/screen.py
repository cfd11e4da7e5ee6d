"""Positions in a browser window, in whole CSS pixels from its upper left corner."""

import msgspec


class Box(msgspec.Struct, frozen=True):
    """A rectangle of the window."""

    x: int
    y: int
    width: int
    height: int


class Mark(msgspec.Struct, frozen=True):
    """The position of an element that can be acted upon."""

    element: int
    """Its number on the page (`core.domain.observation.Node.id`)."""
    box: Box
    """Its visible part."""
