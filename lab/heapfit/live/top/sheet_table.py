"""A table whose rows change all the time: it keeps its order and the place of its cursor."""

from typing import ClassVar

from rich.text import Text
from textual.binding import Binding, BindingType
from textual.widgets import DataTable

from heapfit.live.figures import Cell, Sheet

# More than anybody reads; a server of a thousand threads has so many heaps.
_MOST_ROWS = 200


class SheetTable(DataTable[Text]):
    """Shows a sheet, sorted by a column that the user chooses by arrow keys or mouse."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("left", "sort_by(-1)", "Sort", key_display="←→"),
        Binding("right", "sort_by(1)", "Sort", show=False),
        Binding("i", "invert", "Invert"),
    ]

    def __init__(self, *, column: str = "", descending: bool = True, name: str) -> None:
        """Sort by `column` at first; without one the rows stay in the order that they come in."""
        super().__init__(id=name, cursor_type="row", zebra_stripes=True, header_height=1)
        self._column = column
        self._descending = descending
        self._sheet = Sheet((), [])

    def show_sheet(self, sheet: Sheet) -> None:
        """Show the rows of `sheet` in place of those before; the cursor stays on its row."""
        self._sheet = sheet
        marked = self._marked()
        at = self.scroll_offset
        self.clear(columns=True)
        for name in sheet.columns:
            self.add_column(self._heading(name), key=name)
        keys = [self._add(row) for row in self._ordered()]
        if marked in keys:
            self.move_cursor(row=keys.index(marked), animate=False, scroll=False)
        self.scroll_to(at.x, at.y, animate=False, immediate=True)

    def _add(self, row: tuple[Cell, ...]) -> str:
        self.add_row(
            *(
                self._text(name, cell.text)
                for name, cell in zip(self._sheet.columns, row, strict=True)
            ),
            key=row[0].text,
        )
        return row[0].text

    def _marked(self) -> str | None:
        if not self.is_valid_row_index(self.cursor_row):
            return None
        return self.coordinate_to_cell_key(self.cursor_coordinate).row_key.value

    def _ordered(self) -> list[tuple[Cell, ...]]:
        rows = list(self._sheet.rows)
        if self._column in self._sheet.columns:
            place = self._sheet.columns.index(self._column)
            rows = sorted(
                rows, key=lambda row: (row[place].value, row[place].text), reverse=self._descending
            )
        return rows[:_MOST_ROWS]

    def _heading(self, name: str) -> Text:
        if name != self._column:
            return self._text(name, name)
        return self._text(name, f"{name} {'▼' if self._descending else '▲'}", style="bold")

    def _text(self, name: str, text: str, style: str = "") -> Text:
        return Text(text, style, justify="left" if name in self._sheet.words else "right")

    def action_sort_by(self, step: int) -> None:
        """Sort by the column `step` places to the right of the one that it is sorted by now."""
        columns = self._sheet.columns
        if not columns:
            return
        at = columns.index(self._column) if self._column in columns else -max(step, 0)
        self._column = columns[(at + step) % len(columns)]
        self.show_sheet(self._sheet)

    def action_invert(self) -> None:
        """Turn the order round."""
        self._descending = not self._descending
        self.show_sheet(self._sheet)

    def on_data_table_header_selected(self, event: DataTable.HeaderSelected) -> None:
        name = event.column_key.value or ""
        self._descending = name != self._column or not self._descending
        self._column = name
        self.show_sheet(self._sheet)
