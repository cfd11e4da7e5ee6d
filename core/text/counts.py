"""Numbers with their nouns, in the singular or plural."""

VOWELS = "aeiou"


def noun_of(number: float | str, noun: str) -> str:
    """The noun after a number: `batch` after 1, else `batches`. A formatted number such as `"+1"` counts as it is shown."""
    if number == 1 or (isinstance(number, str) and number.lstrip("+-−") == "1"):
        return noun
    if noun.endswith(("ch", "sh", "s", "x")):
        return f"{noun}es"
    if noun.endswith("y") and noun[-2] not in VOWELS:
        return f"{noun[:-1]}ies"
    return f"{noun}s"


def count_of(number: float | str, noun: str) -> str:
    """A number with its noun: `1 batch`, `2 batches`."""
    return f"{number} {noun_of(number, noun)}"
