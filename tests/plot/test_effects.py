"""Effects of columns and maps over two show what the posterior says."""

import numpy as np
import pytest
from scipy.stats import norm
from support.tolerances import AT_REST, EXPANSION, INTEGRAL, ROUNDING

import cavity
from cavity import covariances, likelihoods

pictures = pytest.importorskip("cavity.plot.posterior_figures")
picture = pictures.make_figure
FUNCTION, NEW = "95 % interval of the function", "95 % of new observations"


def line(likelihood, y, n=40, learn=False):
    x = np.linspace(0.0, 6.0, n)[:, None]
    return cavity.GaussianProcess(covariances.RBF(2.0), likelihood).fit(x, y(np.sin(x[:, 0])), learn=learn)


def bands(axes):
    """Of every band: x, lower and upper end."""
    results = {}
    for band in axes.collections:
        if band.get_label().startswith("_"):
            continue
        x, y = band.get_paths()[0].vertices.T
        places = np.unique(x)
        low, high = (np.array([pick(y[x == place]) for place in places]) for pick in (np.min, np.max))
        results[band.get_label()] = places, low, high
    return results


def texts_apart(figure):
    """Check that titles, labels and legends do not lie on one another."""
    figure.canvas.draw()
    renderer = figure.canvas.get_renderer()
    boxes = []
    for axes in figure.axes:
        parts = [axes.title, axes.xaxis.label, axes.yaxis.label]
        boxes += [(t.get_text(), t.get_window_extent(renderer)) for t in parts if t.get_text() and t.get_visible()]
    legends = [axes.get_legend() for axes in figure.axes if axes.get_legend()]
    boxes += [("legend", legend.get_window_extent(renderer)) for legend in legends]
    for i, (one, box) in enumerate(boxes):
        for other, second in boxes[:i]:
            assert not box.overlaps(second) or one == other, (one, other)


@pytest.fixture
def canvas():
    """Give figures a canvas that can tell the size of text."""
    backend = pytest.importorskip("matplotlib.backends.backend_agg")
    return lambda figure: backend.FigureCanvasAgg(figure).figure


def test_bands_of_a_line(canvas):
    rng = np.random.default_rng(0)
    noisy = lambda f: f + 0.3 * rng.normal(size=len(f))  # noqa: E731
    posterior = line(likelihoods.Gaussian(0.09), noisy)
    figure = canvas(picture(posterior, names=["time [s]"], target="height [m]", title="a title"))
    (axes,) = figure.axes
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("time [s]", "height [m]")
    assert axes.get_title() == "a title"
    for label, noise in ((FUNCTION, 0.0), (NEW, 0.09)):
        x, low, high = bands(axes)[label]
        mean, variance = posterior.predict(x[:, None])
        reach = norm.ppf(0.975) * np.sqrt(variance + noise)
        np.testing.assert_allclose([low, high], [mean - reach, mean + reach], rtol=AT_REST)
    texts_apart(figure)


class Shifted(likelihoods.Likelihood):
    """Noise of a user's own: logistic, of scale 0.2."""

    def log_p(self, y, f):
        z = np.abs(y - f) / 0.2
        return -z - 2 * np.log1p(np.exp(-z)) - np.log(0.2)

    def cdf(self, y, f):
        return 1.0 / (1.0 + np.exp(np.clip((f - y) / 0.2, -700.0, 700.0)))


@pytest.mark.sample(3)
@pytest.mark.parametrize("likelihood", [likelihoods.StudentT(3.0, 0.2), likelihoods.Laplace(0.3), Shifted()])
def test_robust_bands_hold_95_percent(likelihood):
    rng = np.random.default_rng(1)
    posterior = line(likelihood, lambda f: f + 0.2 * rng.standard_t(3, len(f)))
    (axes,) = picture(posterior).axes
    x, low, high = bands(axes)[NEW]
    at = [5, 50, 95]
    mean, variance = posterior.predict(x[at, None])
    f = mean + np.sqrt(variance) * rng.normal(size=(200_000, 3))
    u = rng.uniform(size=f.shape)
    noise = {
        "StudentT": lambda: 0.2 * rng.standard_t(3, f.shape),
        "Laplace": lambda: rng.laplace(0.0, 0.3, f.shape),
        "Shifted": lambda: 0.2 * np.log(u / (1 - u)),
    }[type(likelihood).__name__]()
    below, above = np.mean(f + noise < low[at], axis=0), np.mean(f + noise > high[at], axis=0)
    np.testing.assert_allclose([below, above], 0.025, atol=EXPANSION)


