"""Every verdict in a table of one's own: the smallest useful consumer."""

from sqlalchemy import Connection, text

from hindcast.api import Recorded
from hindcast.events.catalogue import EpisodeJudged


def consumer(event: Recorded, db: Connection) -> None:
    """Keep what the judges say."""
    db.execute(text("CREATE TABLE IF NOT EXISTS verdict (position BIGINT, episode TEXT, outcome TEXT)"))
    if isinstance(event.fact, EpisodeJudged):
        row = {"at": event.position, "of": event.fact.episode, "said": event.fact.judgment.outcome}
        db.execute(text("INSERT INTO verdict VALUES (:at, :of, :said)"), row)
