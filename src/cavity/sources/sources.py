"""Sources of blocks: fixed-size runs of rows, as contiguous float64, whatever the data are; and how results merge.

    source --blocks--> kernel(block) --statistics--> merge

Where blocks begin and end depends on the number of rows and columns alone, and their statistics are added up along a
fixed tree. So the result has the same bits for an array, a memory map or the files it was split into, whoever computes.
"""

from __future__ import annotations

import operator
import threading
from collections.abc import Iterator
from itertools import accumulate
from numbers import Integral
from typing import Any

import numpy as np

from cavity.base import arrays, frames
from cavity.base.public_objects import FloatArray
from cavity.runs.executors import Threads
from cavity.runs.merge import BlockTask, split_rows
from cavity.runs.passes import map_runs, reduce_runs
from cavity.sources import column_summary, formats
from cavity.sources.blocks import Blocks, rows_per_block
from cavity.sources.source_parts import ArrayRows, FrameRows, ReadRows

SAMPLE_ROWS = 1 << 14  # rows of a sample to choose starting points from


def take_every(run, step):
    """A task: rows at equal distances, counted from the first of all."""
    return run.arrays[0][-run.start % step :: step]


def open_source(data, name, *, ndim=(1,), block_rows=None):
    """Return data of any supported kind, with everything checked but the numbers themselves, as a Source.

    Parameters
    ----------
    data : array_like, table or column of one, path, list of paths, or Source
        Real numbers of any dtype, byte order and memory layout, (N,) or (N, D). They are not copied as a whole; a table
        of one column is taken for (N,) where nothing else is accepted. The files of a list follow each other. A Source
        is opened once more.
    name : str
        What the argument is called, for messages.
    ndim : tuple of int
        Which numbers of dimensions are accepted, of 1 and 2.
    block_rows : int, optional
        Rows in a block, if not `rows_per_block`.

    Raises
    ------
    TypeError
        For a one-shot iterator, a masked array, or anything but real numbers, by the name of its column if it has one.
    ValueError
        For empty data, a wrong number of dimensions, files that do not fit together, are cut short or cannot be read.
    FileNotFoundError
        If there is no such file.
    """
    stored = _stored(data, name)
    if stored is None:
        data = frames.take_only_column(data) if ndim == (1,) else data
        return Source([_table(data, name, ndim, block_rows)], name, block_rows)
    if ndim == (1,) and stored.names is not None and stored.shape[1:] == (1,):
        stored = stored.column(stored.names[0])
    if ndim == (1,) and stored.names is not None and stored.ndim == 2:
        hint = f"; cavity.source({name}, columns={stored.names[0]!r}) is the first" if name.isidentifier() else ""
        raise ValueError(f"{name} must be one column, got {frames.join_names(stored.names)}{hint}")
    arrays.check_not_empty(stored.shape, name)
    for part in stored.parts:
        path = getattr(part, "path", None)
        arrays.check_ndim(part, name if path is None else f"{name} ({path})", ndim)
    stored.check_numbers(name)
    return Source(stored.parts, name, block_rows)


def source(
    data: Any,
    columns: Any = None,
    *,
    separator: str | None = None,
    decimal: str | None = None,
    encoding: str | None = None,
) -> Source:
    """Open a table of any size, which fits then read block by block instead of loading it.

    Every fit that can read files opens them by itself; this is for looking at them first, and for choosing columns.

    Parameters
    ----------
    data : array_like, data frame, path, list of paths, or other table
        (N,) or (N, D). Files are ``.npy``, Parquet, Arrow, Feather, CSV or TSV, gzipped or not; a folder or a pattern
        ``"*.parquet"`` stands for all of one format, sorted by name, and files of a list follow each other. Others are
        datasets of pyarrow, zarr arrays, HDF5 datasets, sparse matrices, and all that has ``shape``, ``dtype`` and
        slices of rows.
    columns : str or list of str, optional
        Names of columns, or their numbers where they have no names; those of a list make a table, a single one makes a
        vector (N,). All by default.
    separator, decimal, encoding : str, optional
        What stands between the columns of text files, and between whole numbers and decimals, and how characters are
        written, where that is not to be found from the first lines.

    Returns
    -------
    Source
        With `shape`, the `names` of the columns, and `rows`, which returns some rows as an array. It can be given
        to a fit in place of the table, pickled, and read by any number of threads.

    Examples
    --------
    >>> import cavity
    >>> rows = cavity.source([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    >>> rows.shape, rows.names
    ((3, 2), None)
    >>> cavity.source(rows, columns=1).rows(1)
    array([4., 6.])
    """
    text = {"separator": separator, "decimal": decimal, "encoding": encoding}
    if any(value is not None for value in text.values()):
        opened_source = Source(formats.open_texts(data, "data", **text), "data")
    else:
        opened_source = open_unchecked(data, "data")
    if columns is None:
        return opened_source
    if isinstance(columns, str | Integral):
        return opened_source.column(columns)
    return opened_source.columns([opened_source.column_index(column) for column in columns])


