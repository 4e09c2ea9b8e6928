"""Rows of Parquet and Arrow files and of Arrow datasets; needs pyarrow, which is imported where these are given.

A file is read group by group (row groups of Parquet, batches of Arrow; small ones after each other together), each
in batches of some columns. A reader that continues after its last row reads every byte once; one that jumps begins
with the group of its row. A thread keeps its open file for later passes.
"""

import os
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import accumulate

from cavity.base import arrays, frames
from cavity.base.errors import missing_extra_error, name_file_in_errors
from cavity.sources.files import FileState
from cavity.sources.source_parts import FrameRows, SourcePart, find_piece

NUMBERS_PER_BATCH = 1 << 17  # decoded together, 1 MB, which stays in the cache while they are copied
MIN_BATCH_ROWS = 1 << 10  # of a batch
COLUMN_BUFFER_BYTES = 1 << 18  # bytes of a compressed column that are read at a time


@dataclass(frozen=True, slots=True)
class ArrowRows(SourcePart):
    """Rows of a file or of a fragment of a dataset, with some of its columns."""

    path: str  # as the user wrote it
    reader: object
    schema: object  # of pyarrow, all columns
    ends: tuple  # of the groups, in rows
    index: tuple  # numbers of the columns
    vector: bool = False  # whether the only one is (N,)
    in_memory = False
    stays_open = True  # for threads of later passes

    @property
    def shape(self):
        """Shape (N, D), or (N,)."""
        rows = self.ends[-1] if self.ends else 0
        return (rows,) if self.vector else (rows, len(self.index))

    @property
    def absolute_path(self):
        """The file, by its absolute path; None for a fragment."""
        return getattr(self.reader, "absolute_path", None)

    @property
    def columns(self):
        """Names of the columns."""
        names = self.schema.names
        return tuple(names[j] for j in self.index)

    def describe_row(self, row, column=None):
        """Words for a row, or for a row and a column, for messages."""
        entry = (row,) if column is None and not self.vector else (row, column or 0)
        return arrays.describe_entry(self.path, entry, self.columns)

    def select_columns(self, index, vector=False):
        """The rows with some of these columns, of which no others are read."""
        return replace(self, index=tuple(self.index[j] for j in index), vector=vector)

    def check_numbers(self, name):
        """Raise TypeError, naming the column, unless all columns hold numbers."""
        frames.check_numbers(self._empty(), f"{name} ({self.path})")

    def labels(self, index):
        """The values of a column that are no numbers; None if they are.

        Ordered categories come as a column of Arrow, which knows their order, text as an array of strings.
        """
        if frames.has_numbers(self._empty().column(index)):
            return None
        one = self.select_columns([index], vector=True)
        with reading(self.path):
            self.reader.check(self.path)
            column = Cursor(one).whole()
        if getattr(column.type, "ordered", False):
            return column
        values = column.cast(column.type.value_type) if hasattr(column.type, "value_type") else column
        texts = values.to_numpy(zero_copy_only=False)
        return texts if values.null_count or not all(isinstance(text, str) for text in texts[:1]) else texts.astype(str)

    def fill(self, out, start, state):
        """Read the rows from `start` on into out (n, d) or (n,)."""
        with reading(self.path):
            self.reader.check(self.path)
            if state.part is not self:
                state.part, state.open = None, None  # closed before the next one is open
                state.part, state.open = self, Cursor(self)
            state.open.fill(out, start)

    def _empty(self):
        return self.schema.empty_table().select(list(self.index))


