"""Tables with named columns, and their columns, as pandas, polars and Arrow have them: none of these is imported here.

A table is known by what it can do, its types by their names. Columns are turned into numbers one by one, so that
truth values, integers, nullable and Arrow-backed numbers may stand side by side.
"""

import re

import numpy as np

NUMBER_TYPES = re.compile(r"(sparse\[)?(u?int(?!128)\d|float|double|halffloat|bool|decimal|null)")
REFUSED_COLUMN_TYPES = (  # kinds of columns that are no numbers, and what to do about them
    (
        re.compile("categor|dictionary|enum"),
        "categories",
        "make one column of 0 and 1 for each category but one, as pandas.get_dummies(frame, drop_first=True) does, or "
        "give their codes if the order counts",
    ),
    (
        re.compile("str(?!uct)|text|utf8|large_str|large_utf8"),
        "text",
        "make one column of 0 and 1 for each value but one, as pandas.get_dummies(frame, drop_first=True) does, or "
        "leave it out",
    ),
    (
        re.compile("date|time|duration|month|period"),
        "dates or times",
        "turn them into numbers, for example days since a first day, or leave them out",
    ),
    (re.compile(""), "other values", "turn them into numbers, for example with astype(float), or leave them out"),
)
SHOWN_AS_MISSING = ("None", "nan", "NaT", "<NA>")  # how missing entries are shown
DATE_TYPE_NAMES = re.compile("date|timestamp")  # how types of dates begin
DATE_AS_TEXT = re.compile(r"\d{4}-\d\d?-\d\d?")
TURN_TEXT_INTO_DAYS = "turn them into numbers, as days since a first day; pandas.to_datetime makes dates of text"
CLASSES_NEEDED_HINT = "labels need a likelihood of classes, probit for two of them, ordered-probit for ordered ones"
MAX_NUMBERS_CONVERTED_AT_ONCE = 1 << 20  # most numbers of columns that are turned into rows together, 8 MB
MAX_NAMES_SHOWN = 8  # most names in a message
LEVELS_ROLE = "levels of "  # and a column of categories: its columns of 0 and 1, first that of the base level, not in X
ROLES_NEEDED_AGAIN = ("offset", "exposure")  # what predictions need again where a fit had it


def names_of(X):
    """The names of the columns of a table as strings, or None for anything else."""
    if hasattr(X, "block_rows"):  # a source, as they are in files
        return X.names
    if hasattr(X, "column_names") and hasattr(X, "columns"):  # Arrow
        return tuple(map(str, X.column_names))
    if (hasattr(X, "iloc") or hasattr(X, "get_columns")) and hasattr(X, "columns"):  # pandas, polars
        return tuple(map(str, X.columns))
    return None


def find_repeated(names):
    """The first of some names that is there twice, None if there is none."""
    earlier_names = set()
    return next((name for name in names if name in earlier_names or earlier_names.add(name)), None)


def take_only_column(table):
    """Return the column of a table that has only one; else the table."""
    if table is None or isinstance(table, np.ndarray | str):  # nearly always
        return table
    return get_column_at(table, 0) if len(names_of(table) or ()) == 1 else table


def name_of(column):
    """Return the name of a column of a table, or of the only one of a table, in a tuple; None if it has none."""
    names = names_of(column)
    if names is not None:
        return names if len(names) == 1 else None
    name = getattr(column, "name", None) if hasattr(column, "to_numpy") else None
    return None if name is None or name == "" else (str(name),)


