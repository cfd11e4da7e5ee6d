"""The closed vocabulary of the store: few words, each with one meaning."""

from typing import NamedTuple


class Kind(NamedTuple):
    """One kind of product: the noun, its category and its price range in whole dollars."""

    noun: str
    category: str
    low: int
    high: int


CATEGORIES: dict[str, tuple[str, ...]] = {
    "Kitchen": ("steel", "copper", "ceramic", "glass", "iron", "enamel"),
    "Lighting": ("brass", "oak", "glass", "paper", "marble", "steel"),
    "Furniture": ("oak", "pine", "walnut", "bamboo", "steel", "rattan"),
    "Bedroom": ("cotton", "linen", "wool", "silk", "velvet", "fleece"),
    "Garden": ("zinc", "steel", "bamboo", "copper", "pine", "iron"),
    "Travel": ("leather", "canvas", "nylon", "cotton", "felt", "denim"),
    "Clothing": ("wool", "cotton", "linen", "silk", "fleece", "denim"),
    "Office": ("leather", "paper", "oak", "steel", "cork", "bamboo"),
}
"""Category -> the materials of its products."""

KINDS: tuple[Kind, ...] = (
    Kind("kettle", "Kitchen", 20, 90),
    Kind("lamp", "Lighting", 25, 140),
    Kind("chair", "Furniture", 60, 280),
    Kind("pillow", "Bedroom", 15, 70),
    Kind("planter", "Garden", 12, 80),
    Kind("backpack", "Travel", 40, 180),
    Kind("jacket", "Clothing", 50, 220),
    Kind("notebook", "Office", 6, 35),
    Kind("mug", "Kitchen", 6, 30),
    Kind("lantern", "Lighting", 18, 90),
    Kind("table", "Furniture", 90, 480),
    Kind("blanket", "Bedroom", 25, 130),
    Kind("spade", "Garden", 18, 75),
    Kind("suitcase", "Travel", 70, 260),
    Kind("scarf", "Clothing", 12, 80),
    Kind("folder", "Office", 5, 40),
    Kind("pan", "Kitchen", 18, 110),
    Kind("chandelier", "Lighting", 90, 420),
    Kind("stool", "Furniture", 30, 140),
    Kind("quilt", "Bedroom", 40, 190),
    Kind("bucket", "Garden", 8, 45),
    Kind("wallet", "Travel", 15, 90),
    Kind("hat", "Clothing", 10, 60),
    Kind("tray", "Office", 8, 50),
    Kind("bowl", "Kitchen", 8, 45),
    Kind("torch", "Lighting", 10, 60),
    Kind("shelf", "Furniture", 35, 190),
    Kind("curtain", "Bedroom", 20, 110),
    Kind("rake", "Garden", 14, 60),
    Kind("pouch", "Travel", 8, 50),
    Kind("sweater", "Clothing", 30, 150),
    Kind("clipboard", "Office", 6, 35),
    Kind("teapot", "Kitchen", 20, 95),
    Kind("spotlight", "Lighting", 22, 120),
    Kind("bench", "Furniture", 70, 300),
    Kind("duvet", "Bedroom", 45, 210),
    Kind("trellis", "Garden", 16, 85),
    Kind("satchel", "Travel", 35, 160),
    Kind("shirt", "Clothing", 20, 95),
    Kind("bookend", "Office", 9, 55),
    Kind("jug", "Kitchen", 12, 60),
    Kind("candlestick", "Lighting", 9, 70),
    Kind("desk", "Furniture", 110, 520),
    Kind("mattress", "Bedroom", 150, 690),
    Kind("birdhouse", "Garden", 15, 70),
    Kind("duffel", "Travel", 30, 150),
    Kind("vest", "Clothing", 25, 110),
    Kind("pencase", "Office", 6, 40),
)
"""Every kind of product; neighbors belong to different categories, so that a short prefix covers all categories."""

BRANDS = (
    "Norda", "Velar", "Kestrel", "Amber", "Tolva", "Bruma", "Orsa", "Pelham",
    "Quill", "Sorrel", "Marlow", "Fenn", "Juno", "Halden", "Ridge", "Calder",
)  # fmt: skip
ADJECTIVES = (
    "slim", "classic", "compact", "rustic", "modern", "folding", "round", "tall", "soft", "sturdy", "airy", "deep",
    "wide", "plain", "curved", "quiet", "bold", "narrow", "smooth", "striped", "simple", "royal", "fresh", "neat",
)  # fmt: skip
COLOURS = ("red", "blue", "green", "black", "white", "grey", "yellow", "purple")
SIZES = ("small", "medium", "large")

FEATURES: dict[str, tuple[str, ...]] = {
    "Weight": ("0.2 kg", "0.4 kg", "0.7 kg", "1.1 kg", "1.6 kg", "2.3 kg", "3.5 kg", "4.8 kg"),
    "Warranty": ("1 year", "2 years", "3 years", "5 years", "10 years"),
    "Origin": ("Portugal", "Denmark", "Japan", "Italy", "Canada", "Poland", "Spain", "Norway"),
    "Care": ("hand wash", "machine wash", "wipe clean", "dry clean", "air dry"),
}
"""Lines of a features page, in this order."""

DESCRIPTIONS = (
    "Made for daily use.", "Built to last for years.", "Designed in a family workshop.", "A good gift for a friend.",
    "Easy to clean and to store.", "Tested by our own team.", "Arrives ready to use.", "Packed without plastic.",
)  # fmt: skip
PRAISE = ("Works as promised", "Better than expected", "Good value", "Looks great at home", "My family loves it",
          "Would buy again", "Solid and well made")  # fmt: skip
COMPLAINTS = ("Arrived with a scratch", "Broke after a week", "Too small for me", "Nice but expensive",
              "Not what I expected")  # fmt: skip
REVIEWS = PRAISE + COMPLAINTS
"""What customers write, and what tasks ask to be written."""

FIRST_NAMES = (
    "Mira",
    "Jonas",
    "Elif",
    "Tomas",
    "Ada",
    "Pavel",
    "Ines",
    "Ruben",
    "Greta",
    "Hugo",
    "Lena",
    "Oskar",
)
LAST_NAMES = ("Berg", "Costa", "Novak", "Silva", "Lund", "Moreau", "Keller", "Rossi", "Dahl", "Vega")
STREETS = ("Harbour Street", "Mill Lane", "Station Road", "Castle Hill", "River Walk", "Garden Row", "Church Street",
           "Park Avenue", "Bridge Road", "Forest Way")  # fmt: skip
CITIES = ("Delft", "Bergen", "Porto", "Lyon", "Graz", "Turin", "Aarhus", "Gdansk", "Leeds", "Cork")
MONTHS = ("January", "February", "March", "April", "May", "June")
STATUSES = ("processing", "shipped", "delivered", "returned", "cancelled")
"""States of an order; only `processing` can be cancelled."""
