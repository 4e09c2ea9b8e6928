"""Pictures of structured terms: the numbers that they hold, rows beside them, panels of a figure, what is refused."""

import numpy as np
import pytest
from support.tolerances import AT_REST, OPTIMUM

import cavity
from cavity.plot import IntervalDisplay, SurfaceDisplay, TermDisplay

pd = pytest.importorskip("pandas")
pytest.importorskip("matplotlib")
pytestmark = pytest.mark.filterwarnings("ignore:the log evidence has no maximum")


@pytest.fixture(scope="module")
def frame():
    rng = np.random.default_rng(1)
    n = 200
    x, z, g = rng.uniform(0, 10, n), rng.normal(size=n), rng.integers(0, 9, n)
    f, t = rng.choice(list("ab"), n), rng.integers(0, 20, n)
    eta = np.sin(x) + 0.5 * z + 0.6 * np.cos(t / 3.0) + rng.normal(size=9)[g] + (f == "b") * 0.2 * x
    table = {"x": x, "z": z, "g": [f"g{k}" for k in g], "f": f, "t": t, "y": eta + 0.4 * rng.normal(size=n)}
    table |= {"h": rng.permutation(table["g"]), "count": rng.poisson(np.exp(0.5 * eta))}
    return pd.DataFrame(table).assign(won=np.where(eta > 0.5, "yes", "no"), died=rng.random(n) < 0.7)


def fit(frame, formula, likelihood="gaussian"):
    return cavity.GLM(formula, likelihood).fit(frame)


@pytest.fixture(scope="module")
def posterior(frame):
    return fit(frame, "y ~ z + s(x, k=12) + rw1(t) + (1 | g)")


def test_curves_are_those_of_the_posterior(posterior, frame):
    """With partial residuals: the observation less what other terms predict."""
    drawn = TermDisplay.from_posterior(posterior, "s(x)", frame, level=0.8)
    table = posterior.curve("s(x)", {"x": drawn.x}, level=0.8).columns
    np.testing.assert_array_equal([drawn.mean, drawn.low, drawn.high], [table[c] for c in ("mean", "10%", "90%")])
    others = posterior.predict(frame, without="s(x)")[0]
    np.testing.assert_allclose(drawn.residuals, frame.y - others, atol=AT_REST)
    assert (drawn.ax_.get_xlabel(), drawn.ax_.get_ylabel()) == ("x", "s(x)")
    states = TermDisplay.from_posterior(posterior, "rw1(t)", frame)
    assert states.are_states
    np.testing.assert_array_equal(states.x, np.arange(20))


def test_partial_residuals_of_counts_are_in_units_of_the_link(frame):
    """(y - mu)/(d mu/d f), which is y/mu - 1 of a log link."""
    posterior = fit(frame, "count ~ s(x, by=f, k=7) + ar1(t)", "poisson")
    drawn = TermDisplay.from_posterior(posterior, "s(x, by=f)", frame)
    assert (drawn.names, drawn.group) == (("a", "b"), "f")
    expected = posterior.curve("s(x, by=f)", frame).columns["mean"] + frame["count"] / posterior.expected(frame) - 1.0
    np.testing.assert_allclose(drawn.residuals, expected, atol=OPTIMUM)
    for k, level in enumerate("ab"):
        points = drawn.codes == k
        one = posterior.curve("s(x, by=f)", {"x": drawn.x[points], "f": level}).columns
        np.testing.assert_array_equal(drawn.mean[points], one["mean"])
        np.testing.assert_array_equal(drawn.row_codes == k, frame.f == level)
    texts = [text.get_text() for text in drawn.ax_.get_legend().get_texts()]
    assert {"f a", "f b", "95 % interval"} <= set(texts)


def test_rows_of_classes_are_marks(frame):
    posterior = fit(frame, "won ~ s(x, k=6) + s(x, by=z, k=5)", "logit")
    drawn = TermDisplay.from_posterior(posterior, "s(x)", frame)
    assert drawn.residuals is None
    np.testing.assert_array_equal(drawn.rows, frame.x)
    multiplied = TermDisplay.from_posterior(posterior, "s(x, by=z)")
    assert multiplied.term == "s(x, by=z) at z = 1"
    assert multiplied.rows is None


