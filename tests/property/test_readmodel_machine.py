"""The read model beside everything that the state machine of the log does: it is the fold of the log, also as of any position.

Everything of `test_log_machine` happens (lossy links, crashes, a full log, facts of an older Hindcast); and the projector
is killed before and after its transactions, asked as of earlier positions, and rebuilt.
"""

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule

from hindcast.events.envelope import Recorded
from hindcast.events.log.consumer import consume
from hindcast.events.log.reader import Bookmark
from hindcast.storage.readmodel.database import ReadModel
from hindcast.storage.readmodel.fold import apply
from hindcast.storage.readmodel.projector import ReadModelEffect
from hindcast.storage.readmodel.rebuild import dump, rebuild
from stories.log_machine import QUICK, LogMachine


class Mortal:
    """The projector's effect in a process that dies."""

    def __init__(self, model: ReadModel, deaths: list[str]) -> None:
        self._effect = ReadModelEffect(model)
        self._deaths = deaths

    async def position(self) -> int:
        return await self._effect.position()

    async def bookmark(self) -> Bookmark | None:
        return await self._effect.bookmark()

    async def apply(self, recordeds: Sequence[Recorded], position: int) -> None:
        death = self._deaths.pop() if self._deaths else ""
        if death == "before":
            raise OSError("killed before the transaction")
        await self._effect.apply(recordeds, position)
        if death == "after":
            raise KeyboardInterrupt("killed after the transaction")


class ReadModelMachine(LogMachine):
    @initialize()
    def begin_model(self) -> None:
        self.model_folder = TemporaryDirectory()
        self.url = f"sqlite:///{Path(self.model_folder.name) / 'model.sqlite'}"
        self.model = ReadModel(self.url, run="r")
        self.model.prepare()

    def folded(self, position: int) -> bytes:
        """What a read model holds that was folded from the log up to there and no further."""
        model = ReadModel("sqlite://", run="r", scratch=True)
        model.prepare()
        with model.writing() as connection:
            apply(connection, self.read_until(position))
        with model.reading() as connection:
            content = b"".join(dump(connection))
        model.close()
        return content

    @rule(deaths=st.lists(st.sampled_from(["before", "after", ""]), max_size=3), share=st.floats(0.5, 1))
    def project_with_kills(self, deaths: list[str], share: float) -> None:
        """However often it dies, the read model is the fold of the log up to its position."""
        self.project(round(share * len(self.log.events)), deaths)
        with self.model.reading() as connection:
            assert b"".join(dump(connection)) == self.folded(self.model.position())

    def project(self, end: int, deaths: list[str]) -> None:
        while self.model.position() < end:
            try:
                effect = Mortal(self.model, deaths)
                self.run(consume(self.log, effect, name="projector", until=end, retries=QUICK))
            except KeyboardInterrupt:
                continue

    @rule(back=st.integers(1, 12))
    def ask_the_model_as_of(self, back: int) -> None:
        """As of a position it holds what one holds that ends there."""
        self.project(len(self.log.events), [])
        position = max(0, self.model.position() - back)
        with self.model.reading() as connection:
            assert b"".join(dump(connection, as_of=position)) == self.folded(position)

    @rule()
    def rebuild_the_model(self) -> None:
        """Dropped and folded again, it is the same."""
        report = self.run(rebuild(self.log, self.url))
        assert report.identical, report.differing

    def teardown(self) -> None:
        if hasattr(self, "model_folder"):
            self.model.close()
            self.model_folder.cleanup()
        super().teardown()


ReadModelMachine.TestCase.settings = hypothesis_settings(
    max_examples=25, stateful_step_count=20, deadline=None
)
TestReadModelMachine = ReadModelMachine.TestCase