@pytest.mark.parametrize("columns", [1, 2, 3])
def test_of_trials_shares_are_drawn(columns):
    """Rows without trials have none."""
    rng = np.random.default_rng(3)
    X, trials = rng.normal(size=(30, columns)), np.repeat([0, 5, 9], 10)
    y = np.column_stack([rng.binomial(trials, 0.4), trials])
    posterior = cavity.GaussianProcess(covariances.RBF(), likelihoods.Binomial()).fit(X, y, learn=False)
    figure = picture(posterior)
    if columns == 1:
        data = figure.axes[0].lines[1].get_ydata()
        np.testing.assert_array_equal(data[10:], y[10:, 0] / trials[10:])
        assert np.isnan(data[:10]).all()


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("likelihood", "y", "classes"),
    [
        (likelihoods.Probit(), lambda f: (f > 0.1) * 1.0, ("no", "yes")),
        (likelihoods.Poisson(), lambda f: np.round(np.exp(1 + f)), ()),
    ],
)
def test_lines_are_what_is_expected(canvas, likelihood, y, classes):
    posterior = line(likelihood, y)
    numbers = y(np.sin(posterior.X[:, 0]))
    figure = canvas(picture(posterior, names=["x"], title="title", classes=classes))
    (axes,) = figure.axes
    curve, *points = axes.lines
    points = [line for line in points if not line.get_label().startswith("outside")]
    x = curve.get_xdata()[:, None]
    expected = posterior.predict_proba(x) @ np.arange(len(classes)) if classes else posterior.expected(x)
    np.testing.assert_allclose(curve.get_ydata(), expected, rtol=INTEGRAL)
    _, low, high = bands(axes)[FUNCTION]
    assert np.all(low <= expected)
    assert np.all(expected <= high)
    shown = np.concatenate([np.column_stack(line.get_data()) for line in points])
    data = np.column_stack([posterior.X[:, 0], numbers])
    np.testing.assert_array_equal(shown[np.argsort(shown[:, 0])], data)
    texts_apart(figure)


def test_probabilities_of_ordered_classes_are_stacked_beside_their_shares(canvas):
    posterior = line(likelihoods.OrderedProbit([-0.5, 0.5]), lambda f: np.digitize(f, [-0.5, 0.5]) * 1.0)
    numbers = np.digitize(np.sin(posterior.X[:, 0]), [-0.5, 0.5])
    figure = canvas(picture(posterior, names=["x"], target="y", title="title", classes=("a", "b", "c")))
    (axes,) = figure.axes
    areas = {area.get_label(): area.get_paths()[0].vertices for area in axes.collections if area.get_label()[0] == "y"}
    assert list(areas) == ["y = a", "y = b", "y = c"]
    x = np.unique(areas["y = a"][:, 0])
    tops = np.cumsum(posterior.predict_proba(x[:, None]), axis=1)
    for k, vertices in enumerate(areas.values()):
        for at, top, foot in zip(x, tops[:, k], tops[:, k - 1] if k else np.zeros(len(x)), strict=True):
            heights = vertices[vertices[:, 0] == at, 1]
            np.testing.assert_allclose([heights.min(), heights.max()], [foot, top], atol=INTEGRAL)
    shares = [line.get_ydata() for line in axes.lines]
    bins = np.array_split(np.argsort(posterior.X[:, 0], kind="stable"), len(shares[0]))
    for k, share in enumerate(shares):
        np.testing.assert_allclose(share, [np.mean(numbers[rows] <= k) for rows in bins], rtol=ROUNDING)
    texts_apart(figure)