def test_a_cycle_is_drawn_once(frame):
    posterior = fit(frame, "y ~ s(x, period=4, k=6)")
    drawn = TermDisplay.from_posterior(posterior, "s(x)", frame)
    assert drawn.ax_.get_xlim() == (0.0, 4.0)
    np.testing.assert_allclose(drawn.rows, np.mod(frame.x, 4.0))
    assert drawn.mean[0] == pytest.approx(drawn.mean[-1], abs=AT_REST)


def test_rows_of_a_surface_are_within_its_cycle(frame):
    posterior = fit(frame, "y ~ te(x, z, k=5, period=(4, None))")
    drawn = SurfaceDisplay.from_posterior(posterior, "te(x, z)", frame)
    assert drawn.ax_.get_xlim() == (0.0, 4.0)
    np.testing.assert_array_equal(drawn.points, np.stack([np.mod(frame.x, 4.0), frame.z], axis=1))
    np.testing.assert_allclose(drawn.values[:, 0], drawn.values[:, -1], atol=AT_REST)
    drawn.points = np.array([[0.1, frame.z.mean()]])
    shown = np.isfinite(drawn._near_rows()).any(axis=0)  # along x: near both ends of the cycle
    assert shown[[0, -1, len(shown) // 2]].tolist() == [True, True, False]


def test_censored_times_have_no_residuals(frame):
    times = frame.assign(time=np.exp(0.3 * frame.y))
    posterior = fit(times, "surv(time, died) ~ s(x, k=6)", "lognormal")
    drawn = TermDisplay.from_posterior(posterior, "s(x)", times)
    np.testing.assert_array_equal(np.isnan(drawn.residuals), ~times.died)
    drawn.figure_.canvas.draw()


def test_surfaces_are_those_of_the_posterior(frame):
    posterior = fit(frame, "y ~ te(x, z, k=5)")
    drawn = SurfaceDisplay.from_posterior(posterior, "te(x, z)", frame)
    points = {"x": drawn.sides[0][[3, 40]], "z": drawn.sides[1][[17, 2]]}
    table = posterior.curve("te(x, z)", points).columns
    np.testing.assert_allclose(drawn.values[[17, 2], [3, 40]], table["mean"], atol=AT_REST)
    np.testing.assert_array_equal(drawn.points, frame[["x", "z"]])
    errors = SurfaceDisplay.from_posterior(posterior, "te(x, z)", kind="sd")
    np.testing.assert_allclose(errors.values[[17, 2], [3, 40]], table["sd"], rtol=AT_REST)
    assert (errors.ax_.get_xlabel(), errors.ax_.get_ylabel(), errors.points) == ("x", "z", None)
    assert np.isfinite(errors._near_rows()).all()
    shown = drawn._near_rows()  # by hand at two places
    length = np.array([np.ptp(side) for side in drawn.sides])
    for i, j in ((0, 0), (30, 30)):
        apart = np.abs(drawn.points - [drawn.sides[0][j], drawn.sides[1][i]]) / length
        assert np.isnan(shown[i, j]) == (np.min(np.hypot(*apart.T)) > 0.1)


def test_a_figure_has_a_panel_for_each_term(posterior, frame):
    """Fixed effects, variances, terms; with rows also what is predicted of them; terms alone on request."""
    panels = posterior.plot()
    assert [axes.get_ylabel() for axes in panels[3:]] == ["s(x)", "rw1(t)"]
    assert len(panels) == 5
    assert len(posterior.plot(frame)) == 7
    chosen = posterior.plot(frame, term=("rw1(t)", "g", "s(x)"), level=0.5)
    assert [axes.get_ylabel() for axes in chosen] == ["rw1(t)", "", "s(x)"]
    assert chosen[0].get_ylim() == chosen[2].get_ylim()
    assert posterior.plot(term="s(x)").get_ylabel() == "s(x)"


def test_terms_without_a_variable_are_intervals(frame):
    posterior = fit(frame, "y ~ mm(g, h) + s(x | g, k=5)")
    panels = posterior.plot(term=posterior.structured_terms)
    assert [axes.get_title() for axes in panels] == ["mm(g, h)", ""]
    drawn = IntervalDisplay.from_posterior(posterior, term="mm(g, h)")
    assert set(drawn.names) == set(frame.g)
    table = posterior.effects("mm(g, h)").to_frame()["mean"]
    np.testing.assert_array_equal(drawn.mean, table.loc[list(drawn.names)])
    assert np.all(np.diff(drawn.mean) >= 0)
    assert len(TermDisplay.from_posterior(posterior, "s(x | g)", frame).names) == 9


def test_terms_of_several_levels_a_row_are_curves_of_single_ones(frame):
    posterior = fit(frame, "y ~ rw1(t | mm(g, h))")
    drawn = TermDisplay.from_posterior(posterior, "rw1(t | mm(g, h))", frame)
    assert (drawn.group, len(drawn.names), drawn.rows) == ("g", 9, None)


def test_expected_observations_along_a_column_of_a_term(frame):
    """Other columns stay at medians, those of states at one that there is, labels at the most frequent."""
    posterior = fit(frame, "y ~ s(x, by=f, k=6) + ar1(t)")
    axes = posterior.plot(frame, column="x")
    curve = next(line for line in axes.lines if line.get_label() == "expected")
    inside = (curve.get_xdata() > frame.x.min()) & (curve.get_xdata() < frame.x.max())
    middle = np.unique(frame.t)[np.argmin(np.abs(np.unique(frame.t) - frame.t.median()))]
    rows = {"x": curve.get_xdata()[inside], "f": [frame.f.mode()[0]] * inside.sum(), "t": [middle] * inside.sum()}
    np.testing.assert_allclose(curve.get_ydata()[inside], posterior.predict(rows)[0], rtol=AT_REST)
    outside = (curve.get_xdata() < frame.x.min()) | (curve.get_xdata() > frame.x.max())
    assert np.isnan(curve.get_ydata()[outside]).all()  # where functions by a factor end
    assert posterior.plot(frame, columns=("t", "x")).get_xlabel() == "t"


def test_models_of_arrays_are_drawn(frame):
    model = cavity.MixedGLM([cavity.terms.Smooth(0, k=6), cavity.terms.RandomWalk("t")], "gaussian", intercept=True)
    X = frame[["x"]].to_numpy()
    posterior = model.fit(X, frame.y, groups={"t": frame.t})
    rows = posterior.rows(X, {"t": frame.t})
    drawn = TermDisplay.from_posterior(posterior, "s(0)", rows, frame.y)
    others = posterior.predict(rows)[0] - posterior.curve("s(0)", {0: frame.x}).columns["mean"]
    np.testing.assert_allclose(drawn.residuals, frame.y - others, atol=AT_REST)
    assert len(posterior.plot()) == 4


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda p: p.plot(term="s(z)"), r"term must be one of 'g', 's\(x\)', 'rw1\(t\)', got 's\(z\)'"),
        (lambda p: TermDisplay.from_posterior(p, "g"), "term must be one of 's"),
        (lambda p: TermDisplay.from_posterior(cavity.GLM().fit([[1.0], [2.0]], [1.0, 2.0]), "s"), "with structured"),
        (lambda p: SurfaceDisplay.from_posterior(p, "s(x)"), "term must be a function of two variables"),
        (lambda p: SurfaceDisplay.from_posterior(p, "s(x)", kind="var"), "kind must be one of 'mean', 'sd'"),
        (lambda p: p.plot(term="s(x)", level=2.0), "level must be"),
        (lambda p: p.plot(term="s(x)", colour="red"), "this picture has no option 'colour'"),
    ],
)
@pytest.mark.filterwarnings("ignore")
def test_what_is_refused(posterior, call, message):
    with pytest.raises((ValueError, TypeError), match=message):
        call(posterior)
