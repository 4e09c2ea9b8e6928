"""Dask collections as sources: their chunks stay where they are, and passes go to them.

    chunks --whole blocks--> one task a run: task(run, broadcast) on a worker --statistics--> the tree of `merge`

A collection is a part of a source as a file is, with the rows of its chunks one after the other. Blocks are counted
over all rows, whatever the chunks are, so what a pass adds up has the bits of the same rows in an array. A run is 2^k
blocks that begin at a multiple of 2^k and lie in one chunk, where chunks hold several blocks; a block that two of them
share is a run of its own, which workers keep. A task of dask is one pass over the runs of a chunk, or over some of
them: the state goes in, statistics come out, and the chunk is read where dask has it. How many blocks a task has is
decided by the time that a block took in the last pass, and changes no bit.

No chunk is persisted here: a collection that the user has persisted is read from the memory of the workers, any other
one is computed again in every pass, as a file is read. Whoever is in force for dask works: its client, or the local
scheduler. What a worker loses dask computes anew from the graph, which has the state in it.
"""

from bisect import bisect_right
from dataclasses import dataclass, field
from itertools import accumulate
from uuid import uuid4

import numpy as np

from cavity.base import arrays, frames
from cavity.runs import dask_scheduler
from cavity.sources.source_parts import ArrayRows, FrameRows, NamedRows, find_piece

LEAST_WHOLE = 4  # rows for each that is kept anew because it lies in several chunks
SMALL_ROWS, SMALL_NUMBERS = 1 << 14, 1 << 20  # of collections that are read at once: passes over them go nowhere


def open_collection(data, name):
    """Return a dask array, data frame or series as a part of a source; chunks of unknown length are counted.

    Raises
    ------
    TypeError
        For another collection, chunks that are no arrays of NumPy or tables of pandas, or no real numbers.
    """
    kind = f"{type(data).__module__.partition('.')[0]}.{type(data).__name__}"
    meta = getattr(data, "_meta", None)
    table = hasattr(data, "npartitions") and hasattr(meta, "iloc") and meta.ndim in (1, 2)
    if not (table or type(meta) is np.ndarray):
        content = "" if meta is None else f" of {type(meta).__module__.partition('.')[0]}.{type(meta).__name__}"
        raise TypeError(f"{name} must be a dask array of numpy arrays, or a dask data frame, got {kind}{content}")
    if table:
        names = frames.names_of(meta) if meta.ndim == 2 else frames.name_of(meta)
        chunks = Chunks.of(data, None)
        shape = chunks.ends[-1], *meta.shape[1:]
        return (
            FrameRows(dask_scheduler.load(data), name)
            if _is_small(shape)
            else ChunkRows(chunks, name, shape, names, meta)
        )
    arrays.check_dtype(np.dtype(data.dtype), name)
    arrays.check_ndim(data, name, (1, 2))
    if data.ndim == 2 and data.numblocks[1] > 1:
        data = data.rechunk({1: -1})
    chunks = Chunks.of(data, data.chunks[0])
    shape = chunks.ends[-1], *data.shape[1:]
    if not _is_small(shape):
        return ChunkRows(chunks, name, shape, None)
    parts = dask_scheduler.load_each(data.to_delayed().ravel())
    for number, part in enumerate(parts):
        _check_width(name, number, part, shape)
    return ArrayRows(np.concatenate(parts), name)


def _check_width(name, number, chunk, shape):
    """Raise ValueError for a chunk whose rows are not as wide as dask takes them to be."""
    if chunk.shape[1:] != shape[1:]:
        raise ValueError(
            f"{name}: chunk {number} has shape {chunk.shape}, and dask takes its rows to be of shape {shape[1:]}: say "
            "the chunks that map_blocks and the like return"
        )


def _is_small(shape):
    return shape[0] <= SMALL_ROWS and np.prod(shape) <= SMALL_NUMBERS