def test_bins_hold_all_rows_of_a_value():
    """Shares of rows of equal columns that are in the order of their classes are those of all of them."""
    x = np.repeat([0.0, 1.0, 2.0, 3.0], [40, 30, 20, 10])
    bins = pictures.display.split_into_bins(x, 3)
    assert [np.unique(x[rows]).tolist() for rows in bins] == [[0.0], [1.0], [2.0, 3.0]]
    np.testing.assert_array_equal(np.sort(np.concatenate(bins)), np.arange(100))
    pd = pytest.importorskip("pandas")
    pytest.importorskip("formulae")
    frame = pd.DataFrame(
        {"g": np.repeat(["a", "b"], 300), "c": np.repeat([0, 1, 2, 0, 1, 2], [60, 120, 120, 150, 90, 60])}
    )
    posterior = cavity.GLM("c ~ g", "ordered-probit").fit(frame)
    figure = posterior.plot(frame)[-1].figure
    shares = [line.get_ydata() for line in figure.axes[-1].lines]
    np.testing.assert_allclose(shares, [[0.5, 0.2], [0.8, 0.6]], rtol=ROUNDING)


def test_map_of_probabilities(canvas):
    rng = np.random.default_rng(2)
    X = rng.normal(size=(50, 2))
    y = (X[:, 0] > X[:, 1] ** 2 - 0.5) * 1.0
    posterior = cavity.GaussianProcess(covariances.RBF(4.0), likelihoods.Probit()).fit(X, y, learn=False)
    figure = canvas(picture(posterior, names=["a", "b"], target="class", title="title", classes=("out", "in")))
    axes, bar = figure.axes
    assert bar.get_ylabel() == "probability of class = in"
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("a", "b")
    lines = axes.collections[1]  # of probability 0.1, 0.5, 0.9
    for path, level in zip(lines.get_paths(), lines.levels, strict=True):
        at = posterior.predict_proba(path.vertices)[:, 1]
        np.testing.assert_allclose(at, level, atol=0.02)
    counts = [len(points.get_xdata()) for points in axes.lines]
    assert counts == [np.sum(y == 0), np.sum(y == 1)]
    texts_apart(figure)


def test_maps_of_a_real_target(canvas):
    rng = np.random.default_rng(3)
    X = rng.normal(size=(60, 2))
    y = X[:, 0] - X[:, 1] + 0.1 * rng.normal(size=60)
    posterior = cavity.GaussianProcess(covariances.RBF(4.0), likelihoods.Gaussian(0.01)).fit(X, y, learn=False)
    figure = canvas(picture(posterior, names=["a", "b"], title="title"))
    assert [axes.get_ylabel() for axes in figure.axes[2:]] == ["expected y (points: observed)", "sd of the function"]
    texts_apart(figure)


@pytest.mark.parametrize("columns", [3, 8])
def test_slices_along_many_columns(canvas, columns):
    rng = np.random.default_rng(4)
    X = rng.normal(size=(60, columns))
    y = (2 * X[:, 1] + X[:, 2] + 0.5 * rng.normal(size=60) > 0) * 1.0
    lengths = np.full(columns, 20.0)
    lengths[1], lengths[2] = 2.0, 4.0
    posterior = cavity.GaussianProcess(covariances.RBF(9.0, lengths), likelihoods.Probit()).fit(X, y, learn=False)
    names = [f"c{d}" for d in range(columns)]
    figure = canvas(picture(posterior, names=names, target="class", title="title", classes=("out", "in")))
    shown = [axes for axes in figure.axes if axes.get_xlabel() in names]
    assert len(shown) == min(columns, 5)
    assert [axes.get_xlabel() for axes in shown[:2]] == ["c1", "c2"]  # those that matter most
    place, middle = shown[0].lines[0].get_data()
    points = np.tile(np.median(X, axis=0), (len(place), 1))
    points[:, 1] = place
    np.testing.assert_allclose(middle, posterior.predict_proba(points)[:, 1], rtol=INTEGRAL)
    assert any("leave-one-out probability" in axes.get_xlabel() for axes in figure.axes)


def streamed(likelihood, X, y):
    """A state that has seen rows in two batches."""
    model = cavity.StreamingGP(covariances.RBF(2.0, 1.0), likelihood, n_inducing=12)
    half = len(y) // 2
    return model.fit(X[:half], y[:half], learn=False).update(X[half:], y[half:])