def take_columns(X, arguments, columns=None, roles=None):
    """Take out of a table the columns that arguments name; what is left is X.

    Parameters
    ----------
    X : table, or anything else
        The X of a fit, or of a method of a posterior.
    arguments : dict
        Those "y", "sample_weight", "offset", ... with their values: arrays, None, or the name of a column; "y"
        of shape (N, 2) as a list of two names.
    columns, roles : optional
        Those of the posterior. What its fit took from a column is taken from there again, unless another value is
        given; columns of other arguments are left out.

    Returns
    -------
    X : table
        The other columns, in the order of the fit.
    values : tuple
        Those of `arguments`, with columns in place of names.
    roles : dict of str to str or tuple, or None
        The names of columns by arguments, those of the fit included; None if there are none.

    Raises
    ------
    ValueError
        For names of columns that are not there, or that are given where X has no names; for a value whose index is that
        of X in another order, as rows go by position.
    """
    if arguments.get("y", "") is None and "y" not in (roles or {}):
        raise TypeError("y must hold an observation for each row, or be the name of a column of X; got None")
    if type(X) is np.ndarray and all(value is None or type(value) is np.ndarray for value in arguments.values()):
        return X, tuple(arguments.values()), roles  # nearly always
    names, roles = names_of(X), roles or {}
    arguments = {argument: take_only_column(value) for argument, value in arguments.items()}
    if names is None:
        for argument, value in arguments.items():
            if isinstance(value, str):
                to_numbers(X, "X")  # TypeError for a lazy frame, or a dict
                raise ValueError(
                    f"{argument}={value!r} is the name of a column, but X ({type(X).__name__}) has none: give a data "
                    f"frame as X, or an array as {argument}"
                )
        return X, tuple(arguments.values()), roles or None
    values, new_roles = dict(arguments), {}
    for argument, value in arguments.items():
        _check_order(X, argument, value)
        remembered = value is None and argument in roles
        role_columns = _match_names(argument, roles[argument] if remembered else value, names, len(X))
        missing, double = ([column for column in role_columns if names.count(column) == n] for n in (0, 2))
        if missing and remembered and argument in ROLES_NEEDED_AGAIN:
            message = f"the {argument} of the fit, or give {argument}"
            raise ValueError(f"X must have the column {join_names(missing)}, {message}; it has {join_names(names)}")
        if missing and remembered:
            continue
        if missing or double:
            message = (
                f"no column {join_names(missing)}; it has {join_names(names)}"
                if missing
                else f"two columns {join_names(double)}"
            )
            raise ValueError(f"{argument}={value!r}: X has {message}")
        if role_columns:
            index = [names.index(column) for column in role_columns]
            values[argument] = pick_columns(X, index) if len(index) > 1 else get_column_at(X, *index)
            new_roles[argument] = role_columns[0] if len(role_columns) == 1 else role_columns
    out = {column for role in (new_roles | roles).values() for column in ((role,) if isinstance(role, str) else role)}
    out -= set(columns or ())
    feature_index = [j for j, column in enumerate(names) if column not in out]
    if out and not feature_index:
        raise ValueError(f"X must have columns beside {join_names(names)}, which other arguments take")
    X = X if len(feature_index) == len(names) else pick_columns(X, feature_index)
    return order_columns(X, columns), tuple(values.values()), new_roles | roles or None


def _check_order(X, argument, value):
    """Raise ValueError if rows of pandas have the labels of those of X, in another order."""
    if not (hasattr(X, "iloc") and hasattr(value, "iloc")) or len(X) != len(value) or X.index.equals(value.index):
        return
    if value.index.isin(X.index).all():
        raise ValueError(
            f"{argument} has the index of X in another order, and rows go by position: give {argument}.loc[X.index], "
            f"or {argument}.to_numpy() if they belong together as they are"
        )


def _match_names(argument, value, names, n):
    """Return the names of columns that the value of an argument is, as a tuple, empty if it is no name."""
    if isinstance(value, str):
        return (value,)
    if isinstance(value, int | tuple) and str(value) in names:  # as a frame calls them whose names are no strings
        return (str(value),)
    pair = argument == "y" and isinstance(value, list | tuple) and len(value) == 2
    if pair and all(isinstance(item, str) for item in value) and (n != 2 or set(value) <= set(names)):
        return tuple(value)
    return ()


def order_columns(X, columns, name="X"):
    """Return the columns of X that a fit had, in the order of the fit, if both have names; else X as it is.

    Raises
    ------
    ValueError
        Naming the columns that are missing.
    """
    names = names_of(X)
    if names is None or columns is None or names == columns:
        return X
    for labels, whose in (([column for column in names if column in columns], name), (columns, "the fit")):
        double = find_repeated(labels)
        if double is not None:
            raise ValueError(f"{name} must have the columns of the fit, but {whose} has two columns {double!r}")
    missing = [column for column in columns if column not in names]
    if missing:
        raise ValueError(
            f"{name} must have the columns of the fit: {join_names(missing)} missing; there is {join_names(names)}"
        )
    return pick_columns(X, [names.index(column) for column in columns])


def check_same_names(names, others, kind="columns"):
    """Return the names that two posteriors share, where one has any; ValueError if they differ, in names or order."""
    if names is not None and others is not None and names != others:
        raise ValueError(f"other must be of the {kind} {join_names(names)}, in this order, got {join_names(others)}")
    return others if names is None else names


def describe_column(j, columns=None):
    """Return the description of a column of X: its name, or else its number, which counts from 0 like those of rows."""
    return f"column {columns[j]!r}" if columns else f"column {j} (counted from 0)"


