"""Tables in batches of rows, in the order of the file: a file is never in memory as a whole."""

import os
from itertools import chain, islice, repeat
from pathlib import Path

from cavity.cli import parquet, tables
from cavity.cli import table as cli_table


class Batches:
    """The rows of a table in batches, as `Columns`; `fraction` is the share of the table that has been read.

    Parameters
    ----------
    source : str
        A shipped data set, a .csv, .npy or .parquet file.
    rows : int
        Rows in a batch; the last one may have fewer.
    skip : int
        Rows at the beginning that are left out.
    first : int, optional
        Rows in the first batch, if it is to have others.
    """

    def __init__(self, source, rows, skip=0, first=None):
        self.skip = skip
        self._sizes = chain([first or rows], repeat(rows))
        self.fraction = 0.0
        path = Path(source)
        if path.suffix == ".parquet" and path.exists():
            self._parts = self._parquet(path)
        elif not path.exists():
            self._parts = self._slices(tables.read_columns(source))
        elif path.suffix == ".npy":
            self._parts = self._npy(source)
        else:
            self._parts = self._csv(path)

    def __iter__(self):
        return self._parts

    def _spans(self, total):
        """Yield the (start, stop) of the batches of so many rows."""
        low = self.skip
        while low < total:
            high = min(low + next(self._sizes), total)
            self.fraction = high / total
            yield low, high
            low = high

    def _slices(self, table):
        for low, high in self._spans(len(table.places)):
            yield table.part(slice(low, high))

    def _npy(self, source):
        rows, names = tables.open_npy(source)
        for low, high in self._spans(rows.n_rows):
            cells = dict(zip(names, rows.rows(low, high).reshape(high - low, -1).T, strict=True))
            yield cli_table.Columns(source, cells, [f"row {i + 1}" for i in range(low, high)])

    def _csv(self, path):
        size = os.path.getsize(path)
        with tables.open_text(path) as file:
            names, lines = tables.csv_reader(path, file)
            lines = islice(lines, self.skip, None)
            while part := list(islice(lines, next(self._sizes))):
                self.fraction = file.buffer.tell() / size
                yield tables.text_columns(path, names, part)

    def _parquet(self, path):
        for part, fraction in parquet.parts(path, self._sizes, self.skip):
            self.fraction = fraction
            yield part
