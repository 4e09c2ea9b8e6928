"""Graphs of regions, as users have them: pairs, matrices of weights, neighbours by label, polygons."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from cavity.base.arrays import error_of
from cavity.base.errors import missing_extra_error
from cavity.base.frames import find_repeated, join_names
from cavity.base.lazy_scipy import sparse

GRAPH_HELP = (
    "must be pairs of labels (E, 2), a dict of the neighbours of each label, weights of libpysal, or a matrix of "
    "weights with regions="
)


def read_graph(graph, regions=None):
    """Return the labels of regions in order, a tuple, and their weights W (n, n), a symmetric CSC array.

    Parameters
    ----------
    graph : pairs, matrix, mapping, weights of libpysal, or GeoDataFrame
        See `MarkovField`.
    regions : sequence, optional
        Labels of all regions; of a matrix those of its rows.

    Raises
    ------
    ValueError, TypeError
        For what is no graph, naming the regions where it is not.
    """
    graph = _find_contiguity(graph)
    labels = None if regions is None else _check_labels(np.asarray(regions, dtype=object).tolist())
    neighbours = graph if isinstance(graph, Mapping) else getattr(graph, "neighbors", None)
    if neighbours is not None:
        pairs = [(one, other) for one, others in neighbours.items() for other in others]
        labels, W = _build_weights(pairs, [*neighbours, *(labels or ())] if labels is None else labels)
    elif sparse.issparse(graph) or _is_matrix(graph, labels):
        W = _check_matrix(graph, labels)
    else:
        pairs = np.array(graph, dtype=object)
        if pairs.ndim != 2 or pairs.shape[1] != 2:
            raise error_of("graph", f"{GRAPH_HELP}; got {type(graph).__name__} of shape {pairs.shape}")
        labels, W = _build_weights([*pairs.tolist(), *pairs[:, ::-1].tolist()], labels)
    order = sorted(range(len(labels)), key=labels.__getitem__)
    labels, W = tuple(labels[i] for i in order), sparse.csc_array(W[order][:, order])
    _check_weights(W, labels)
    return labels, W


def find_components(W):
    """Return the effects (m,) of each connected component of weights W, a list."""
    number, component = sparse.csgraph.connected_components(W, directed=False)
    return np.split(np.argsort(component, kind="stable"), np.cumsum(np.bincount(component, minlength=number))[:-1])


def _find_contiguity(graph):
    """Return the weights of polygons that touch, in place of a GeoDataFrame of them."""
    if not (hasattr(graph, "geometry") and hasattr(graph, "index")):
        return graph
    try:
        from libpysal.weights import Queen
    except ImportError as error:
        raise missing_extra_error("libpysal for a table of polygons", "areas") from error
    return Queen.from_dataframe(graph, use_index=True)


def _check_labels(labels):
    """Return labels of regions, a list; ValueError or TypeError unless they are different, and texts or numbers."""
    for number, label in enumerate(labels):
        if not isinstance(label, str | int | float | np.number) or label != label:
            raise error_of("regions", f"must have a text or number for each region, got {label!r} in place {number}")
    if find_repeated(labels) is not None:
        raise error_of("regions", f"must have each region once, got {find_repeated(labels)!r} twice")
    if len({isinstance(label, str) for label in labels}) != 1:
        names = join_names(labels) if labels else "none"
        raise error_of("regions", f"must be texts, or numbers, that can be sorted, got {names}")
    return labels


def _is_matrix(graph, labels):
    """Whether an array is one of weights: square, of as many rows as there are labels."""
    shape = np.shape(np.asarray(graph, dtype=object))
    return len(shape) == 2 and shape[0] == shape[1] and (shape[0] > 2 or (labels is not None and len(labels) == 2))


def _check_matrix(graph, labels):
    """Return a matrix of weights as a CSC array."""
    W = sparse.csc_array(graph, dtype=np.float64)
    if labels is None:
        raise error_of("regions", f"must have the labels of the rows of the matrix, {W.shape[0]} of them, got None")
    if W.shape != (len(labels), len(labels)):
        raise error_of("graph", f"must be a matrix (n, n) of the weights of {len(labels)} regions, got shape {W.shape}")
    W.eliminate_zeros()
    return W


def _build_weights(pairs, labels):
    """Return labels and the weights, 1 for each pair; without labels those that the pairs have."""
    paired = dict.fromkeys(label for pair in pairs for label in pair)
    if labels is None:
        labels = paired
    labels = _check_labels(list(dict.fromkeys(labels)))
    number = {label: i for i, label in enumerate(labels)}
    unknown = [label for label in paired if label not in number]
    if unknown:
        names = join_names(labels)
        raise error_of("graph", f"must have pairs of the regions {names}, got one with {unknown[0]!r}")
    ends = np.array([(number[one], number[other]) for one, other in pairs], dtype=np.intp).reshape(-1, 2)
    ends = np.unique(ends, axis=0)
    return labels, sparse.csc_array((np.ones(len(ends)), (ends[:, 0], ends[:, 1])), (len(labels), len(labels)))


def _check_weights(W, labels):
    """Raise ValueError unless weights are positive and symmetric, and no region is its own neighbour."""
    entries = sparse.coo_array(W)
    rows, columns = entries.coords
    bad = np.flatnonzero(~((entries.data > 0.0) & np.isfinite(entries.data)))
    if len(bad):
        one, other = labels[rows[bad[0]]], labels[columns[bad[0]]]
        raise error_of("graph", f"must have positive weights, got {entries.data[bad[0]]:g} of {one!r} and {other!r}")
    loops = np.flatnonzero(rows == columns)
    if len(loops):
        raise error_of("graph", f"must have pairs of different regions, got {labels[rows[loops[0]]]!r} with itself")
    gap = sparse.coo_array(abs(W - W.T))
    if gap.nnz and gap.data.max() > 0.0:
        at = int(np.argmax(gap.data))
        i, j = int(gap.coords[0][at]), int(gap.coords[1][at])
        description = f"got a weight of {W[i, j]:g} from {labels[i]!r} to {labels[j]!r}, and {W[j, i]:g} back"
        raise error_of("graph", f"must be symmetric, {description}")
