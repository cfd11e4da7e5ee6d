"""A file of lines that a consumer writes, each line exactly once, also after a kill -9.

A file takes part in no transaction, but its length does: what a crash left beyond it is cut off again.
"""

from pathlib import Path

from sqlalchemy import Connection, text


def append_line(db: Connection, path: str, line: str) -> None:
    """Append a line at the length that the consumer's transaction knows of. A consumer may write one such file."""
    db.execute(text("CREATE TABLE IF NOT EXISTS written (size BIGINT)"))
    with Path(path).open("a", encoding="utf-8") as file:
        file.truncate(db.scalar(text("SELECT max(size) FROM written")) or 0)
        file.write(line + "\n")
        db.execute(text("INSERT INTO written VALUES (:size)"), {"size": file.tell()})
