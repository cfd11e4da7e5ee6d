"""Safe text for a terminal: untrusted text cannot move the cursor or change the title."""

_PICTURES = {code: 0x2400 + code for code in range(0x20)}
_CONTROLS = {
    **_PICTURES,
    0x7F: 0x2421,
    **dict.fromkeys(range(0x80, 0xA0), 0xFFFD),
    **dict.fromkeys((*range(0x202A, 0x202F), *range(0x2066, 0x206A)), 0xFFFD),
}
"""C0 controls become their pictures. C1 controls, which some terminals obey, and bidirectional overrides (Trojan Source,
CVE-2021-42574) become the replacement character."""
_LINES = {code: sign for code, sign in _CONTROLS.items() if code not in (0x09, 0x0A)}


def printable(text: str) -> str:
    """Make every control character visible except tabs and line ends.

    >>> printable("a\\x1b[2Jb\\nc")
    'a␛[2Jb\\nc'
    """
    return text.translate(_LINES)


def one_line(text: str) -> str:
    """Put the text on one line: white space becomes single blanks, other control characters become visible.

    >>> one_line(" a\\x1b\\n  b ")
    'a␛ b'
    """
    return " ".join(text.split()).translate(_CONTROLS)
