"""TOML formatting of values."""

import json
import math
import re
from datetime import date, time
from typing import Any

_BARE = re.compile(r"[A-Za-z0-9_-]+")
"""Keys that need no quotes."""


def as_toml(value: Any) -> str:
    """Format a value as TOML, on one line.

    >>> as_toml([{"of": "answer", "number": 3.5}])
    '[{of = "answer", number = 3.5}]'
    """
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(as_toml, value))}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{_key(key)} = {as_toml(item)}' for key, item in value.items())}}}"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, date | time):
        return value.isoformat()
    return json.dumps(value)


def _key(name: str) -> str:
    return name if _BARE.fullmatch(name) else as_toml(name)