@dataclass(frozen=True, slots=True, eq=False)
class Chunks:
    """The chunks of a collection: dask's graph, their keys in it, and the rows up to the end of each."""

    graph: dict
    keys: list
    ends: list
    seconds: dict = field(default_factory=dict)  # that a block took in the last pass, by tasks
    builds: set = field(default_factory=set)  # of processes that have worked on them
    clients: set = field(default_factory=set)  # by whom they were worked on
    edges: dict = field(default_factory=dict)  # futures of rows that lie in several chunks, by client and `Cut`

    @classmethod
    def of(cls, data, sizes):
        """Return the chunks of a collection, of sizes that are counted unless they are known."""
        from dask.core import flatten

        keys, raw = list(flatten(data.__dask_keys__())), data.__dask_graph__()
        graph = dict(data.__dask_optimize__(raw, data.__dask_keys__())) if hasattr(data, "dask") else dict(raw)
        missing = [key for key in keys if key not in graph]
        if missing:  # futures of chunks that are there already
            raw = dict(raw)
            graph |= {key: raw[key] for key in missing}
        if sizes is None or np.isnan(sizes).any():
            sizes = dask_scheduler.compute(graph, [(len, key) for key in keys])
        return cls(graph, keys, list(accumulate(map(int, sizes))))

    def span(self, number):
        """Return where a chunk begins and ends."""
        return self.ends[number - 1] if number else 0, self.ends[number]

    def divides(self, start, stop, least):
        """Whether rows lie in several chunks, one of which has so many rows at least."""
        first, last = bisect_right(self.ends, start), bisect_right(self.ends, stop - 1)
        sizes = (high - low for low, high in map(self.span, range(first, last + 1)))
        return last > first and max(sizes) >= least


class Elsewhere(NamedRows):
    """What tasks have of the rows of a collection: their names in messages."""

    def __init__(self, name, shape, columns, ends):
        super().__init__(name, shape, columns)
        self._ends = ends

    def describe_row(self, row, *column):
        """Words for a row, or for a row and a column, for messages."""
        return f"{super().describe_row(row, *column)}{self._in_chunk(row)}"

    def describe_value(self, value, row, *column):
        """Words for a value that should not be there."""
        return f"{super().describe_value(value, row, *column)}{self._in_chunk(row)}"

    def _in_chunk(self, row):
        """Return words for where a row is in its chunk."""
        number, first = find_piece(self._ends, row)
        return f" (row {row - first} of chunk {number})"


class ChunkRows(Elsewhere):
    """Rows of a collection (N,) or (N, D), or some of its columns; `table` is an empty chunk where these are tables."""

    in_memory, is_remote = False, True

    def __init__(self, chunks, name, shape, columns, table=None, index=None, width=None, changes=()):
        super().__init__(name, shape, columns, chunks.ends)
        self.chunks, self._table, self._index, self._changes = chunks, table, index, changes
        self._width = shape[1:] if width is None else width  # before the changes

    def __reduce__(self):
        """Tasks need a source for its words alone."""
        return Elsewhere, (self.name, self.shape, self.columns, self.chunks.ends)

    def select_columns(self, index, vector=False):
        """The rows with some of the columns, by their numbers; a vector of the only one."""
        inner = self._index if self.ndim == 1 else tuple(index)
        inner = inner if self.ndim == 1 or self._index is None else tuple(self._index[j] for j in inner)
        shape = self.shape[:1] if vector else (self.shape[0], len(index))
        columns = None if self.columns is None else tuple(self.columns[j] for j in index)
        return ChunkRows(self.chunks, self.name, shape, columns, self._table, inner)

    def map_rows(self, change, n_features=None):
        """What a function makes of the rows, with as many columns as before unless their number is given."""
        shape = self.shape if n_features is None else (self.shape[0], n_features)
        changes = (*self._changes, change)
        return ChunkRows(self.chunks, self.name, shape, None, self._table, self._index, self._width, changes)

    def first(self, n):
        """The first n rows."""
        shape, rest = (n, *self.shape[1:]), (self._table, self._index, self._width, self._changes)
        return ChunkRows(self.chunks, self.name, shape, self.columns, *rest)

    def check_numbers(self, name):
        """Raise TypeError, naming the column, unless all columns hold numbers."""
        if self._table is not None:
            frames.check_numbers(_chosen(self._table, self._index), name)

    def labels(self, index):
        """An empty column of the table that does not hold numbers; None if it does."""
        return None if self._table is None else FrameRows(_chosen(self._table, self._index), self.name).labels(index)

    def pieces(self, start, stop):
        """Return the keys of the chunks of some rows, and the `Cut` that makes an array of what they hold."""
        keys, parts, row = [], [], start
        while row < stop:
            number, first = find_piece(self.chunks.ends, row)
            high = min(stop, self.chunks.ends[number])
            keys.append(self.chunks.keys[number])
            parts.append((number, self.chunks.ends[number] - first, row - first, high - first))
            row = high
        return keys, Cut((stop - start, *self._width), tuple(parts), self._index, self._changes, self.name)

    def moved(self, graph, spans, scheduler):
        """Return (keys in the graph, what makes an array of them) for each of some runs of rows.

        A client sends chunks as they are. Rows that lie in several are therefore cut out of each where it is, once, and
        what they make is kept by the workers, if that is little of all.
        """
        located = [self.pieces(*span) for span in spans]
        edges = [number for number, (keys, _) in enumerate(located) if len(keys) > 1]
        rows = sum(spans[number][1] - spans[number][0] for number in edges)
        if scheduler.client is None or rows * LEAST_WHOLE > self.shape[0]:
            return located
        new = [number for number in edges if (scheduler.client.id, located[number][1]) not in self.chunks.edges]
        if new:
            own, joined = dict(self.chunks.graph), []
            for number in new:
                keys, cut = located[number]
                token = uuid4().hex
                for position, key in enumerate(keys):
                    own[f"cavity-edge-{token}", position] = cut.only(position), [key]
                joined.append(f"cavity-edges-{token}")
                own[joined[-1]] = cut.rest(), [(f"cavity-edge-{token}", position) for position in range(len(keys))]
            for number, future in zip(new, scheduler.held(own, joined), strict=True):
                self.chunks.edges[scheduler.client.id, located[number][1]] = future
        for number in edges:
            future = self.chunks.edges[scheduler.client.id, located[number][1]]
            located[number] = [scheduler.named(graph, future, None)], whole
        return located

    def fill(self, out, start, state):
        """Fetch the rows from `start` on into out."""
        keys, cut = self.pieces(start, start + len(out))
        out[...] = dask_scheduler.compute(self.chunks.graph, [(cut, keys)])[0]