def test_line_of_a_stream_has_its_inducing_points(canvas):
    rng = np.random.default_rng(5)
    X = np.sort(rng.uniform(0.0, 6.0, (80, 1)), axis=0)
    y = np.sin(X[:, 0]) + 0.3 * rng.normal(size=80)
    state = streamed(likelihoods.Gaussian(0.09), X, y)
    shown = slice(40, None)  # the last batch
    figure = canvas(picture(state, X[shown], y[shown], names=["time [s]"], target="height [m]"))
    (axes,) = figure.axes
    for label, noise in ((FUNCTION, 0.0), (NEW, 0.09)):
        x, low, high = bands(axes)[label]
        mean, variance = state.predict(x[:, None])
        reach = norm.ppf(0.975) * np.sqrt(variance + noise)
        np.testing.assert_allclose([low, high], [mean - reach, mean + reach], rtol=AT_REST)
    assert X[40, 0] - 0.5 < axes.get_xlim()[0] < X[40, 0]  # as far as the rows reach, not the inducing points
    rug = next(line for line in axes.lines if line.get_label() == f"{state.n_inducing} inducing points")
    np.testing.assert_array_equal(rug.get_xdata(), state.inducing[:, 0])
    foot = rug.get_transform().transform(np.column_stack(rug.get_data()))[:, 1]
    assert np.all(foot < axes.transAxes.transform((0.0, 0.03))[1])
    texts_apart(figure)


@pytest.mark.long_cases("classes1")
@pytest.mark.parametrize("classes", [("out", "in"), ()])
def test_maps_of_a_stream_have_its_inducing_points(canvas, classes):
    rng = np.random.default_rng(6)
    X = rng.normal(size=(60, 2))
    f = X[:, 0] - X[:, 1] ** 2 + 0.5
    y = (f > 0) * 1.0 if classes else f
    state = streamed(likelihoods.Probit() if classes else likelihoods.Gaussian(0.1), X, y)
    figure = canvas(picture(state, X, y, names=["a", "b"], target="target", classes=classes))
    maps = [axes for axes in figure.axes if axes.get_xlabel() == "a"]
    assert len(maps) == (1 if classes else 2)
    for axes in maps:
        np.testing.assert_array_equal(np.column_stack(axes.lines[-1].get_data()), state.inducing)
    report = [text.get_text() for text in maps[0].get_legend().get_texts()]
    assert report.count(f"{state.n_inducing} inducing points") == 1
    texts_apart(figure)


def test_slices_of_a_stream():
    rng = np.random.default_rng(7)
    X = rng.normal(size=(60, 3))
    y = X[:, 1] + 0.1 * rng.normal(size=60)
    state = streamed(likelihoods.Gaussian(0.1), X, y)
    figure = picture(state, names=["a", "b", "c"])
    assert sorted(axes.get_xlabel() for axes in figure.axes) == ["a", "b", "c"]
    assert figure.axes[0].get_xlabel() == "b"  # that matters most


def test_names_classes_and_the_target_of_the_fit_are_drawn():
    frame = pytest.importorskip("pandas").DataFrame({"dose": np.linspace(-1.0, 1.0, 12)})
    frame["died"] = np.where(np.arange(12) % 5 > 1, "yes", "no")
    model = cavity.GaussianProcess(covariances.RBF(), likelihoods.Probit())
    axes = picture(model.fit(frame, "died", learn=False)).axes[0]
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("dose", "probability of died = yes")
    state = cavity.StreamingGP(covariances.RBF(), likelihoods.Probit()).fit(frame, "died", learn=False)
    axes = picture(state, frame).axes[0]
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("dose", "probability of died = yes")
    posterior = cavity.GLM("probit", prior_variance=1.0, intercept=True).fit(frame, "died")
    figure = picture(posterior, frame)
    assert "dose" in [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert figure.axes[1].get_xlabel() == "leave-one-out probability of died = yes"
    mixture = cavity.GaussianMixture(1).fit(frame[["dose"]])
    assert picture(mixture, frame[["dose"]]).axes[1].get_xlabel() == "dose"