def open_unchecked(data, name):
    """Return data of any supported kind as a Source; columns that hold no numbers are refused when they are read."""
    stored = _stored(data, name)
    if stored is None:
        return Source([_table(data, name, (1, 2), 0, is_checked=False)], name)
    return Source(stored.parts, name)


def _stored(data, name):
    """Return data that have their place, in files or in a source, as a Source; None for what is in memory."""
    if hasattr(data, "__next__") and not hasattr(data, "__array__"):
        raise TypeError(
            f"the fit needs several passes over the data, but {name} is a one-shot iterator ({type(data).__name__}); "
            "give an array, a .npy file, Parquet files, or another table that can be read again"
        )
    if isinstance(data, Source):
        return data
    parts = formats.open_stored(data, name)
    return None if parts is None else Source(parts, name)


def _table(data, name, ndim, block_rows, is_checked=True):
    """Return data in memory as a part: tables of several blocks are converted when they are read, others at once."""
    columns = frames.names_of(data)
    if block_rows is None:
        block_rows = rows_per_block(len(columns or (0,)))
    if frames.is_table(data) and len(data) > block_rows:
        array = frames.to_uniform_array(data)
        if array is None:
            part = FrameRows(data, name)
            arrays.check_ndim(part, name, ndim, data)
            if is_checked:
                part.check_numbers(name)
            return part
        data = array
    return ArrayRows(arrays.check_data_shape(data, name, ndim), name, columns)


