"""What decides the bits of a fit: its model, options and data; and messages about what differs between two fits.

Of data count the shape, the names of the columns, the sizes of files and a digest of their rows: of all where they are
few, of runs at equal distances where they are many.
"""

import json
import os
from dataclasses import fields, is_dataclass
from hashlib import blake2b

import numpy as np

MAX_COMPARED_RUNS = 16  # of rows that are compared; each may cost the reading of a whole row group
NUMBERS_PER_RUN = 1 << 16  # in a run
MAX_LISTED_NUMBERS = 16  # numbers of a setting that are listed; of more the digest is compared
DIGEST_BYTES = 16
MAX_VALUE_CHARACTERS = 60  # of a value, in messages
MAX_NAMED_DIFFERENCES = 5  # differences that a message names
ENCLOSING_PATHS = (("model",), ("options",))  # groups of settings that messages do not name
OPTIONS_WITHOUT_EFFECT = ("n_threads", "callback", "job")  # options on which results do not depend


def compute_fingerprint(model, data, **settings):
    """Return what decides the bits of a fit, as JSON has it.

    Parameters
    ----------
    model : object
        The settings of the model.
    data : dict
        Arrays, sparse matrices and sources of rows, by the names of arguments; None for those not given.
    **settings : object
        Options and others; of records count the fields that decide anything.

    Returns
    -------
    dict
        For `describe_differences`.
    """
    fingerprint = {"model": _encode(model), "settings": {name: _encode(value) for name, value in settings.items()}}
    fingerprint["data"] = {name: _fingerprint_data(value) for name, value in data.items() if value is not None}
    return json.loads(json.dumps(fingerprint))


def _encode(value):
    """Return a setting as JSON has it, or what stands for it."""
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return float(value)
        case np.generic():
            return value.item()
        case np.ndarray():
            listed = value.size <= MAX_LISTED_NUMBERS and value.dtype.kind in "fiubU"
            return value.tolist() if listed else {"shape": list(value.shape), "numbers": compute_digest([value])}
        case np.random.Generator():
            return {"state": compute_digest([json.dumps(value.bit_generator.state, default=str)])}
        case list() | tuple():
            return [_encode(item) for item in value]
        case set() | frozenset():
            return sorted(map(str, value))
        case dict():
            return {str(name): _encode(item) for name, item in value.items() if name not in OPTIONS_WITHOUT_EFFECT}
    if hasattr(value, "__dask_tokenize__"):
        from dask.base import tokenize

        return {"kind": type(value).__qualname__, "numbers": tokenize(value)}
    if is_dataclass(value) and not isinstance(value, type):
        parts = {f.name: getattr(value, f.name) for f in fields(value) if f.name not in OPTIONS_WITHOUT_EFFECT}
    else:
        parts = getattr(value, "__dict__", {}) if not callable(value) else {}
    kind = value if hasattr(value, "__qualname__") else type(value)
    return {"kind": kind.__qualname__} | {name: _encode(part) for name, part in parts.items()}


