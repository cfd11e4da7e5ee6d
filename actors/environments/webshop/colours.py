"""Colour words that reduce options for comparison, in the order in which they are tried.

The list is part of WebShop's reward (`web_agent_site/engine/normalize.py`): another list or order gives other rewards.
"""

_IN_ORDER = """
alabaster apricot aqua ash asphalt azure banana beige black blue blush bordeaux bronze brown burgundy camel camo
caramel champagne charcoal cheetah chestnut chocolate christmas coffee cognac copper coral cranberry cream crystal
dark denim eggplant elephant espresso fuchsia gold granite grape graphite grass gray green grey heather indigo ivory
ivy khaki lavender lemon leopard light lilac lime magenta maroon mauve merlot midnight mint mocha multicolor mushroom
mustard natural navy nude olive orange peach pewter pink plum purple rainbow red rose royal rust sand sapphire
seashell silver skull slate steel stone stonewash sunflower tan taupe teal tiger turquoise violet walnut wheat white
wine yellow
"""
COLOURS = tuple(_IN_ORDER.split())


def colour_or_text(option: str) -> str:
    """The first colour of the list that the text contains, also inside a word; the text itself where there is none.

    >>> colour_or_text("dark blue"), colour_or_text("steelivy fuchsia"), colour_or_text("x-large")
    ('blue', 'fuchsia', 'x-large')
    """
    return next((colour for colour in COLOURS if colour in option), option)
