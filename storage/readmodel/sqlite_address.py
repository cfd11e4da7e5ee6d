"""The database address of an SQLite file. Apart from `readmodel.address`, since most processes never load SQLAlchemy."""

from pathlib import Path


def sqlite_address(file: Path) -> str:
    """Address of a file whose path may hold `?`, which would begin a query, and `%`, which would begin an escape."""
    return f"sqlite:///{str(file.absolute()).replace('%', '%25').replace('?', '%3F')}"
