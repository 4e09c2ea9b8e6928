"""Parquet files, whole or in batches of rows. Needs the arrow extra (pyarrow), which is imported only here."""

from cavity.base.errors import missing_extra
from cavity.cli.table import Columns, places

READ = 1 << 14  # rows that are read together
DAMAGE = (OSError, ValueError, LookupError, OverflowError)  # what else pyarrow raises at damaged files and values


def parts(path, sizes, skip=0):
    """Yield the parts of a .parquet file, as readers do; ValueError if it is not readable."""
    try:
        from pyarrow import ArrowException, parquet
    except ImportError as error:
        raise missing_extra("pyarrow", "arrow") from error
    try:
        with parquet.ParquetFile(path) as file:
            total = file.metadata.num_rows
            if total:
                yield from _batches(path, file, total, sizes, skip)
    except (ArrowException, *DAMAGE) as error:
        raise ValueError(f"{path}: not a readable Parquet file ({error})") from error
    if not total:
        raise ValueError(f"{path}: the file holds no rows")


def _batches(path, file, total, sizes, skip):
    """Batches of the wanted lengths; those that pyarrow reads end where the row groups of the file end."""
    from pyarrow import Table

    names = file.schema_arrow.names
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ValueError(f"two columns are called {twice!r}")
    low, waiting, count, rows = 0, [], 0, next(sizes) or total
    for batch in file.iter_batches(READ):
        drop = min(max(skip - low, 0), len(batch))
        low, count = low + len(batch), count + len(batch) - drop
        waiting.append(batch.slice(drop))
        while count >= rows or (low == total and count):
            known = Table.from_batches(waiting)
            yield _columns(path, known.slice(0, rows), low - count), low / total
            rest = known.slice(rows)
            waiting, count, rows = rest.to_batches(), len(rest), next(sizes) or total
    if low != total:
        raise ValueError(f"it says that it has {total} rows, and has {low}")


def _columns(path, part, first):
    """Columns of an Arrow table whose rows begin with number `first`."""
    cells = dict(zip(part.column_names, map(_cells, part.combine_chunks().columns), strict=True))
    return Columns(str(path), cells, places(len(part), first))


def _cells(column):
    """Return a column of an Arrow table as text, or as numbers with nan for what is missing."""
    from pyarrow import types

    kind = column.type
    if types.is_dictionary(kind):
        return _cells(column.cast(kind.value_type))
    if types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind) or types.is_decimal(kind):
        return column.cast("float64", safe=False).to_numpy().astype(float)  # integers above 2^53 are rounded
    return ["" if value is None else str(value) for value in column.to_pylist()]
