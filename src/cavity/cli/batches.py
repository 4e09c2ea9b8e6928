"""Tables in batches of rows, in the order of the file: a .csv file is never in memory as a whole."""

import os
from itertools import islice
from pathlib import Path

from ..errors import missing_extra
from . import tables


class Batches:
    """The rows of a table in batches, as `Columns`; `fraction` is the share of the table that has been read.

    Parameters
    ----------
    source : str
        A shipped data set, a .csv, .npy or .parquet file (with the arrow extra).
    rows : int
        Rows in a batch; the last one may have fewer.
    skip : int
        Rows at the beginning that are left out.
    """

    def __init__(self, source, rows, skip=0):
        self.source, self.rows, self.skip = source, rows, skip
        self.fraction = 0.0
        path = Path(source)
        if path.suffix == ".parquet" and path.exists():
            self._parts = self._parquet(path)
        elif path.suffix == ".npy" or not path.exists():
            self._parts = self._slices(tables.read_columns(source))
        else:
            self._parts = self._csv(path)

    def __iter__(self):
        return self._parts

    def _slices(self, table):
        total = len(table.places)
        for low in range(self.skip, total, self.rows):
            self.fraction = min(low + self.rows, total) / total
            yield table.part(slice(low, low + self.rows))

    def _csv(self, path):
        size = os.path.getsize(path)
        with tables.open_text(path) as file:
            names, lines = tables.csv_reader(path, file)
            lines = islice(lines, self.skip, None)
            while part := list(islice(lines, self.rows)):
                self.fraction = file.buffer.tell() / size
                yield tables.text_columns(path, names, part)

    def _parquet(self, path):
        try:
            from pyarrow import ArrowException, parquet
        except ImportError as error:
            raise missing_extra("pyarrow", "arrow") from error
        try:
            with parquet.ParquetFile(path) as file:
                yield from self._arrow(file)
        except ArrowException as error:
            raise ValueError(f"{path}: not a readable Parquet file ({error})") from error

    def _arrow(self, file):
        """Batches of the wanted length; those of the file end where its row groups end."""
        from pyarrow import Table

        total, low, waiting, count = file.metadata.num_rows, 0, [], 0
        for batch in file.iter_batches(self.rows):
            drop = min(max(self.skip - low, 0), len(batch))
            low, count = low + len(batch), count + len(batch) - drop
            waiting.append(batch.slice(drop))
            self.fraction = low / total
            while count >= self.rows or (low == total and count):
                known = Table.from_batches(waiting)
                yield self._columns(known.slice(0, self.rows), low - count)
                rest = known.slice(self.rows)
                waiting, count = rest.to_batches(), len(rest)

    def _columns(self, part, first):
        """Columns of an Arrow table whose rows begin with number `first`."""
        cells = dict(zip(part.column_names, map(_cells, part.combine_chunks().columns), strict=True))
        return tables.Columns(self.source, cells, [f"row {first + i + 1}" for i in range(len(part))])


def _cells(column):
    """Return a column of an Arrow table as text, or as numbers with nan for what is missing."""
    from pyarrow import types

    kind = column.type
    if types.is_dictionary(kind):
        return _cells(column.cast(kind.value_type))
    if types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind) or types.is_decimal(kind):
        return column.cast("float64").to_numpy().astype(float)
    return ["" if value is None else str(value) for value in column.to_pylist()]