def name_coefficients(columns, n, intercept=False):
    """Return the names of n weights: "intercept" for the first if there is one, then the columns, or x1, x2, ..."""
    first = ("intercept",) if intercept else ()
    return first + (tuple(f"x{j + 1}" for j in range(n - len(first))) if columns is None else columns)


def index_of(table):
    """Return the index of a pandas table, None of anything else."""
    return table.index if hasattr(table, "iloc") else None


def make_data_frame(columns, index=None):
    """Return columns by names as a pandas data frame; ImportError says how to install pandas."""
    try:
        import pandas
    except ImportError as error:
        raise ImportError("this needs pandas, which is not installed; run: pip install pandas") from error
    return pandas.DataFrame(columns, index=index)


def to_numbers(value, name):
    """Return a table as an array (N, D) and a column as one (N,), nan for what is missing; other values as they are.

    Raises
    ------
    TypeError
        Naming the column that holds no numbers, and what to do about it.
    """
    if isinstance(value, np.ndarray | float | int | list):  # nearly always
        return value
    if hasattr(value, "collect") and hasattr(value, "collect_schema"):
        cure = "call its method collect, or sink_parquet and give the path"
        raise TypeError(f"{name} must be data, got a lazy frame ({type(value).__name__}); {cure}")
    if isinstance(value, dict):
        cure = f"give pandas.DataFrame({name}), or a formula where the model takes one, which finds columns in a dict"
        raise TypeError(f"{name} must be an array or a data frame, got a dict of columns; {cure}")
    if not is_table(value):
        return value
    check_numbers(value, name)
    out = to_uniform_array(value, copy=None)
    return convert_rows(value) if out is None else out


def convert_dates(X):
    """Return X with dates as days since 1970-01-01 in UTC, nan for missing ones; anything else as it is.

    Parameters
    ----------
    X : ndarray or table
        An array of datetime64, or columns of dates beside columns of numbers.

    Returns
    -------
    ndarray (N, D) or as X
        An array of float64 where there are dates.

    Raises
    ------
    TypeError
        For columns of neither dates nor numbers beside dates.
    """
    if isinstance(X, np.ndarray):
        return _to_days(X) if X.dtype.kind == "M" else X
    names = names_of(X)
    if names is None or hasattr(X, "block_rows"):
        return X
    columns = list(columns_of(X, range(len(names))))
    are_dates = np.array([DATE_TYPE_NAMES.match(_type_word(column)) is not None for column in columns])
    if not are_dates.any():
        return X
    out = np.empty(shape_of(X))
    for j in np.flatnonzero(are_dates):
        out[:, j] = _to_days(columns[j])
    if not are_dates.all():
        rest = np.flatnonzero(~are_dates).tolist()
        out[:, rest] = to_numbers(pick_columns(X, rest), "X")
    return out


def _to_days(dates):
    """Days since 1970-01-01 of an array or a column of dates."""
    since = np.asarray(dates, dtype="datetime64[us]") - np.datetime64(0, "us")
    return since / np.timedelta64(1, "D")


def is_table(value):
    """Whether a value is a table, or a column of one whose numbers are not NumPy's."""
    dtype = dtype_of(value)
    return names_of(value) is not None or (
        dtype is not None and hasattr(value, "to_numpy") and not _is_plain(dtype) and not isinstance(value, np.ndarray)
    )


def check_numbers(table, name):
    """Raise TypeError for a table or a column that does not hold numbers, naming the column and what to do about it."""
    names = names_of(table)
    double = find_repeated(names or ())
    if double is not None:
        raise ValueError(f"{name} must have columns of different names, got two of the name {double!r}; rename one")
    columns = [table] if names is None else columns_of(table, range(len(names)))
    for j, column in enumerate(columns):
        dtype = dtype_of(column)
        kind = None if _is_plain(dtype) else find_refusal(column)
        if kind is not None:
            what, cure = kind
            text = f"dtype {dtype} ({what})" if names is None else f"{what} in column {names[j]!r} (dtype {dtype})"
            cure = CLASSES_NEEDED_HINT if name == "y" and what in ("categories", "text") else cure
            raise TypeError(f"{name} must hold real numbers, got {text}; {cure}")


