"""Maps of regions with neighbours: polygons or points that are given, or the graph alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from cavity.base import arrays
from cavity.base.lazy_scipy import sparse
from cavity.base.public_objects import FloatArray
from cavity.plot import display
from cavity.plot.terms import find_built
from cavity.terms.adjacency import find_components
from cavity.terms.graphs import BuiltMarkovField

MAX_LANDMARKS = 400  # regions from which distances along the graph are found, for its layout
MAX_NAMED_REGIONS = 80  # up to so many have their names beside their points


@dataclass(eq=False, repr=False, kw_only=True)
class RegionDisplay(display.Display):
    """The effects of regions with neighbours, a `cavity.terms.MarkovField`, as a map.

    Parameters
    ----------
    term : str
        Name of the term.
    names : tuple
        The regions.
    values : ndarray (n,)
        The mean or the sd of the effect of each, in units of the link.
    kind : {"mean", "sd"}
        Which of them.
    outlines : tuple of list of ndarray (m, 2)
        The rings of the polygons of each region; no rings where it is a point.
    points : ndarray (n, 2)
        The point of each region, of polygons their middle.
    edges : ndarray of int (E, 2) or None
        Pairs of neighbours that are drawn as lines; None where there are outlines.
    is_layout : bool
        Whether points are a layout of the graph, and mean nothing themselves.

    Attributes
    ----------
    ax_, figure_
        Axes and figure of the plot.

    Examples
    --------
    >>> import cavity
    >>> from cavity.plot import RegionDisplay
    >>> counties, about = cavity.data.table("scotland", as_frame=True)
    >>> W = {county: others.split() for county, others in zip(counties["county"], counties["neighbours"])}
    >>> model = cavity.MixedGLM("cases ~ outdoors + icar(county, W)", "poisson", graphs={"W": W})
    >>> posterior = model.fit(counties, exposure="expected")
    >>> drawn = RegionDisplay.from_posterior(posterior, "icar(county, W)")
    >>> drawn.values.shape, drawn.edges.shape, drawn.is_layout
    ((56,), (132, 2), True)
    """

    size: ClassVar[tuple[float, float]] = (6.0, 5.6)
    term: str
    names: tuple[Any, ...]
    values: FloatArray
    kind: str
    outlines: tuple[Any, ...]
    points: FloatArray
    edges: Any
    is_layout: bool

    @classmethod
    def from_posterior(
        cls,
        posterior: Any,
        term: str,
        places: Mapping[Any, Any] | None = None,
        *,
        kind: Literal["mean", "sd"] = "mean",
        ax: Any = None,
        title: str | None = None,
    ) -> RegionDisplay:
        """Draw the effects of regions with neighbours.

        Parameters
        ----------
        posterior : MixedGLMPosterior
            With structured terms.
        term : str
            Its name, one of `structured_terms`.
        places : GeoDataFrame, GeoSeries or mapping, optional
            Where each region is, by its label, the index of a frame: a polygon of shapely, another object with
            ``__geo_interface__``, a geometry of GeoJSON, or the two coordinates of a point. Further regions are
            ignored. Without it the graph is drawn, each region near its neighbours.
        kind : {"mean", "sd"}, default "mean"
            What is drawn: the mean of the term or its sd.
        ax : matplotlib.axes.Axes, optional
            Where to draw; by default in a new figure of pyplot.
        title : str, optional
            Title of the plot.

        Returns
        -------
        RegionDisplay
            The display, drawn.

        Raises
        ------
        ValueError, TypeError
            For a term that is not there or has no graph, regions without a place, naming the first, and places that are
            neither polygons nor points.
        """
        arrays.check_choice(kind, "kind", ("mean", "sd"))
        built = find_built(posterior, term)
        if not isinstance(built, BuiltMarkovField):
            raise arrays.error_of("term", f"must be a term of a graph, got {term!r}: plot(term=...) draws it")
        table, names = posterior.curve(term).columns, built.levels.labels[0]
        pairs = sparse.coo_array(sparse.triu(built.W, k=1))
        edges, outlines = np.stack([pairs.row, pairs.col], axis=1), ((),) * len(names)
        points = arrange_graph(built.W) if places is None else None
        if places is not None:
            outlines, points = read_places(getattr(places, "geometry", places), names)
        display = cls(
            term=term,
            names=names,
            values=np.asarray(table[kind], dtype=np.float64),
            kind=kind,
            outlines=outlines,
            points=points,
            edges=None if any(outlines) else edges,
            is_layout=places is None,
        )
        return display.plot(ax=ax, title=title)

    def _draw(self, axes):
        if self.kind == "mean":
            end = float(np.max(np.abs(self.values))) or 1.0
            look = {"cmap": "RdBu_r", "vmin": -end, "vmax": end}
        else:
            look = {"cmap": "magma", "vmin": 0.0, "vmax": float(np.max(self.values))}
        if self.edges is not None:
            ends = self.points[self.edges]  # (E, 2, 2)
            gap = np.full((len(ends), 1, 2), np.nan)
            axes.plot(*np.concatenate([ends, gap], axis=1).reshape(-1, 2).T, color="gray", lw=0.7, zorder=1)
        is_point = np.array([not rings for rings in self.outlines])
        size = np.clip(6000.0 / len(self.values), 12.0, 160.0)
        dots = axes.scatter(
            *self.points[is_point].T, s=size, c=self.values[is_point], edgecolors="black", linewidths=0.4, **look
        )
        for rings, value in zip(self.outlines, self.values, strict=True):
            if rings:
                draw_polygon(axes, rings, dots.cmap(dots.norm(value)))
        if is_point.all() and len(self.names) <= MAX_NAMED_REGIONS:
            for (x, y), name in zip(self.points, self.names, strict=True):
                axes.annotate(str(name), (x, y), (0, 6), textcoords="offset points", ha="center", fontsize="xx-small")
        label = self.term if self.kind == "mean" else f"sd of {self.term}"
        axes.get_figure().colorbar(dots, ax=axes, label=label)
        axes.set_aspect("equal", adjustable="datalim")
        if self.is_layout:
            axes.set(xticks=[], yticks=[])


def draw_polygon(axes, rings, color):
    """Draw polygons: their outer rings anticlockwise, holes clockwise."""
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path

    closed = [np.concatenate([ring, ring[:1]]) for ring in rings]
    codes = [[Path.MOVETO, *[Path.LINETO] * (len(ring) - 2), Path.CLOSEPOLY] for ring in closed]
    path = Path(np.concatenate(closed), np.concatenate(codes))
    axes.add_patch(PathPatch(path, facecolor=color, edgecolor="black", lw=0.4))
    axes.update_datalim(path.vertices)
    axes.autoscale_view()


def read_places(places, names):
    """Return the rings of the polygon of each region, none where it is a point, and a point of each (n, 2)."""
    if not hasattr(places, "__getitem__") or not hasattr(places, "keys"):
        message = f"must be a GeoDataFrame, or a mapping from labels to places, got {type(places).__name__}"
        raise arrays.error_of("places", message, TypeError)
    labels, outlines, points = set(places.keys()), [], np.empty((len(names), 2))
    for i, name in enumerate(names):
        if name not in labels:
            raise arrays.error_of("places", f"must have a place for each region of the graph, got none for {name!r}")
        rings = read_rings(places[name], name)
        outlines.append(rings if len(rings[0]) > 1 else [])
        points[i] = 0.5 * (rings[0].min(axis=0) + rings[0].max(axis=0))
    return tuple(outlines), points


def read_rings(region, name):
    """Return the rings (m, 2) of a polygon, that of most corners first, or the one point of a place."""
    region = getattr(region, "__geo_interface__", region)
    kind, parts = (region.get("type"), region.get("coordinates")) if isinstance(region, Mapping) else ("Point", region)
    if kind not in ("Point", "Polygon", "MultiPolygon"):
        raise arrays.error_of("places", f"must be polygons or points, got {kind!r} for {name!r}")
    polygons = {"Point": [[[parts]]], "Polygon": [parts]}.get(kind, parts)
    rings = [(np.asarray(ring, dtype=np.float64), k > 0) for polygon in polygons for k, ring in enumerate(polygon)]
    if not rings or any(ring.ndim != 2 or ring.shape[1] < 2 or not np.isfinite(ring).all() for ring, _ in rings):
        raise arrays.error_of("places", f"must have finite coordinates, two of each point, got others for {name!r}")
    return sorted((orient_ring(ring[:, :2], is_hole) for ring, is_hole in rings), key=len, reverse=True)


def orient_ring(ring, is_hole):
    """Return a ring anticlockwise, or clockwise if it is a hole: so matplotlib leaves holes free."""
    x, y = ring.T
    area = np.sum(x * np.roll(y, -1) - y * np.roll(x, -1))
    return ring[::-1] if (area < 0) != is_hole else ring


def arrange_graph(W):
    """Return points (n, 2) of the nodes of a graph, at distances like those along it, components side by side.

    Distances from some nodes to all are scaled to two dimensions (landmark multidimensional scaling).
    """
    points, right = np.zeros((W.shape[0], 2)), 0.0
    for members in sorted(find_components(W), key=len, reverse=True):
        members = np.asarray(members)
        own = arrange_component(W[members][:, members])
        own = own - own.min(axis=0)
        points[members] = own + [right, 0.0]
        right += own[:, 0].max() + 1.5
    return points


def arrange_component(W):
    """Return points (n, 2) of the nodes of a connected graph."""
    n = W.shape[0]
    if n == 1:
        return np.zeros((1, 2))
    landmarks = np.unique(np.linspace(0, n - 1, min(n, MAX_LANDMARKS)).astype(np.intp))
    squares = sparse.csgraph.shortest_path(W, unweighted=True, indices=landmarks) ** 2  # (k, n)
    inner = squares[:, landmarks]
    centred = -0.5 * (inner - inner.mean(axis=0) - inner.mean(axis=1)[:, None] + inner.mean())
    values, vectors = np.linalg.eigh(centred)
    values, vectors = np.maximum(values[:-3:-1], 1e-12), vectors[:, :-3:-1]
    vectors = vectors * np.sign(vectors[np.argmax(np.abs(vectors), axis=0), np.arange(vectors.shape[1])])
    out = -0.5 * (squares - inner.mean(axis=1)[:, None]).T @ (vectors / np.sqrt(values))
    return np.pad(out, ((0, 0), (0, 2 - out.shape[1])))
