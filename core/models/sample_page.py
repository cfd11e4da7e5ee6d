"""A page of a common size and a usual answer, to say what renderers need of a tokenizer."""

from core.observation import Node, Page

EXAMPLE = '# Element: Copper kettle, 2 litres [37]\ndo(action="Click", element="37")'

_ROW = (
    ("text", "p", "In stock, delivered within two to four working days"),
    ("link", "a", "Copper kettle with wooden handle, 2 litres"),
    ("button", "button", "Add to cart"),
    ("input", "input", "Quantity"),
    ("text", "span", "$ 48.90"),
)

PAGE = Page(
    url="http://shop.example/list",
    title="Kettles and pots, sorted by price",
    nodes=tuple(
        Node(kind=kind, tag=tag, text=text, id=None if kind == "text" else 5 * row + place)
        for row in range(20)
        for place, (kind, tag, text) in enumerate(_ROW)
    ),
)
"""100 elements, 60 of which can be acted upon."""
