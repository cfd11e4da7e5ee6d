"""The database address of an SQLite file. Separate from `readmodel.address`, since most processes never load SQLAlchemy."""

from pathlib import Path


def sqlite_address(file: Path) -> str:
    """Address of a file, with `?` and `%` in its path escaped."""
    return f"sqlite:///{str(file.absolute()).replace('%', '%25').replace('?', '%3F')}"
