"""Names the samples that stick out of an update: pushed far harder than the others, or sampled far off policy."""

import sys
from statistics import median

from sqlalchemy import Connection, text

from hindcast.api import Recorded
from hindcast.core.domain.arrays import unpack_floats, unpack_ids, unpack_positions
from hindcast.events.catalogue import BatchPlanned, StepTaken, UpdateApplied

TIMES, RATIO = 5.0, 2.0
"""|advantage x weight| of a sample over the median of its mini-batch, rehearsed ones (0) left out; pi / mu of a sample, or its inverse."""
OF = "SELECT at, episode, number FROM sample LEFT JOIN step USING (at) WHERE batch = :batch AND part = :part"


def prepare(db: Connection) -> None:
    """Make the tables, before the first event."""
    db.execute(text("CREATE TABLE IF NOT EXISTS step (at BIGINT PRIMARY KEY, episode TEXT, number INT)"))
    db.execute(text("CREATE TABLE IF NOT EXISTS sample (batch INT, part INT, place INT, at BIGINT)"))


def consumer(event: Recorded, db: Connection) -> None:
    """Print the outliers of each policy update with the position of their step."""
    match event.fact:
        case StepTaken(episode=episode, index=index):
            row = {"at": event.position, "episode": episode, "number": index}
            db.execute(text("INSERT INTO step VALUES (:at, :episode, :number)"), row)
        case BatchPlanned(batch=batch, positions=positions, minibatches=sizes):
            places = [(part, place) for part, size in enumerate(unpack_ids(sizes)) for place in range(size)]
            for (part, place), at in zip(places, unpack_positions(positions).tolist(), strict=True):
                row = {"batch": batch, "part": part, "place": place, "at": at}
                db.execute(text("INSERT INTO sample VALUES (:batch, :part, :place, :at)"), row)
        case UpdateApplied(model="policy", samples=said) as fact:
            pushes = abs(unpack_floats(said.advantages) * unpack_floats(said.weights)).tolist()
            steps = db.execute(text(f"{OF} ORDER BY place"), {"batch": fact.batch, "part": fact.minibatch})
            for step, push, ratio in zip(steps, pushes, unpack_floats(said.ratios), strict=False):
                if push and (push > TIMES * median(filter(None, pushes)) or not 1 / RATIO <= ratio <= RATIO):
                    where = f"step {step.number} of {step.episode} (position {step.at})"
                    sys.stdout.write(f"update {fact.update}: {where} push {push:.2g} ratio {ratio:.2f}\n")
