"""Screenshots of an episode in the read model; the images are blobs."""

from sqlalchemy import Connection, func, select

from hindcast.storage.readmodel.query_parts import answers, holding
from hindcast.storage.readmodel.results import ScreenshotRow
from hindcast.storage.readmodel.tables import notices, screenshots


def screenshots_of(connection: Connection, episode: str, position: int) -> tuple[ScreenshotRow, ...]:
    """Screenshots of an episode as of a position, in the order of its steps, with that of its end last."""
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