@dataclass(frozen=True, slots=True)
class Cut:
    """What makes an array of float64, C-contiguous, of the rows of a few chunks; called on a worker."""

    shape: tuple
    parts: tuple  # (number of the chunk, its rows, first row, row after the last) of each
    index: tuple | None  # of columns, all if None
    changes: tuple  # functions that are called on the rows one after the other
    name: str

    def __call__(self, chunks):
        rows = self._rows(chunks)
        for change in self.changes:
            rows = np.require(change(rows), np.float64, "C")
        return rows

    def only(self, number):
        """What cuts the rows out of one of the chunks."""
        *_, low, high = self.parts[number]
        return Cut((high - low, *self.shape[1:]), (self.parts[number],), self.index, (), self.name)

    def rest(self):
        """What makes the array of what `only` has cut."""
        sizes = [high - low for *_, low, high in self.parts]
        parts = tuple((number, size, 0, size) for number, size in enumerate(sizes))
        return Cut(self.shape, parts, None, self.changes, self.name)

    def _rows(self, chunks):
        out, done = None, 0
        for chunk, (number, rows, low, high) in zip(chunks, self.parts, strict=True):
            if len(chunk) != rows:
                raise ValueError(f"{self.name}: chunk {number} has {len(chunk)} rows, not the {rows} it had at first")
            chosen = _chosen(chunk, self.index)
            if self.index is None and chosen.ndim > 1:
                _check_width(self.name, number, chosen, self.shape)
            if isinstance(chosen, np.ndarray):
                chosen = chosen[low:high]
                if len(chunks) == 1 and chosen.dtype == np.float64 and chosen.flags.c_contiguous:
                    return np.require(chosen, requirements="A").reshape(self.shape)
            out = np.empty(self.shape) if out is None else out
            target = out[done : done + high - low].reshape(high - low, *chosen.shape[1:])
            if isinstance(chosen, np.ndarray):
                arrays.copy_real(chosen, target)
            else:
                frames.convert_rows(chosen, low, high, target)
            done += high - low
        return out


def whole(chunks):
    """A `Cut` of what has been cut already."""
    return chunks[0]


def _chosen(chunk, index):
    """Return the columns of a chunk by their numbers, all if there are none."""
    if index is None:
        return chunk
    return chunk[:, list(index)] if isinstance(chunk, np.ndarray) else frames.pick_columns(chunk, list(index))
