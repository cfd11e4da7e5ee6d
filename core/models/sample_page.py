"""A sample page and answer of common size, to measure how many tokens they take."""

from hindcast.core.domain.observation import Element, Node, Page

EXAMPLE = '# Element: Copper kettle, 2 litres [37]\ndo(action="Click", element="37")'

_ROW = (
    ("text", "p", "In stock, delivered within two to four working days"),
    ("link", "a", "Copper kettle with wooden handle, 2 litres"),
    ("button", "button", "Add to cart"),
    ("input", "input", "Quantity"),
    ("text", "span", "$ 48.90"),
)


def _outline(rows: int) -> tuple[Element, ...]:
    """Return the page's elements with their boxes, each row in a list item."""
    width, height = 246, 20
    found = [
        Element(tag="html", attributes={"data-bbox": "0,0,1280,720"}),
        Element(tag="ul", depth=1, attributes={"data-bbox": f"8,8,{width * len(_ROW)},{height * rows}"}),
    ]
    for row in range(rows):
        box = f"8,{8 + height * row},{width * len(_ROW)},{height}"
        found.append(Element(tag="li", depth=2, attributes={"data-bbox": box}))
        for place, (kind, tag, text) in enumerate(_ROW):
            box = f"{8 + width * place},{8 + height * row},{width},{height}"
            found.append(
                Element(
                    tag=tag,
                    depth=3,
                    id=None if kind == "text" else 5 * row + place,
                    text=text,
                    attributes={"data-text": text, "data-bbox": box},
                )
            )
    return tuple(found)


PAGE = Page(
    url="http://shop.example/list",
    title="Kettles and pots, sorted by price",
    nodes=tuple(
        Node(kind=kind, tag=tag, text=text, id=None if kind == "text" else 5 * row + place)
        for row in range(20)
        for place, (kind, tag, text) in enumerate(_ROW)
    ),
    outline=_outline(20),
)
"""100 elements, 60 of which can be acted upon."""
