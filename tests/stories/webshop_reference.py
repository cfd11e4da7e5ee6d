"""WebShop's reward a second time, from its published formula alone, slowly and plainly: what ours is compared with."""

import re
from functools import cache

COLOUR_NAMES = (
    "alabaster,apricot,aqua,ash,asphalt,azure,banana,beige,black,blue,blush,bordeaux,bronze,brown,burgundy,camel,camo,"
    "caramel,champagne,charcoal,cheetah,chestnut,chocolate,christmas,coffee,cognac,copper,coral,cranberry,cream,crystal,"
    "dark,denim,eggplant,elephant,espresso,fuchsia,gold,granite,grape,graphite,grass,gray,green,grey,heather,indigo,"
    "ivory,ivy,khaki,lavender,lemon,leopard,light,lilac,lime,magenta,maroon,mauve,merlot,midnight,mint,mocha,multicolor,"
    "mushroom,mustard,natural,navy,nude,olive,orange,peach,pewter,pink,plum,purple,rainbow,red,rose,royal,rust,sand,"
    "sapphire,seashell,silver,skull,slate,steel,stone,stonewash,sunflower,tan,taupe,teal,tiger,turquoise,violet,walnut,"
    "wheat,white,wine,yellow"
)


def reference_reward(bought, goal, nouns):
    """The reward for a `Bought` and a `Goal`, from lists of nouns."""
    n_attributes = 0
    texts = [bought.title.lower(), " ".join(bought.bullets).lower(), bought.description.lower()]
    for attribute in goal.attributes:
        in_list = max([token_set_ratio(own, attribute) for own in bought.attributes], default=0) > 85
        n_attributes += 1 if in_list or [text for text in texts if attribute in text] else 0
    n_options = 0
    for place, value in enumerate(goal.options):
        if goal.option_names:
            pair = (goal.option_names[place], value)
            exact = [name for name in COLOUR_NAMES.split(",") if name in pair]
            wanted = exact[0] if exact else f"({pair[0]!r}, {pair[1]!r})"
        else:
            wanted = colour(value)
        best = max([token_set_ratio(colour(own), wanted) for own in bought.chosen.values()], default=0)
        n_options += 1 if best > 85 else 0
    price = 0 if bought.price > goal.price_upper else 1
    whole = len(goal.attributes) + len(goal.options) + 1
    return (n_attributes + n_options + price) / whole * reference_type(bought, goal, nouns)


def reference_type(bought, goal, nouns):
    """r_type by the cases of the paper's appendix and the released code."""
    if len(nouns.wanted) > 0:
        overlap = len({noun for noun in nouns.wanted if noun in nouns.bought}) / len(nouns.wanted)
    else:
        overlap = 0.2
    one = {part.strip() for part in bought.product_category.split("›")}
    other = {part.strip() for part in goal.product_category.split("›")}
    kind = 1.0 if bought.query == goal.query or len(one.intersection(other)) > 1 or overlap > 0.2 else 0.5
    if overlap < 0.1:
        kind = 0.1
    return 0.0 if overlap == 0 else kind


def colour(text):
    """The first colour of the list in the text, else the text."""
    found = [name for name in COLOUR_NAMES.split(",") if text.find(name) >= 0]
    return found[0] if found else text


@cache
def token_set_ratio(one, other):
    """fuzzywuzzy's: the best of three ratios of sorted common words and those with either rest, in whole numbers."""
    words = [set(prepared(text).split()) for text in (one, other)]
    if not words[0] or not words[1]:
        return 0
    common = " ".join(sorted(words[0] & words[1]))
    with_one = f"{common} {' '.join(sorted(words[0] - words[1]))}".strip()
    with_other = f"{common} {' '.join(sorted(words[1] - words[0]))}".strip()
    return max(ratio(common, with_one), ratio(common, with_other), ratio(with_one, with_other))


def prepared(text):
    """Characters U+0080 to U+00FF dropped, all but letters, digits and underscores blank, lower case."""
    kept = "".join(letter for letter in text if not 0x80 <= ord(letter) <= 0xFF)
    return re.sub(r"\W", " ", kept).lower().strip()


@cache
def ratio(one, other):
    """Twice the length of the longest common subsequence by both lengths, in whole hundredths."""
    if not one or not other:
        return 0
    row = [0] * (len(other) + 1)
    for letter in one:
        before = row[:]
        for place, counterpart in enumerate(other, start=1):
            row[place] = (
                before[place - 1] + 1 if letter == counterpart else max(before[place], row[place - 1])
            )
    return round(200 * row[-1] / (len(one) + len(other)))
