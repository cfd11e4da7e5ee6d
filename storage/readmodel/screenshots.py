"""The images of an episode's window, as the read model knows them; the bytes lie with the blobs."""

from sqlalchemy import Connection, func, select

from hindcast.storage.readmodel.query_parts import answers, holding
from hindcast.storage.readmodel.results import ScreenshotRow
from hindcast.storage.readmodel.tables import notices, screenshots


def screenshots_of(connection: Connection, episode: str, position: int) -> tuple[ScreenshotRow, ...]:
    """Those of an episode as of a position, in the order of its steps, the one it ended on last."""
    released = (
        select(func.min(notices.c.position))
        .where(
            holding(notices, position),
            notices.c.type == "blob.released",
            notices.c.about == screenshots.c.sha256,
            notices.c.position > screenshots.c.position,
        )
        .scalar_subquery()
        .label("released")
    )
    taken = (
        select(screenshots, released)
        .where(holding(screenshots, position), screenshots.c.episode == episode)
        .order_by(screenshots.c.position)
    )
    return tuple(answers(connection, taken, ScreenshotRow))