class Cursor:
    """The rows that one thread holds of a file, and where it reads on."""

    def __init__(self, part):
        self._part, self._names = part, list(part.columns)
        self._file = part.reader.open(self._names)
        self._size = max(NUMBERS_PER_BATCH // len(self._names), MIN_BATCH_ROWS)
        self._group, self._low, self._high, self._rows, self._batches = -1, 0, 0, None, iter(())

    def fill(self, out, start):
        """Read the rows from `start` on into out."""
        done = 0
        while done < len(out):
            row = start + done
            self._go(row)
            stop = min(self._high - row, len(out) - done)
            rows = self._rows.column(0) if out.ndim == 1 else self._rows
            frames.convert_rows(rows, row - self._low, row - self._low + stop, out[done : done + stop])
            done += stop

    def whole(self):
        """Return the only column as a chunked array of Arrow."""
        from pyarrow import chunked_array

        chunks = []
        while self._high < self._part.shape[0]:
            self._go(self._high)
            chunks.append(self._rows.column(0))
        return chunked_array(chunks, type=self._part.schema.field(self._part.index[0]).type)

    def _go(self, row):
        """Read batches until one holds the row."""
        ends = self._part.ends
        group, first = find_piece(ends, row)
        if row < self._low or group != self._group:
            self._group, self._low, self._high = group, first, first
            self._batches = self._part.reader.batches(self._file, group, self._names, self._size)
        while self._high <= row:
            self._rows = next(self._batches, None)
            if self._rows is None:
                raise ValueError(f"{self._part.path} has fewer rows than it says, {ends[-1]}")
            self._rows = self._rows.select(self._names)
            self._low, self._high = self._high, self._high + len(self._rows)


@dataclass(frozen=True, slots=True)
class ParquetReader:
    """Reads the row groups of a Parquet file."""

    absolute_path: str  # absolute, so that it is found from another working directory
    state: FileState
    spans: tuple = ()  # of the groups of the file, (first, stop), which are read as one

    def open(self, names=None):
        """Return the open file, of which these columns are read."""
        from pyarrow.parquet import ParquetFile

        return ParquetFile(self.absolute_path, pre_buffer=False, buffer_size=COLUMN_BUFFER_BYTES)

    def groups(self, file):
        """Return the schema of an open file, and the numbers of rows of its groups."""
        return file.schema_arrow, [file.metadata.row_group(i).num_rows for i in range(file.num_row_groups)]

    def batches(self, file, group, names, size):
        """Yield batches of some columns of a group, of at most `size` rows."""
        return file.iter_batches(size, row_groups=[*range(*self.spans[group])], columns=names, use_threads=False)

    def check(self, path):
        """Raise ValueError if the file has changed."""
        self.state.check_path(self.absolute_path)


class BatchReader(ParquetReader):
    """Reads the batches of an Arrow (IPC, Feather) file."""

    __slots__ = ()

    def open(self, names=None):
        """Return the open file, of which these columns are read; of None the first, to count the rows."""
        from pyarrow import ipc

        fields = [0]
        if names is not None:
            with ipc.open_file(self.absolute_path) as file:
                fields = sorted(map(file.schema.get_field_index, names))
        return ipc.open_file(self.absolute_path, options=ipc.IpcReadOptions(included_fields=fields, use_threads=False))

    def groups(self, file):
        """Return the schema of a file, and the numbers of rows of its batches."""
        from pyarrow import ipc

        with ipc.open_file(self.absolute_path) as stream:
            return stream.schema, [file.get_batch(i).num_rows for i in range(stream.num_record_batches)]

    def batches(self, file, group, names, size):
        """Yield the batches of the file as one."""
        from pyarrow import Table

        yield from Table.from_batches(map(file.get_batch, range(*self.spans[group]))).combine_chunks().to_batches()


@dataclass(frozen=True, slots=True)
class FragmentReader:
    """Reads a fragment of a dataset, of Parquet by row groups."""

    pieces: list
    schema: object
    stamp: tuple  # size and time of modification of the file
    spans: tuple = ()  # of the pieces, (first, stop), which are read as one

    def open(self, names):
        """Return the pieces."""
        return self.pieces

    def batches(self, pieces, group, names, size):
        """Return an iterator over batches of some columns of a piece, of at most `size` rows; of several pieces one.

        Pieces are joined here: pyarrow 26 loses the order of several groups of a fragment that is pickled.
        """
        pieces, scanned = pieces[slice(*self.spans[group])], {"columns": names, "use_threads": False}
        if len(pieces) > 1:
            fragment = pieces[0].subset(row_group_ids=[piece.row_groups[0].id for piece in pieces])
            return iter(fragment.to_table(self.schema, **scanned).combine_chunks().to_batches())
        scan = pieces[0].to_batches(self.schema, batch_size=size, batch_readahead=1, fragment_readahead=1, **scanned)
        return (batch for batch in scan if len(batch))

    def check(self, path):
        """Raise ValueError if the file has changed."""
        if file_stamp(self.pieces[0]) != self.stamp:
            raise ValueError(f"{path} has changed while it was in use; start again with the file as it is now")


def file_stamp(fragment):
    """Return what differs once the file of a fragment has changed."""
    info = fragment.filesystem.get_file_info(fragment.path)
    return info.size, info.mtime_ns


def open_parquet(path, name):
    """Return the rows of a Parquet file; `name` is what the argument is called."""
    return _opened(ParquetReader, path, name, "a Parquet")


def open_ipc(path, name):
    """Return the rows of an Arrow or Feather file."""
    return _opened(BatchReader, path, name, "an Arrow (Feather)")


def open_dataset(dataset, name):
    """Return the fragments of a dataset of pyarrow as parts."""
    try:
        fragments = list(dataset.get_fragments())
    except ValueError as error:  # of a filter
        raise ValueError(f"{name} must be a dataset of whole files ({_first_line(error)})") from error
    parts = []
    for fragment in fragments:
        path = getattr(fragment, "path", "")
        if not path:
            parts.append(FrameRows(fragment.to_table(dataset.schema), name))
            continue
        with reading(path):
            pieces = fragment.split_by_row_group() if hasattr(fragment, "split_by_row_group") else [fragment]
            reader = FragmentReader(pieces, dataset.schema, file_stamp(fragment))
            parts.append(_part(path, reader, dataset.schema, map(_rows_of, pieces), name))
    arrays.check_not_empty((sum(part.shape[0] for part in parts), len(dataset.schema)), name)
    return parts


def _spans(sizes, schema):
    """Return (first, stop) of the groups that are read together: as many as fit into a batch, at least one."""
    most_rows = max(NUMBERS_PER_BATCH // max(len(schema.names), 1), MIN_BATCH_ROWS)
    spans, rows = [], 0
    for group, size in enumerate(sizes):
        first, rows = (spans.pop()[0], rows + size) if spans and rows + size <= most_rows else (group, size)
        spans.append((first, group + 1))
    return tuple(spans)


def _rows_of(piece):
    """Return the number of rows of a fragment, of a row group of one included, which `count_rows` counts as whole."""
    groups = getattr(piece, "row_groups", None)
    return piece.count_rows() if groups is None else sum(group.num_rows for group in groups)


def _opened(kind, path, name, article):
    """Return the rows of a file of one kind."""
    try:
        import pyarrow as pa
    except ImportError as error:
        raise missing_extra_error("pyarrow", "arrow") from error
    reader = kind(os.path.abspath(path), FileState.of_path(path))
    try:
        schema, sizes = reader.groups(reader.open())
        return _part(path, reader, schema, sizes, name)
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise ValueError(f"{name}: {path} is not {article} file that can be read ({_first_line(error)})") from error


def _part(path, reader, schema, sizes, name):
    """Return rows whose columns have been checked to have different names; the index of a pandas frame is none."""
    names = schema.names
    repeated = frames.find_repeated(names)
    if repeated is not None:
        raise ValueError(f"{name}: {path} has two columns that are called {repeated!r}")
    labels = (schema.pandas_metadata or {}).get("index_columns", [])
    index = tuple(j for j, column in enumerate(names) if column not in labels)
    if not index:
        raise ValueError(f"{name}: {path} has no columns")
    spans = _spans(sizes := [*sizes], schema)
    ends = tuple(accumulate(sum(sizes[low:high]) for low, high in spans))
    return ArrowRows(path, replace(reader, spans=spans), schema, ends, index)


@contextmanager
def reading(path):
    """Say which file the errors of pyarrow are about."""
    from pyarrow import ArrowException

    try:
        with name_file_in_errors(path):
            yield
    except ArrowException as error:
        raise ValueError(f"{path} cannot be read ({_first_line(error)})") from error
    except OSError as error:
        if error.errno is not None:
            raise
        raise ValueError(f"{path} cannot be read ({_first_line(error)})") from error  # damaged, in its words


def _first_line(error):
    return str(error).partition("\n")[0].rstrip(".")
