"""Tables of pandas, polars and Arrow, and their columns, as parts of a source: converted when their rows are read."""

from cavity.base import arrays, frames


class NamedRows:
    """Base of parts in memory: how messages speak of their rows, and of their columns if these have names."""

    def __init__(self, name, shape, columns):
        self.name, self.shape, self.columns = name, shape, columns

    @property
    def ndim(self):
        """Number of dimensions."""
        return len(self.shape)

    def where(self, *place):
        """Words for a row, or for a row and a column, for messages."""
        return arrays.where(self.name, place, self.columns)

    def found(self, value, *place):
        """Words for a value that should not be there."""
        return arrays.found(value, self.name, place, self.columns)


class FrameRows(NamedRows):
    """Rows of a table (N, D), or of one of its columns (N,), which stay where they are."""

    def __init__(self, table, name):
        super().__init__(name, frames.shape_of(table), frames.names_of(table))
        frames.check_numbers(table, name)
        self.table = table

    def view(self, start, stop):
        """None: the rows have to be converted."""
        return None

    def fill(self, out, start, scratch):
        """Convert the rows from `start` on into out."""
        frames.converted(self.table, start, start + len(out), out)
