"""Columns that arguments name, taken out of tables in files as out of those in memory."""

from cavity.base import arrays, frames
from cavity.runs.runs import check_here
from cavity.sources import formats
from cavity.sources.sources import Source, opened


def taken(X, given, columns=None, roles=None, *, elsewhere=False):
    """Return `frames.taken` of tables of any kind: those in files are opened, and their columns read that are named.

    Parameters
    ----------
    X, given, columns, roles
        As for `frames.taken`; X may be a path, a list of paths, a collection of dask, or a Source, and values of
        `given` paths of files of one column, or collections.
    elsewhere : bool, default False
        Whether the caller works on collections where they are; TypeError for them if not.

    Returns
    -------
    X : table, array, or Source of numbers
        The other columns; a Source where X is in files.
    values, roles
        As of `frames.taken`, columns of files in memory; those of collections stay where they are, each a Source.
    """
    X = opened(X, "X") if formats.is_unopened(X) or hasattr(X, "__next__") else X
    names = frames.names_of(X) or ()
    given = {argument: _read(argument, value, names) for argument, value in given.items()}
    X, values, roles = frames.taken(X, given, columns, roles)
    if not elsewhere:
        for each in (X, *values):
            check_here(each if isinstance(each, Source) else None)
    if isinstance(X, Source):
        X.check_numbers("X")
    return (
        X,
        tuple(each.rows() if isinstance(each, Source) and each.elsewhere is None else each for each in values),
        roles,
    )


def fetched(value):
    """Return a column of a collection in memory, anything else as it is."""
    if not isinstance(value, Source):
        return value
    value.check_numbers(value.name)
    return value.rows()


def _read(argument, value, names):
    """Return the only column of a file, or an array that is not in memory; what is, or names a column, as it is."""
    named = isinstance(value, str) and value in names
    unread = isinstance(value, Source) or formats.is_file_name(value) or arrays.is_sliced(value)
    if named or not (unread or formats.is_collection(value)):
        return value
    found = opened(value, argument)
    if found.elsewhere is not None:
        return found
    return found.values(0) if found.names and found.n_features == 1 else found
