"""Text for a terminal: what a page, a model or an adversary wrote can move no cursor and change no title."""

_PICTURES = {code: 0x2400 + code for code in range(0x20)}
_CONTROLS = {
    **_PICTURES,
    0x7F: 0x2421,
    **dict.fromkeys(range(0x80, 0xA0), 0xFFFD),
    **dict.fromkeys((*range(0x202A, 0x202F), *range(0x2066, 0x206A)), 0xFFFD),
}
"""C0 controls become their pictures; C1 controls, which some terminals obey, and turns of the reading direction (Trojan
Source, CVE-2021-42574) the replacement character."""
_LINES = {code: sign for code, sign in _CONTROLS.items() if code not in (0x09, 0x0A)}


def printable(text: str) -> str:
    """The text with every control character made visible; tabs and line ends stay.

    >>> printable("a\\x1b[2Jb\\nc")
    'a␛[2Jb\\nc'
    """
    return text.translate(_LINES)


def one_line(text: str) -> str:
    """The text on one line, white space as single blanks, every other control character made visible.

    >>> one_line(" a\\x1b\\n  b ")
    'a␛ b'
    """
    return " ".join(text.split()).translate(_CONTROLS)
