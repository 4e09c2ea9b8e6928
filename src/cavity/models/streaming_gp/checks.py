"""The rows that users give a streaming state, checked."""

import os

import numpy as np

from cavity.base.rows import observations, row_vector, row_weights
from cavity.blocks.sources import Source, open_source
from cavity.models.gp.process_posterior import rows_of
from cavity.models.streaming_gp.basis import BLOCK
from cavity.models.streaming_gp.rows import Rows


def checked_rows(model, n_features, X, y, offset, noise_variance, sample_weight):
    """Rows checked, those of weight zero left out; None if there are none."""
    source = paths_in(X)
    if source is None:
        if np.shape(X) in ((0,), (0, n_features)) and np.shape(y)[:1] == (0,):
            return None
        if len(np.shape(X)) == 2 and np.shape(X)[1] != n_features:
            raise ValueError(f"X must have {n_features} columns like the data of the fit, got {np.shape(X)[1]}")
        X = rows_of(X, model.covariance, n_features)
    elif source.n_features != n_features:
        raise ValueError(f"X must have {n_features} columns like the data of the fit, got {source.n_features}")
    n = len(X) if source is None else source.n_rows
    y = paths_in(y, "y", 1).rows() if paths_in(y, "y", 1) is not None else y
    y = observations(model.likelihood, y, n)
    offset = None if offset is None else row_vector(offset, "offset", n)
    noise = model._row_noise(noise_variance, n)
    weights = None if sample_weight is None else row_weights(sample_weight, n, some=False)
    if weights is not None and np.any(weights == 0):
        keep = weights > 0
        if not np.any(keep):
            return None
        X, source = (X if source is None else source.rows())[keep], None
        y, weights = y[keep], weights[keep]
        offset, noise = (None if a is None else a[keep] for a in (offset, noise))
    if weights is not None and np.all(weights == 1):
        weights = None
    return Rows(X if source is None else source, y, offset, weights, noise)


def paths_in(data, name="X", ndim=2):
    """Return data in files, or mapped from one, as a Source; None for other data."""
    first = data[0] if isinstance(data, list | tuple) and len(data) else data
    if isinstance(first, str | os.PathLike) or isinstance(data, np.memmap | Source):
        return open_source(data, name, ndim=(ndim,), block_rows=BLOCK)
    return None