def _fingerprint_data(data):
    """Return what is compared of data."""
    if hasattr(data, "indptr"):  # a sparse matrix
        parts = {name: _fingerprint_data(getattr(data, name)) for name in ("indptr", "indices", "data")}
        return {"shape": list(data.shape)} | {name: part["numbers"] for name, part in parts.items()}
    n, width = data.shape[0], int(np.prod(data.shape[1:]))
    rows = getattr(data, "rows", lambda start, stop: data[start:stop])
    length = max(1, NUMBERS_PER_RUN // max(width, 1))
    if n <= MAX_COMPARED_RUNS * length:
        runs = [(0, n)]
    else:
        starts = (n - length) * np.arange(MAX_COMPARED_RUNS) // (MAX_COMPARED_RUNS - 1)
        runs = [(start, start + length) for start in starts.tolist()]
    description = {"shape": list(data.shape), "names": _encode(getattr(data, "names", None))}
    return description | {"bytes": _file_sizes(data), "numbers": compute_digest(np.asarray(rows(*run)) for run in runs)}


def _file_sizes(data):
    """Return the sizes of the files that data are in, None if they are in none."""
    paths = [getattr(part, "absolute_path", None) for part in getattr(data, "parts", ())]
    if not paths or None in paths:
        return None
    return [os.stat(path).st_size if os.path.isfile(path) else None for path in paths]


def compute_digest(parts):
    """Return the digest of arrays and texts, in hexadecimal digits."""
    digest = blake2b(digest_size=DIGEST_BYTES)
    for part in parts:
        if isinstance(part, str):
            digest.update(part.encode())
        else:
            digest.update(f"{part.dtype.kind}{part.dtype.itemsize}{part.shape}".encode())
            digest.update(np.ascontiguousarray(part))
    return digest.hexdigest()


def describe_differences(before, now):
    """Return messages about what differs between two fingerprints.

    Parameters
    ----------
    before, now : dict
        What `compute_fingerprint` returned.

    Returns
    -------
    list of str
        As "tol was 1e-10, is 1e-08" and "X had 1000 rows, has 1001"; empty if nothing does.
    """
    differences = [*_compare_settings(before["model"], now["model"], ("model",))]
    if before["model"]["kind"] != now["model"]["kind"]:
        return differences
    differences += _compare_settings(before["settings"], now["settings"], ())
    for name in sorted(before["data"].keys() | now["data"].keys()):
        differences += _compare_data(name, before["data"].get(name), now["data"].get(name))
    n_unnamed = len(differences) - MAX_NAMED_DIFFERENCES
    return [*differences[:MAX_NAMED_DIFFERENCES], f"and {n_unnamed} more"] if n_unnamed > 0 else differences


def _compare_settings(before, now, path):
    """Yield messages about what differs in a setting, or in settings within it."""
    if before == now:
        return
    name = ".".join(path[1:] if path[:1] in ENCLOSING_PATHS and len(path) > 1 else path)
    if not (isinstance(before, dict) and isinstance(now, dict)) or before.get("kind") != now.get("kind"):
        kinds = [side.get("kind", "given") if isinstance(side, dict) else side for side in (before, now)]
        yield _describe(name, *kinds)
    elif "numbers" in before or "numbers" in now:
        yield f"{name} has other numbers"
    elif "state" in before:
        yield f"{name} was in another state"
    else:
        for part in {**before, **now}:
            yield from _compare_settings(before.get(part), now.get(part), (*path, part))


def _describe(name, before, now, was="was", is_now="is"):
    """Return the message about a setting whose value differs."""
    before, now = f"{before}", f"{now}"
    if max(len(before), len(now)) > MAX_VALUE_CHARACTERS:
        return f"{name} has other values"
    return f"{name} {was} {before}, {is_now} {now}"


def _compare_data(name, before, now):
    """Return a list of at most one message about what differs in data."""
    if before is None or now is None:
        return [f"{name} was {'not given' if before is None else 'given'}, is {'given' if before is None else 'not'}"]
    for part, unit in zip(range(max(len(before["shape"]), len(now["shape"]))), ("rows", "columns"), strict=False):
        size_before, size_now = (side["shape"][part] if part < len(side["shape"]) else None for side in (before, now))
        if size_before != size_now:
            return [f"{name} had {size_before or 'no'} {unit}, has {size_now or 'none'}"]
    if before.get("names") != now.get("names"):
        return [_describe(f"names of the columns of {name}", before.get("names"), now.get("names"), "were", "are")]
    if before.get("bytes") and now.get("bytes") and before["bytes"] != now["bytes"]:
        return [f"{name}: its files had other sizes"]
    same = all(before.get(part) == now.get(part) for part in ("numbers", "indptr", "indices", "data"))
    return [] if same else [f"{name} has other numbers"]
