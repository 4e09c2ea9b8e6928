"""Posteriors of many responses as Parquet: a row for each response, and the rest in the metadata of the file."""

import json

import numpy as np

from cavity.base import persistence, records
from cavity.base.build_description import describe_build
from cavity.base.errors import missing_extra_error
from cavity.base.paths import decode_path
from cavity.base.persistence import FILE_FORMAT_VERSION, HEADER_FORM, open_whole_file
from cavity.base.serialization import deserialize

METADATA_KEY = b"cavity"
RESPONSE_AXIS = "G"  # the first one of arrays that are columns
HEADER_SETTINGS = HEADER_FORM | {"others": records.JSON_OBJECT}  # arrays that are no columns


def write(posterior, path):
    """Write a `ManyPosterior` as Parquet, whole or not at all."""
    pyarrow, parquet = _import_pyarrow()
    arrays, settings = posterior.to_arrays()
    columns, others = {}, {}
    table = records.record_of(type(posterior)).table(settings)
    axes = {name.removesuffix("?"): form.axes.split() for name, form in table.items()}
    for name, array in arrays.items():
        if axes[name][0] != RESPONSE_AXIS or array.size == 0:
            others[name] = [array.dtype.str, array.shape, array.ravel().tolist()]
        elif array.ndim == 1:
            columns[name] = pyarrow.array(array)
        else:
            flat = pyarrow.array(np.ascontiguousarray(array).ravel())
            columns[name] = pyarrow.FixedSizeListArray.from_arrays(flat, array.shape[1])
    header = {"kind": posterior.kind, "format": FILE_FORMAT_VERSION, "cavity": persistence.__version__}
    header |= {"build": describe_build(), "settings": settings, "others": others}
    rows = pyarrow.table(columns).replace_schema_metadata({METADATA_KEY: json.dumps(header)})
    with open_whole_file(path) as file:
        parquet.write_table(rows, file)


def read(cls, path):
    """Return the posteriors, a `ManyPosterior`, `cls`, of a file that `write` wrote; ValueError for others."""
    pyarrow, parquet = _import_pyarrow()
    path = decode_path(path)
    try:
        rows = parquet.read_table(path)
        header = json.loads((rows.schema.metadata or {})[METADATA_KEY])
        header = records.check_settings(HEADER_SETTINGS, header)
        arrays = {name: np.array(v, dtype=d).reshape(shape) for name, (d, shape, v) in header["others"].items()}
        arrays |= {name: _to_array(rows.column(name).combine_chunks()) for name in rows.column_names}
        record = records.record_of(cls)
        arrays, settings = records.check(record, arrays, header["settings"])
        return deserialize(record, cls, None, arrays, settings)
    except (ValueError, TypeError, KeyError, pyarrow.ArrowException) as error:
        raise ValueError(f"{path} is damaged, or holds no posteriors written by cavity: {error}") from error


def _to_array(column):
    """Return a column as an array: texts, numbers, or fixed-size lists of these."""
    if hasattr(column, "flatten") and hasattr(column.type, "list_size"):
        return column.flatten().to_numpy(zero_copy_only=False).reshape(len(column), column.type.list_size)
    values = column.to_numpy(zero_copy_only=False)
    return values.astype(str) if values.dtype == object else values


def _import_pyarrow():
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as error:
        raise missing_extra_error("pyarrow", "arrow") from error
    return pyarrow, parquet
