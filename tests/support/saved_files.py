"""Files of posteriors that were written with other contents, as other versions or a mistake write them."""

import json

import numpy as np

import cavity


def read_contents(path):
    """Return the header of a file and its arrays."""
    with np.load(path) as file:
        arrays = dict(file)
    return json.loads(arrays.pop("header").tobytes()), arrays


def write_contents(path, header, arrays):
    """Write a file of these."""
    header = json.dumps(header | {"arrays": [*arrays]})
    with path.open("wb") as file:
        np.savez(file, header=np.frombuffer(header.encode(), dtype=np.uint8), **arrays)


def load_changed(posterior, folder, change=lambda settings, arrays: None):
    """Return what `cavity.load` makes of the file of a posterior after change(settings, arrays)."""
    path = folder / "changed.npz"
    posterior.save(path)
    header, arrays = read_contents(path)
    change(header["settings"], arrays)
    write_contents(path, header, arrays)
    return cavity.load(path)