def to_uniform_array(table, copy=False):
    """Return the numbers of a pandas frame of one of NumPy's types in that type, None for others; copy=False: a view.

    Without a copy there is one only where the frame has all columns in one array.
    """
    dtypes = set(table.dtypes) if hasattr(table, "iloc") and names_of(table) else ()
    if len(dtypes) != 1 or not _is_plain(*dtypes):
        return None
    if copy is False and not np.may_share_memory(np.asarray(table.iloc[:1]), table.iloc[:, 0].to_numpy()):
        return None  # several arrays, which pandas before 3 would copy all the same
    return np.asarray(table)


def shape_of(table):
    """Return the shape (N, D) of a table, (N,) of a column."""
    names = names_of(table)
    return (len(table),) if names is None else (len(table), len(names))


def convert_rows(table, start=0, stop=None, out=None):
    """Return some rows of a checked table (n, D) or column (n,) as float64, in `out` if given; nan is missing."""
    stop = len(table) if stop is None else stop
    out = np.empty((stop - start, *shape_of(table)[1:])) if out is None else out
    step = max(1, MAX_NUMBERS_CONVERTED_AT_ONCE // max(1, *out.shape[1:], 1))
    for low in range(start, stop, step):
        high = min(low + step, stop)
        rows = table.iloc[low:high] if hasattr(table, "iloc") else table.slice(low, high - low)
        columns = [rows] if out.ndim == 1 else columns_of(rows, range(out.shape[1]))
        by_columns = np.empty((1 if out.ndim == 1 else out.shape[1], high - low))  # turned at once: faster
        with np.errstate(over="ignore", invalid="ignore"):  # what float64 cannot hold becomes infinite
            for column, target in zip(columns, by_columns, strict=True):
                target[:] = _convert_column(column, dtype_of(column))
        out[low - start : high - start] = by_columns.T.reshape(high - low, *out.shape[1:])
    return out


def _convert_column(column, dtype):
    """A column of numbers as an array."""
    if hasattr(dtype, "na_value"):  # an extension type of pandas
        return column.to_numpy(dtype=np.float64, na_value=np.nan)
    array = np.asarray(column)
    return array.astype(np.float64) if array.dtype.kind == "O" else array  # None is missing, a Decimal a number


def get_column_at(table, j):
    """Return a column of a table, by its number."""
    return next(columns_of(table, [j]))


def columns_of(frame, index):
    """Yield some columns of a table, by their numbers."""
    if hasattr(frame, "block_rows"):  # a source
        return (frame.values(j) if not frame.is_remote else frame.column(j) for j in index)
    if hasattr(frame, "iloc"):
        return (frame.iloc[:, j] for j in index)
    columns = frame.get_columns() if hasattr(frame, "get_columns") else frame.columns
    return (columns[j] for j in index)


def pick_columns(frame, index):
    """A table with some columns of another, by their numbers."""
    if hasattr(frame, "block_rows"):  # a source
        return frame.columns(index)
    if hasattr(frame, "iloc"):
        return frame.iloc[:, index]
    return frame[:, index] if hasattr(frame, "get_columns") else frame.select(index)


def dtype_of(column):
    """The type of the entries of a column, None for what is none."""
    return getattr(column, "dtype", getattr(column, "type", None))


def has_numbers(column):
    """Whether the type of a column is one of numbers or truth values, nullable ones included."""
    dtype = dtype_of(column)
    return _is_plain(dtype) or find_refusal(column) is None


def _is_plain(dtype):
    """Whether a type is one of NumPy's real numbers."""
    return isinstance(dtype, np.dtype) and dtype.kind in "biuf"


def find_refusal(column):
    """What a column holds if that is no numbers, and what to do about it; else None."""
    if NUMBER_TYPES.match(str(dtype_of(column)).lower()):
        return None
    name = _type_word(column)
    kind = next((what, cure) for pattern, what, cure in REFUSED_COLUMN_TYPES if pattern.match(name))
    is_date = kind[0] == "text" and DATE_AS_TEXT.match(str(_first_value(column)))
    return ("dates as text", TURN_TEXT_INTO_DAYS) if is_date else kind


def _type_word(column):
    """The type of the entries of a column in lower case; that of the first one if they are Python's objects."""
    name = str(dtype_of(column)).lower()
    return type(_first_value(column)).__name__.lower() if name == "object" else name


def _first_value(column):
    """The first entry of a column that is not missing."""
    return next((value for value in column if str(value) not in SHOWN_AS_MISSING), None)


def join_names(names):
    """The first of several names, in quotes."""
    shown = ", ".join(map(repr, names[:MAX_NAMES_SHOWN])) or "none"
    return f"{shown} and {len(names) - MAX_NAMES_SHOWN} more" if len(names) > MAX_NAMES_SHOWN else shown
