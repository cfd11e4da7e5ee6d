"""A table with one line for each row; the selected row stays selected after a refresh."""

from collections.abc import Sequence
from typing import ClassVar

from rich.text import Text
from textual.widgets import DataTable

from hindcast.core.text.printable import one_line

Row = tuple[str, tuple[str, ...]]
"""Key and cells of a row."""


class Rows(DataTable[Text]):
    """Shows the cursor by reversed text, never by color alone."""

    DEFAULT_CSS: ClassVar[str] = """
    Rows { height: 1fr; }
    Rows > .datatable--cursor { text-style: reverse; }
    """

    def __init__(self, *heads: tuple[str, int]) -> None:
        """`heads`: names and widths of the columns."""
        super().__init__(cursor_type="row", cell_padding=0, zebra_stripes=False)
        self._heads = heads
        self._shown: list[Row] = []

    def on_mount(self) -> None:
        """Make the columns."""
        for name, width in self._heads:
            self.add_column(Text(name, "underline"), width=width)

    def show(self, rows: Sequence[Row]) -> None:
        """Replace the rows."""
        if list(rows) == self._shown:
            return
        chosen, place = self.chosen, self.cursor_row
        self._shown = list(rows)
        with self.app.batch_update():
            self.clear()
            for key, cells in rows:
                fitted = zip(cells, self._heads, strict=True)
                self.add_row(*(_cell(text, width) for text, (_, width) in fitted), key=key)
            keys = [key for key, _ in rows]
            if rows:
                self.move_cursor(row=keys.index(chosen) if chosen in keys else min(place, len(keys) - 1))

    @property
    def chosen(self) -> str | None:
        """Key of the selected row."""
        return self._shown[self.cursor_row][0] if 0 <= self.cursor_row < len(self._shown) else None

    @property
    def at_end(self) -> bool:
        """Whether the cursor is on the last row."""
        return bool(self._shown) and self.cursor_row == len(self._shown) - 1

    def move(self, by: int) -> None:
        """The cursor up or down."""
        if self._shown:
            self.move_cursor(row=max(0, min(len(self._shown) - 1, self.cursor_row + by)))


def _cell(text: str, width: int) -> Text:
    """Text cut to its column, marked with an ellipsis, and a blank before the next column."""
    line = Text(one_line(text), no_wrap=True, overflow="ellipsis")
    line.truncate(width - 1, overflow="ellipsis")
    return line
