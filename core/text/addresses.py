"""Addresses as people write them in settings and headers."""

from urllib.parse import SplitResult, urlsplit

NO_ADDRESS = SplitResult("", "", "", "", "")


def split_address(text: str) -> SplitResult:
    """The parts of a URL; all empty where it is none, as with an unclosed bracket or a port that is no number.

    >>> split_address("http://localhost:8000/v1").hostname
    'localhost'
    >>> split_address("http://[::1") == split_address("http://host:99999") == NO_ADDRESS
    True
    """
    try:
        parts = urlsplit(text)
        _ = parts.port  # read only when asked for
    except ValueError:
        return NO_ADDRESS
    return parts