class Source(Blocks):
    """Rows in memory, in files or elsewhere, in blocks that can be read again and again, by any thread and process.

    `cavity.source` makes one. Rows, columns and blocks are counted from 0. Parts follow each
    other and count their own rows; blocks are over all rows, whatever the parts.

    Parameters
    ----------
    parts : list
        At least one, all of one width.
    name : str
        What the data are called in messages.
    block_rows : int, optional
        Rows in a block; by default 131072, fewer where rows are wide.

    Attributes
    ----------
    shape : tuple of int
        (N, D), or (N,) for a vector.
    names : tuple of str or None
        Names of the columns, if they have any.

    Examples
    --------
    >>> import cavity
    >>> rows = cavity.source([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    >>> rows, rows.columns([1]).rows(1).tolist()
    (<cavity.Source: 3 x 2>, [[4.0], [6.0]])
    """

    def __init__(self, parts, name, block_rows=None):
        self.name, self.parts, self.names = name, parts, parts[0].columns
        self._ends = list(accumulate(part.shape[0] for part in parts))
        self.shape = (self._ends[-1], *parts[0].shape[1:])
        self.block_rows = rows_per_block(self.n_features) if block_rows is None else block_rows
        self._local, self._states = threading.local(), []  # of each thread; those that threads have left

    def __repr__(self):
        shape = " x ".join(map(str, self.shape))
        names = f", columns {frames.join_names(self.names)}" if self.names else ""
        first = getattr(self.parts[0], "path", None)
        files = "" if first is None else f", from {first}"
        more = f" and {len(self.parts) - 1} more" if files and len(self.parts) > 1 else ""
        return f"<cavity.Source: {shape}{names}{files}{more}>"

    def __reduce__(self):
        return Source, (self.parts, self.name, self.block_rows)

    def column_index(self, name):
        """Return the number of a column; ValueError if there is none, or several.

        Parameters
        ----------
        name : str or int
            The name of the column, or its number.

        Returns
        -------
        int
            The number.
        """
        if isinstance(name, Integral) and not isinstance(name, bool) and 0 <= name < self.n_features:
            return int(name)
        names = self.names or ()
        if names.count(name) != 1:
            number = "two columns" if name in names else "no column"
            available = frames.join_names(names) if names else f"{self.n_features} columns without names"
            raise ValueError(f"{self.name} has {number} {name!r}; it has {available}")
        return names.index(name)

    def columns(self, index: Any) -> Source:
        """Return some of the columns.

        Parameters
        ----------
        index : sequence of int
            Their numbers; a vector has one column.

        Returns
        -------
        Source
            With shape (N, d).
        """
        return Source([part.select_columns(list(index)) for part in self.parts], self.name)

    def column(self, name: str | int) -> Source:
        """Return a column of numbers.

        Parameters
        ----------
        name : str or int
            The name of the column, or its number.

        Returns
        -------
        Source
            With shape (N,).
        """
        index = [self.column_index(name)]
        return (
            self
            if self.ndim == 1
            else Source([part.select_columns(index, vector=True) for part in self.parts], self.name)
        )

    def values(self, name: str | int) -> Any:
        """Return a whole column in memory.

        Parameters
        ----------
        name : str or int
            The name of the column, or its number.

        Returns
        -------
        ndarray, shape (N,), or column of a table
            Numbers as float64, with nan for what is missing; others as they are: text, categories, dates.
        """
        index = self.column_index(name)
        labels = [part.labels(index) for part in self.parts]
        numbers = [part_labels is None for part_labels in labels]
        if all(numbers):
            return self.column(index).rows()
        if any(numbers):
            first, other = (self.parts[numbers.index(kind)].describe_row(0) for kind in (True, False))
            raise TypeError(f"{self.name}: column {name!r} holds numbers from {first} on, and others from {other} on")
        return labels[0] if len(labels) == 1 else np.concatenate(labels)

    def without(self, names: Any) -> Source:
        """Return all columns but some.

        Parameters
        ----------
        names : sequence of str or int
            Names of the columns that are left out, or their numbers.

        Returns
        -------
        Source
            With shape (N, d).
        """
        out = {self.column_index(name) for name in names}
        return self.columns([j for j in range(self.n_features) if j not in out])

    def summary(self, threads, missing=False, digested=False):
        """Check all numbers, and return their extremes and means.

        Parameters
        ----------
        threads : Threads
            That read.
        missing : bool, default False
            Whether nan stands for a number that was not seen.
        digested : bool, default False
            Whether to find the `ObservationDigest` of the rows in the same pass.

        Returns
        -------
        low, high, mean : float or ndarray, shape (D,)
            Of the columns; with `missing`, how many numbers were seen comes fourth, (D,); with `digested`, the digest
            comes last.

        Raises
        ------
        ValueError
            Naming the first number, by rows, that is nan or infinite.
        """
        task = BlockTask(column_summary.summarize_block, add=column_summary.merge_summaries)
        sums = reduce_runs(
            task, (self, missing, digested), [self], threads, add=column_summary.merge_summaries, stage="reading"
        )
        (low, high, *_, counts), digest = sums[:5], sums[5:]
        mean = column_summary.compute_means(*sums[:5])
        if len(self.shape) > 1:
            return (low, high, mean, counts, *digest) if missing else (low, high, mean, *digest)
        return float(low[0]), float(high[0]), float(mean[0]), *digest

    def rows(self, start: int = 0, stop: int | None = None) -> FloatArray:
        """Return rows as an array of its own.

        Parameters
        ----------
        start : int, default 0
            The first of them.
        stop : int, optional
            The one after the last; by default all that follow.

        Returns
        -------
        ndarray, shape (n,) or (n, D)
            Float64.
        """
        self.check_numbers(self.name)
        start, stop = operator.index(start), self.n_rows if stop is None else operator.index(stop)
        if not 0 <= start <= stop <= self.n_rows:
            raise ValueError(f"{self.name} has rows from 0 to {self.n_rows}, there are none from {start} to {stop}")
        if self.is_remote and (start, stop) == (0, self.n_rows):
            with Threads(1) as thread:
                return np.concatenate(list(map_runs(take_every, 1, [self], thread)))
        out = arrays.allocate_matrix((stop - start, self.n_features), f"{self.name}: an array")
        out = out.reshape(stop - start, *self.shape[1:])
        for low, high in split_rows(stop - start, self.block_rows):
            self.fill(out[low:high], start + low)
        return out

    def batches(self, size: int, *columns: str | int) -> Iterator[Any]:
        """Yield the rows in batches, for models that take them in one after the other by `update`.

        Parameters
        ----------
        size : int
            Rows in a batch, but for the last one.
        *columns : str or int
            Columns that go apart, by their names or numbers: y, weights.

        Yields
        ------
        Source, or tuple of Source and arrays
            The rows, read into memory, without those columns; then what these hold.

        Examples
        --------
        >>> import cavity
        >>> table = cavity.source([[1.0, 5.0], [2.0, 7.0], [3.0, 9.0]])
        >>> for X, y in table.batches(2, 1):
        ...     print(X.rows().tolist(), y.tolist())
        [[1.0], [2.0]] [5.0, 7.0]
        [[3.0]] [9.0]
        """
        size = arrays.check_integer(size, "size", low=1)
        rest, values = self.without(columns) if columns else self, [self.values(name) for name in columns]
        rest.check_numbers(self.name)
        for start in range(0, self.n_rows, size):
            part = slice(start, min(start + size, self.n_rows))
            rows = Source([ReadRows(rest.rows(part.start, part.stop), rest, start)], self.name)
            yield (rows, *(value[part] for value in values)) if columns else rows

    def sample(self, size=None):
        """Return rows at equal distances, the first among them, as an array of its own.

        Parameters
        ----------
        size : int, optional
            At most so many, by default 16384.

        Returns
        -------
        ndarray, shape (n,) or (n, D)
            Float64.
        """
        step = -(-self.n_rows // (SAMPLE_ROWS if size is None else arrays.check_integer(size, "size", low=1)))
        if self.is_remote:
            with Threads(1) as thread:
                return np.concatenate(list(map_runs(take_every, step, [self], thread)))
        parts = []
        for index in range(self.block_count):
            start, stop = self.span(index)
            first = -start % step
            if first < stop - start:
                parts.append(self.read(index)[first::step].copy())
        return np.concatenate(parts)
