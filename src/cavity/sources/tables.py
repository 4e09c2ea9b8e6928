"""Tables of pandas, polars and Arrow, and their columns, as parts of a source: converted when their rows are read."""

from cavity.base import frames
from cavity.sources.source_parts import NamedRows


class FrameRows(NamedRows):
    """Rows of a table (N, D), or of one of its columns (N,), which stay where they are."""

    def __init__(self, table, name, columns=None):
        super().__init__(name, frames.shape_of(table), columns or frames.names_of(table))
        self.table = table

    def fill(self, out, start, state):
        """Convert the rows from `start` on into out."""
        frames.convert_rows(self.table, start, start + len(out), out)

    def select_columns(self, index, vector=False):
        """The rows of the table with some of its columns, by their numbers; a vector of the only one."""
        if self.ndim == 1:
            return super().select_columns(index, vector)
        table = frames.get_column_at(self.table, *index) if vector else frames.pick_columns(self.table, index)
        return FrameRows(table, self.name, tuple(self.columns[j] for j in index))

    def labels(self, index):
        """A column of the table that does not hold numbers; None if it does."""
        column = frames.get_column_at(self.table, index) if self.ndim > 1 else self.table
        return None if frames.has_numbers(column) else column

    def check_numbers(self, name):
        """Raise TypeError, naming the column, unless all columns hold numbers."""
        frames.check_numbers(self.table, name)
