"""Maps of regions: values of effects, polygons with holes, points, layouts of graphs, and what is refused."""

from types import SimpleNamespace

import numpy as np
import pytest
from support.tolerances import SOLVES

import cavity
from cavity.plot import RegionDisplay, regions
from cavity.plot.regions import arrange_graph, read_rings
from cavity.terms import MarkovField

FigureCanvasAgg = pytest.importorskip("matplotlib.backends.backend_agg").FigureCanvasAgg
LABELS = ["a", "b", "c", "d", "e"]
PAIRS = [("a", "b"), ("b", "c"), ("c", "d"), ("d", "a")]  # e is an island
LINE = {"type": "LineString", "coordinates": [(0.0, 0.0), (1.0, 1.0)]}
SQUARE = [(0.0, 0.0), (2.0, 0.0), (2.0, 2.0), (0.0, 2.0)]
HOLE = [(0.5, 0.5), (1.5, 0.5), (1.5, 1.5), (0.5, 1.5)]  # in the direction of the square, as shapely may have it


@pytest.fixture(scope="module", params=["icar", "bym2"])
def posterior(request):
    region = np.repeat(LABELS, 8)
    y = np.random.default_rng(0).poisson(np.repeat([1.0, 2.0, 5.0, 3.0, 8.0], 8))
    field = MarkovField("region", PAIRS, request.param, LABELS)
    priors = {"sd": cavity.priors.HalfNormal(1.0)}
    if request.param == "bym2":
        priors["phi"] = cavity.priors.Beta(0.5, 0.5)
    return cavity.MixedGLM([field], "poisson", priors=priors).fit(np.ones((40, 1)), y, groups={"region": region})


def shift(ring, x):
    return [(a + x, b) for a, b in ring]


def test_values_are_those_of_the_curve(posterior):
    (term,) = posterior.structured_terms
    places = {label: (float(k), 0.0) for k, label in enumerate(LABELS)} | {"elsewhere": (9.0, 9.0)}
    for kind in ("mean", "sd"):
        drawn = RegionDisplay.from_posterior(posterior, term, places, kind=kind)
        np.testing.assert_array_equal(drawn.values, posterior.curve(term).columns[kind])
        assert drawn.names == tuple(LABELS)
        np.testing.assert_array_equal(drawn.points[:, 0], range(5))
        assert drawn.edges.tolist() == [[0, 1], [1, 2], [0, 3], [2, 3]] or len(drawn.edges) == 4
        assert not drawn.is_layout
    assert drawn.figure_.axes[1].get_ylabel() == f"sd of {term}"


def test_polygons_have_holes_and_several_parts(posterior):
    (term,) = posterior.structured_terms
    places = {label: {"type": "Polygon", "coordinates": [shift(SQUARE, 3.0 * k)]} for k, label in enumerate(LABELS)}
    parts = [[SQUARE, HOLE], [shift(SQUARE, -3.0)]]
    places["a"] = SimpleNamespace(__geo_interface__={"type": "MultiPolygon", "coordinates": parts})
    places["e"] = (20.0, 1.0)
    drawn = RegionDisplay.from_posterior(posterior, term, SimpleNamespace(geometry=places))
    assert [len(rings) for rings in drawn.outlines] == [3, 1, 1, 1, 0]
    assert drawn.edges is None
    patches = drawn.ax_.patches
    assert len(patches) == 4
    drawn.figure_.canvas = FigureCanvasAgg(drawn.figure_)
    drawn.figure_.canvas.draw()
    pixels = np.asarray(drawn.figure_.canvas.buffer_rgba())

    def color_at(x, y):
        column, row = drawn.ax_.transData.transform((x, y)).round().astype(int)
        return tuple(pixels[len(pixels) - row, column, :3] / 255.0)

    assert color_at(1.0, 1.0) == (1.0, 1.0, 1.0)  # the hole
    for x, y in ((0.25, 0.25), (-2.0, 1.0)):
        np.testing.assert_allclose(color_at(x, y), patches[0].get_facecolor()[:3], atol=1 / 255)
    colors = [patch.get_facecolor() for patch in patches]
    order = np.argsort(drawn.values[:4])
    assert colors[order[0]][2] > colors[order[-1]][2]  # low values are blue


def test_frames_of_geopandas(posterior):
    geopandas, shapely = pytest.importorskip("geopandas"), pytest.importorskip("shapely")
    squares = [shapely.box(x, 0.0, x + 1.0, 1.0) for x in range(6)]
    frame = geopandas.GeoDataFrame({"rate": range(6)}, geometry=squares, index=[*LABELS[::-1], "elsewhere"])
    drawn = RegionDisplay.from_posterior(posterior, posterior.structured_terms[0], frame)
    assert [np.min(rings[0], axis=0).tolist() for rings in drawn.outlines] == [[4.0 - x, 0.0] for x in range(5)]


def test_layouts_have_distances_of_the_graph(posterior):
    (term,) = posterior.structured_terms
    drawn = RegionDisplay.from_posterior(posterior, term)
    assert drawn.is_layout
    distance = np.linalg.norm(drawn.points[:, None] - drawn.points, axis=2)
    ring, across = distance[[0, 1, 2, 3], [1, 2, 3, 0]], distance[[0, 1], [2, 3]]
    np.testing.assert_allclose(ring, ring[0], rtol=SOLVES)
    np.testing.assert_allclose(across, np.sqrt(2.0) * ring[0], rtol=SOLVES)
    assert distance[4, :4].min() > 1.0  # the island


def test_a_path_is_laid_out_on_a_line(monkeypatch):
    n = 90
    monkeypatch.setattr(regions, "MAX_LANDMARKS", 40)
    W = MarkovField("r", [(i, i + 1) for i in range(n - 1)], "icar", range(n)).graph
    points = arrange_graph(W)
    np.testing.assert_allclose(np.abs(np.diff(points[:, 0])), 1.0, rtol=SOLVES)


@pytest.mark.parametrize(
    ("places", "error", "message"),
    [
        ({"a": (0, 0)}, ValueError, "places must have a place for each region of the graph, got none for 'b'"),
        ([(0, 0)], TypeError, "places must be a GeoDataFrame, or a mapping from labels to places, got list"),
        (dict.fromkeys(LABELS, (0.0, np.nan)), ValueError, "finite coordinates, two of each point, got others for 'a'"),
        (dict.fromkeys(LABELS, (0.0,)), ValueError, "finite coordinates, two of each point"),
        ({label: LINE for label in LABELS}, ValueError, "places must be polygons or points, got 'LineString' for 'a'"),
    ],
)
def test_places_that_are_refused(posterior, places, error, message):
    (term,) = posterior.structured_terms
    with pytest.raises(error, match=message):
        RegionDisplay.from_posterior(posterior, term, places)


def test_terms_that_are_refused():
    rows = {"x": np.linspace(0.0, 1.0, 30), "y": np.random.default_rng(0).normal(np.sin(np.linspace(0.0, 9.0, 30)))}
    with pytest.raises(ValueError, match=r"term must be a term of a graph, got 's\(x\)'"):
        RegionDisplay.from_posterior(cavity.GLM("y ~ s(x)").fit(rows), "s(x)")


def test_rings_of_points():
    assert [ring.tolist() for ring in read_rings({"type": "Point", "coordinates": (1.0, 2.0)}, "a")] == [[[1.0, 2.0]]]
