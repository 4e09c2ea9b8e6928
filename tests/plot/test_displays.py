"""Displays draw the numbers that they hold; plot of every posterior gives Axes; what cannot be drawn is refused."""

import re
import subprocess
import sys

import numpy as np
import pytest
from scipy import stats
from support.plots import COUNTS, RNG, TWO, X, Y, glm, process
from support.tolerances import AT_REST, INTEGRAL, OPTIMUM, SOLVES

import cavity
from cavity import covariances, data, likelihoods, plot
from cavity.base.column_statistics import robust_spread
from cavity.plot import posterior_figures

pyplot = pytest.importorskip("matplotlib.pyplot")
Axes = pytest.importorskip("matplotlib.axes").Axes


def factorized():
    return cavity.FactorizedGaussian([1.0, 2.0, 0.0], [[2.0, 0.5, 0.0], [0.5, 1.0, 0.0], [0.0, 0.0, 1.0]]).fit()


def mixed():
    frame = data.table("sleepstudy", as_frame=True)[0]
    return cavity.MixedGLM("Reaction ~ Days + (Days | Subject)").fit(frame)


def stream(columns=1):
    model = cavity.StreamingGP(covariances.RBF(4.0), likelihoods.Gaussian(0.1), n_inducing=8)
    return model.fit(X[:, :columns], Y, learn=False)


def mean_field():
    from cavity import mean_field as engine
    from cavity.distributions import Gamma

    class Rate(engine.Model):
        def initial(self, rng=None):
            return {"rate": Gamma(1.0, 1.0)}

        def update(self, name, q):
            return Gamma(1.0 + COUNTS.sum(), 1.0 + len(COUNTS))

        def expected_log_joint(self, q):
            rate = q["rate"]
            return float(COUNTS.sum() * rate.statistics[0] - (1.0 + len(COUNTS)) * rate.mean)

    return engine.fit(Rate())


CASES = {  # a posterior, the rows that are drawn with it, and the number of panels
    "glm": (glm, (), 1),
    "glm with rows": (glm, (X, Y), 2),
    "glm of classes": (lambda: glm("probit", TWO), (X, TWO), 2),
    "glm of counts": (lambda: glm("poisson", COUNTS), (X, COUNTS), 2),
    "glm of an order": (lambda: cavity.GLM("ordered-probit").fit(X, np.digitize(Y, [-1, 1])), (), 1),
    "adf": (lambda: glm("probit", TWO, method="adf"), (X, TWO), 2),
    "linear": (lambda: cavity.LinearRegression(intercept=False).fit(X, Y), (X, Y), 2),
    "logistic": (lambda: cavity.LogisticRegression(intercept=False).fit(X, TWO), (X, TWO), 2),
    "mixed": (mixed, (), 4),
    "process": (lambda: process(1), (), 1),
    "process of two": (lambda: process(2), (), 2),
    "process of classes": (lambda: process(2, likelihoods.Probit(), TWO), (), 1),
    "stream": (stream, (), 1),
    "stream with rows": (stream, (X[:, :1], Y), 1),
    "mixture": (lambda: cavity.GaussianMixture(2).fit(X), (X,), 1),
    "mixture without rows": (lambda: cavity.GaussianMixture(1).fit(X), (), 1),
    "mixture of one column": (lambda: cavity.GaussianMixture(2).fit(X[:, :1]), (X[:, :1],), 2),
    "unit mixture": (lambda: cavity.UnitMixture(3).fit(Y), (Y,), 2),
    "unit mixture without rows": (lambda: cavity.UnitMixture(1).fit(Y), (), 2),
    "clutter": (lambda: cavity.Clutter().fit(Y), (Y,), 2),
    "clutter without points": (lambda: cavity.Clutter().fit(Y), (), 1),
    "clutter of two columns": (lambda: cavity.Clutter().fit(X), (X,), 1),
    "clutter of two columns without points": (lambda: cavity.Clutter().fit(X), (), 1),
    "clutter batch": (lambda: cavity.Clutter().fit(X.reshape(3, 20, 2)), (), 1),
    "factorized": (factorized, (), 1),
    "mean field": (mean_field, (), 1),
    "many": (lambda: cavity.GLM("poisson", intercept=True).fit_many(X, np.column_stack([COUNTS, COUNTS[::-1]])), (), 1),
}


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", CASES)
def test_plot_of_every_posterior(name):
    make, rows, count = CASES[name]
    posterior = make()
    drawn = posterior.plot(*rows, title="a title")
    axes = np.ravel(drawn)
    assert len(axes) == count
    assert isinstance(drawn, Axes if count == 1 else np.ndarray)
    assert all(isinstance(axis, Axes) and axis.get_xlabel() for axis in axes)
    figure = axes[0].get_figure()
    assert "a title" in (figure.get_suptitle() or axes[0].get_title())
    figure.canvas.draw()
    own = pyplot.figure().subplots(1, count)
    second = posterior.plot(*rows, ax=own)
    assert np.ravel(second).tolist() == np.ravel(own).tolist()
    assert len(pyplot.get_fignums()) == 2


def test_every_kind_of_posterior_has_a_picture():

    from cavity.base.results import POSTERIOR_CLASSES

    assert all(hasattr(cavity, name) for name in cavity.__all__)  # which imports them
    assert set(POSTERIOR_CLASSES) == set(posterior_figures.PLAN_BY_KIND)


def test_the_end_of_a_chain_is_drawn_from_its_time_on():
    t = np.arange(50.0)
    model = cavity.GaussianProcess(cavity.covariances.Matern32(), "gaussian", method="chain")
    state = model.fit(t[:, None], np.sin(t), learn=False).keep_end()
    (curve,) = state.plot(np.linspace(49.0, 60.0, 5)[:, None]).lines[:1]
    assert curve.get_xdata().min() == 49.0
    with pytest.raises(ValueError, match="X must be given"):
        state.plot()


def test_intervals_are_those_of_the_summary():
    posterior = glm()
    display = plot.IntervalDisplay.from_posterior(posterior, level=0.8, intercept=True)
    columns = posterior.summary(level=0.8).columns
    assert display.names == ("x2", "x1", "intercept")
    np.testing.assert_array_equal(display.mean[::-1], columns["mean"])
    np.testing.assert_array_equal([display.low[::-1], display.high[::-1]], [columns["10%"], columns["90%"]])
    drawn = np.concatenate([line.get_xdata() for line in display.ax_.lines[1:]])
    assert sorted(drawn) == sorted(display.mean)
    wide = cavity.LinearRegression(intercept=False).fit(RNG.normal(size=(150, 100)), RNG.normal(size=150))
    display = plot.IntervalDisplay.from_posterior(wide, most=7)
    clearest = np.argsort(-np.abs(wide.mean) / wide.sd)[:7]
    assert display.names == tuple(f"x{j + 1}" for j in clearest[::-1])
    assert display.heading == "the 7 clearest of 100"


def test_effects_of_groups_are_those_of_the_term():
    posterior = mixed()
    display = plot.IntervalDisplay.from_posterior(posterior, term="1 + Days | Subject", column="Days")
    mean, variance = posterior.effect_moments("1 + Days | Subject")
    np.testing.assert_array_equal(display.mean, np.sort(mean[:, 1]))
    sd = np.sqrt(variance[np.argsort(mean[:, 1]), 1])
    np.testing.assert_allclose(display.high - display.low, 2 * stats.norm.ppf(0.975) * sd)
    assert posterior.plot(term="1 + Days | Subject", column="intercept").get_title() == "intercept of Subject"


def test_effect_of_one_of_several_columns():
    posterior = glm("poisson", COUNTS)
    display = plot.EffectDisplay.from_posterior(posterior, "x2", X, names=["dose", "age"])
    points = np.column_stack([np.full(801, np.median(X[:, 0])), display.grid])
    np.testing.assert_allclose(display.expected, posterior.expected(points))
    np.testing.assert_array_equal(display.grid_new, display.grid[::8])
    ends = posterior.quantile(points[::8], [0.025, 0.975])
    np.testing.assert_array_equal(np.column_stack([display.low_new, display.high_new]), ends)
    assert display.ax_.get_xlabel() == "age"
    assert display.y is None  # rows differ in the other column as well
    assert posterior.plot(X, column=0).get_xlabel() == "x1"


def test_map_of_two_of_several_columns():
    wide = np.column_stack([X, RNG.normal(size=60)])
    posterior = cavity.GLM("probit", prior_variance=9.0, intercept=True).fit(wide, TWO)
    display = plot.MapDisplay.from_posterior(posterior, ("x3", "x1"), wide, TWO)
    i, j = 10, 70
    point = [[display.sides[1][i], np.median(wide[:, 1]), display.sides[0][j]]]
    assert display.values[i, j] == pytest.approx(posterior.predict_proba(point)[0, 1], rel=SOLVES)
    assert (display.ax_.get_xlabel(), display.ax_.get_ylabel()) == ("x3", "x1")
    spread = plot.MapDisplay.from_posterior(posterior, (2, 0), wide, kind="sd")
    assert spread.values[i, j] == pytest.approx(np.sqrt(posterior.predict(point)[1][0]), rel=SOLVES)


def test_predictions_are_what_is_expected():
    posterior = glm("poisson", COUNTS)
    display = plot.PredictionDisplay.from_posterior(posterior, X, COUNTS)
    np.testing.assert_array_equal(display.predicted, posterior.expected(X))
    np.testing.assert_array_equal(display.log_density, posterior.loo_log_density)
    assert len(display.ax_.collections[0].get_offsets()) == 60
    assert plot.PredictionDisplay.from_posterior(posterior, X[:9], COUNTS[:9]).log_density is None


def test_streams_are_predicted_before_they_are_learnt():
    state = stream()
    new = RNG.normal(size=(25, 1))
    y = new[:, 0] + RNG.normal(size=25)
    bound = state.log_bound
    display = plot.PrequentialDisplay.from_posterior({"a": state}, new, y, batch=10)
    assert state.log_bound == bound
    result, other = [], state.copy()
    for start in (0, 10, 20):
        rows = new[start : start + 10], y[start : start + 10]
        result.append(other.log_density(*rows))
        other.update(*rows)
    result = np.concatenate(result)
    np.testing.assert_array_equal(display.log_density["a"], result)
    np.testing.assert_allclose(display.ax_.lines[0].get_ydata()[[0, 24]], [result[0], result.mean()])
    frame = pytest.importorskip("pandas").DataFrame({"time": new[:, 0], "height": y})
    named = stream().model.fit(frame, "height", learn=False)
    by_name = plot.PrequentialDisplay.from_posterior(named, frame, "height", batch=10)
    by_place = plot.PrequentialDisplay.from_posterior(named, frame[["time"]], y, batch=10)
    np.testing.assert_array_equal(by_name.log_density[""], by_place.log_density[""])


def test_traces():
    velocity = data.table("galaxies")[0]["velocity"]
    posterior = cavity.UnitMixture(3).fit(velocity)
    display = plot.TraceDisplay.from_posterior(posterior)
    elbo = posterior.trace["elbo"]
    np.testing.assert_array_equal(display.values, (elbo[-1] - elbo)[display.passes - 1])
    learnt = cavity.GaussianProcess(covariances.RBF(4.0), likelihoods.Gaussian(0.1)).fit(X[:, :1], Y)
    assert plot.TraceDisplay.from_posterior(learnt).kind == "learning"
    assert plot.TraceDisplay.from_posterior(learnt, "change").ax_.get_xlabel() == "pass over the data"


def test_densities_and_responsibilities_along_a_column():
    posterior = cavity.UnitMixture(3).fit(Y)
    display = plot.DensityDisplay.from_posterior(posterior, Y)
    np.testing.assert_allclose(display.parts.sum(axis=1), display.density, rtol=INTEGRAL)
    shares = plot.ResponsibilityDisplay.from_posterior(posterior, Y)
    np.testing.assert_array_equal(shares.responsibilities, posterior.responsibilities(shares.grid))
    clutter = cavity.Clutter().fit(Y)
    display = plot.DensityDisplay.from_posterior(clutter, Y)
    np.testing.assert_array_equal(display.density, np.exp(clutter.log_density(display.grid)))
    outliers = plot.OutlierDisplay.from_posterior(clutter, Y)
    np.testing.assert_array_equal(outliers.probability, clutter.clutter_probability(Y))
    new = plot.OutlierDisplay.from_posterior(clutter, [50.0])
    np.testing.assert_array_equal(new.probability, clutter.clutter_probability([50.0], fitted=False))


def test_a_display_draws_again_elsewhere():
    display = plot.EffectDisplay.from_posterior(process(1))
    other = pyplot.figure().subplots()
    assert display.plot(ax=other, title="again") is display
    assert (display.ax_, display.figure_) == (other, other.get_figure())
    assert other.get_title() == "again"


def test_one_constant_column_is_drawn():
    constant = np.column_stack([np.ones(60), X[:, 0]])
    model = cavity.GaussianProcess(covariances.RBF(4.0), likelihoods.Gaussian(0.1))
    posterior = model.fit(constant, Y, learn=False)
    assert len(posterior.plot()) == 2
    assert plot.EffectDisplay.from_posterior(posterior, 0).grid[[0, -1]] == pytest.approx([0.95, 1.05])


def removed():
    axes = pyplot.figure().subplots()
    axes.remove()
    return axes


REFUSED = {
    "a figure": (lambda: glm().plot(ax=pyplot.figure()), TypeError, "ax must be one Axes of matplotlib, got Figure;"),
    "a name": (lambda: glm().plot(ax="left"), TypeError, "ax must be one Axes of matplotlib, got str"),
    "too few": (
        lambda: glm().plot(X, Y, ax=pyplot.figure().subplots()),
        ValueError,
        "ax must be an array of 2 Axes, one for each panel of this plot, got 1",
    ),
    "a removed one": (lambda: glm().plot(ax=removed()), ValueError, "ax was removed from its figure"),
    "an option": (lambda: glm().plot(colour="red"), TypeError, "this picture has no option 'colour'"),
    "a level": (lambda: glm().plot(level=2.0), ValueError, "level must be in (0, 1), got 2.0"),
    "no rows": (lambda: glm().plot(column=0), ValueError, "X must be given: the posterior keeps no rows"),
    "a column": (lambda: glm().plot(X, column="dose"), ValueError, "column must be one of 'x1', 'x2', got 'dose'"),
    "a number": (lambda: glm().plot(X, column=2), ValueError, "column must be a name or a number below 2, got 2"),
    "no column": (
        lambda: plot.EffectDisplay.from_posterior(process(2)),
        ValueError,
        "column must be a name or a number below 2, got None",
    ),
    "one column": (lambda: glm().plot(X, columns=("x1",)), ValueError, "columns must be two different columns, got"),
    "one twice": (lambda: glm().plot(X, columns=(0, 0)), ValueError, "columns must be two different columns, got"),
    "a map of one": (
        lambda: plot.MapDisplay.from_posterior(process(1)),
        ValueError,
        "a map needs two columns, but X has one (x1): EffectDisplay draws along it",
    ),
    "names": (lambda: process(2).plot(names=["a"]), ValueError, "names must hold one name for each of the 2 columns"),
    "y": (lambda: glm().plot(X, Y[:5]), ValueError, "y must have one observation for each of the 60 rows of X, got 5"),
    "no y": (lambda: glm().plot(X), ValueError, "y must be given: the posterior keeps no observations"),
    "nan": (lambda: glm().plot(X * np.nan, Y), ValueError, "X must"),
    "mixed": (
        lambda: plot.EffectDisplay.from_posterior(mixed()),
        TypeError,
        "posterior is of a mixed model, whose predictions take groups",
    ),
    "a mixture": (
        lambda: plot.EffectDisplay.from_posterior(cavity.GaussianMixture(1).fit(X)),
        TypeError,
        "posterior must be a posterior that predicts observations from columns, got GaussianMixturePosterior",
    ),
    "rows of nothing": (lambda: factorized().plot(X), ValueError, "X and y are not drawn of a Factorized"),
    "a term": (lambda: mixed().plot(term="Days"), ValueError, "term must be one of '1 + Days | Subject'"),
    "a term's column": (
        lambda: mixed().plot(term="1 + Days | Subject"),
        ValueError,
        "column must be one of 'intercept', 'Days', got None",
    ),
    "columns of a mixture": (
        lambda: cavity.GaussianMixture(1).fit(X).plot(X[:, :1]),
        ValueError,
        "X must have 2 columns like the data of the fit, got 1",
    ),
    "several columns": (
        lambda: plot.DensityDisplay.from_posterior(cavity.GaussianMixture(1).fit(X)),
        ValueError,
        "posterior must be of one column, got 2",
    ),
    "no mixture": (lambda: plot.MixtureDisplay.from_posterior(glm()), TypeError, "posterior must be a GaussianMixture"),
    "no clutter": (lambda: plot.OutlierDisplay.from_posterior(glm(), X), TypeError, "must be a ClutterPosterior"),
    "no probability": (
        lambda: plot.CalibrationDisplay.from_predictions([0, 1], [0.5, 1.5]),
        ValueError,
        "probability must be between 0 and 1",
    ),
    "labels": (
        lambda: plot.CalibrationDisplay.from_predictions([1, 2], [0.5, 0.5]),
        ValueError,
        "y must be 1 where the event was observed and 0 elsewhere",
    ),
    "calibration of numbers": (
        lambda: plot.CalibrationDisplay.from_posterior(glm(), X, Y),
        TypeError,
        "posterior must be of a target with classes; PITDisplay is for numbers",
    ),
    "pit of classes": (
        lambda: plot.PITDisplay.from_posterior(glm("probit", TWO), X, TWO),
        TypeError,
        "posterior must be of numbers; CalibrationDisplay is for classes",
    ),
    "no selection": (lambda: plot.SelectionDisplay.from_selection(X), TypeError, "selection must be a Selection"),
    "no stream": (
        lambda: plot.PrequentialDisplay.from_posterior(factorized(), X, Y),
        TypeError,
        "posterior must be a posterior that predicts observations and can be updated",
    ),
    "no trace": (lambda: plot.TraceDisplay.from_posterior(process(1), "elbo"), ValueError, "kind must be one of"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_drawn_is_refused_in_words(name):
    call, error, message = REFUSED[name]
    with pytest.raises(error, match=re.escape(message)):
        call()


def test_axes_of_a_closed_figure_can_be_drawn_into_and_saved(tmp_path):
    """As notebooks do, which close what they have shown."""
    axes = pyplot.figure().subplots()
    pyplot.close("all")
    glm().plot(ax=axes).get_figure().savefig(tmp_path / "a.png")


def test_a_plot_without_matplotlib_names_the_command():
    code = "import sys; sys.modules['matplotlib'] = None; import cavity; cavity.Clutter().fit([1.0, 2.0]).plot()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "pip install 'cavity[plot]'" in done.stderr


def test_coefficients_of_different_scales_are_drawn_per_scale():
    """Times standard deviations of their columns, where these differ, unless raw ones are wanted."""
    frame = np.column_stack([X[:, 0], 1000.0 * X[:, 1]])
    posterior = cavity.GLM("logit", intercept=True).fit(frame, TWO)
    drawn = plot.IntervalDisplay.from_posterior(posterior)
    scaled = np.append(posterior.mean[0], posterior.mean[1:] * frame.std(axis=0))
    np.testing.assert_allclose(drawn.mean[::-1], scaled, rtol=AT_REST)
    assert "coefficient times scale of its column" in drawn.ax_.get_xlabel()
    raw = plot.IntervalDisplay.from_posterior(posterior, per_scale=False)
    np.testing.assert_array_equal(raw.mean[::-1], posterior.mean)
    same = cavity.GLM("logit", intercept=True).fit(X[:, :2], TWO)
    assert plot.IntervalDisplay.from_posterior(same).mean[1] == same.mean[1]
    with pytest.raises(ValueError, match="per_scale needs a posterior with standardize=True or the default prior"):
        plot.IntervalDisplay.from_posterior(cavity.LinearRegression(intercept=True).fit(X, Y), per_scale=True)


def test_coefficients_of_real_y_are_drawn_in_spreads_of_y():
    """The same for y in other units, and without the intercept, which stands above the plot."""
    frame = np.column_stack([X[:, 0], 1000.0 * X[:, 1]])
    posteriors = [cavity.GLM("gaussian", intercept=True).fit(frame, unit * Y) for unit in (1.0, 100.0)]
    first, second = (plot.IntervalDisplay.from_posterior(posterior) for posterior in posteriors)
    np.testing.assert_allclose(first.mean, second.mean, rtol=OPTIMUM)
    ratio = posteriors[0].mean[1:] * frame.std(axis=0) / first.mean[::-1]
    np.testing.assert_allclose(ratio, robust_spread(Y), rtol=OPTIMUM)
    assert first.names == ("x2", "x1")
    assert first.ax_.get_title().startswith("intercept")


def test_standardised_coefficients_are_drawn_per_spread_of_their_columns():
    frame = np.column_stack([X[:, 0], 1000.0 * X[:, 1]])
    posterior = cavity.GLM("logit", intercept=True, standardize=True, prior_variance=2.0).fit(frame, TWO)
    drawn = plot.IntervalDisplay.from_posterior(posterior)
    np.testing.assert_allclose(drawn.mean[-2::-1], posterior.mean[1:], rtol=AT_REST)


def test_an_intercept_is_a_row_and_a_far_one_ends_the_axis_before_it():
    near, far = (
        plot.IntervalDisplay.from_posterior(cavity.GLM("gaussian", intercept=True).fit(X[:, :2], Y + shift))
        for shift in (0.0, 1e4)
    )
    assert near.names[-1] == far.names[-1] == "intercept"
    assert near.ax_.get_yticklabels()[-1].get_text() == "intercept"
    assert far.ax_.get_yticklabels()[-1].get_text().startswith("intercept: 9999.99")
    assert far.ax_.get_xlim()[1] < 1e3
    (arrow,) = (line for line in far.ax_.lines if line.get_marker() == ">")
    assert arrow.get_color() != "gray"  # 0 is not inside


def test_a_long_interval_is_cut_and_named():
    numbers = {
        "mean": np.array([0.5, 40.0, -0.2]),
        "low": np.array([0.1, -10.0, -0.9]),
        "high": np.array([0.9, 90.0, 0.5]),
    }
    drawn = plot.IntervalDisplay(names=("a", "separated", "b"), **numbers).plot()
    assert drawn.ax_.get_xlim()[1] < 2.0
    assert drawn.ax_.get_title() == "separated cut"
    (arrow,) = (line for line in drawn.ax_.lines if line.get_marker() == ">")
    assert arrow.get_color() == "gray"


def test_formulas_are_drawn_along_their_columns_of_numbers():
    """Others stay at their medians, columns of categories at their most frequent level, effects of groups at zero."""
    pytest.importorskip("formulae")
    pandas = pytest.importorskip("pandas")
    rng = np.random.default_rng(5)
    frame = pandas.DataFrame({"a": rng.normal(size=90), "b": rng.normal(size=90), "c": list("uvv") * 30})
    frame["g"] = rng.choice(list("klm"), 90)
    frame["y"] = rng.poisson(np.exp(frame["a"] + (frame["c"] == "u") + 0.3 * (frame["g"] == "k")))
    for formula, levels in (("y ~ a + b + c", {}), ("y ~ a + b + c + (1 | g)", {"levels": "zero"})):
        posterior = cavity.GLM(formula, "poisson").fit(frame)
        axes = posterior.plot(frame, column="a")
        curve = next(line for line in axes.lines if line.get_label() == "expected")
        rows = {"a": curve.get_xdata(), "b": np.full(801, frame["b"].median()), "c": ["v"] * 801}
        np.testing.assert_allclose(curve.get_ydata(), posterior.expected(rows, **levels), rtol=INTEGRAL)
        assert len(axes.lines) == 1  # no rows, which differ in other columns
        assert posterior.plot(frame, columns=("b", "a")).get_xlabel() == "b"
        with pytest.raises(ValueError, match=r"column must be of numbers \('a', 'b'\); 'c' has levels"):
            posterior.plot(frame, column="c")
    assert repr(posterior.plot(frame)) == "<5 Axes>"
    only_levels = cavity.GLM("y ~ c + (1 | g)", "poisson").fit(frame)
    with pytest.raises(ValueError, match="formula must have a column of numbers"):
        only_levels.plot(frame, column="c")
    assert len(cavity.GLM("a ~ 1 + (1 | g)").fit(frame).plot(frame)) == 4


def test_curves_of_formulas_take_paths_and_tables_without_observations(tmp_path):
    pytest.importorskip("formulae")
    table, _ = cavity.data.table("sleepstudy", as_frame=True)
    table.to_csv(tmp_path / "sleep.csv", index=False)
    posterior = cavity.GLM("Reaction ~ Days + (Days | Subject)").fit(table)
    one, other = (
        plot.GroupCurveDisplay.from_posterior(posterior, rows) for rows in (table, str(tmp_path / "sleep.csv"))
    )
    np.testing.assert_array_equal(one.codes, other.codes)
    np.testing.assert_array_equal(one.by_level, other.by_level)
    without = table.drop(columns="Reaction")
    assert plot.GroupCurveDisplay.from_posterior(posterior, without).x is None
    assert len(posterior.plot(without, column="Days").lines) == 1
    assert len(posterior.plot(table, "Reaction", column="Days").lines) == 2


def test_curves_of_levels_are_what_is_predicted_of_them():
    pytest.importorskip("formulae")
    table, _ = cavity.data.table("sleepstudy", as_frame=True)
    posterior = cavity.GLM("Reaction ~ Days + (Days | Subject)").fit(table)
    drawn = plot.GroupCurveDisplay.from_posterior(posterior, table)
    assert (drawn.column, drawn.group, drawn.target) == ("Days", "Subject", "Reaction")
    for label, curve in zip(sorted(set(table["Subject"])), drawn.by_level, strict=True):
        rows = {"Days": drawn.grid, "Subject": [label] * len(drawn.grid)}
        np.testing.assert_allclose(curve, posterior.predict(rows)[0], rtol=AT_REST)
    zero = posterior.predict({"Days": drawn.grid}, levels="zero")[0]
    np.testing.assert_allclose(drawn.expected, zero, rtol=AT_REST)
    np.testing.assert_array_equal(drawn.y, table["Reaction"])
    with pytest.raises(ValueError, match="along must be one of 'Days'"):
        plot.GroupCurveDisplay.from_posterior(posterior, table, along="Subject")
    with pytest.raises(TypeError, match="posterior must be of a mixed model by a formula"):
        plot.GroupCurveDisplay.from_posterior(cavity.GLM("Reaction ~ Days").fit(table), table)


def test_a_formula_of_one_column_is_drawn_as_its_line():
    """The line and the rows, and beside a mixed model its standard deviations and correlations."""
    pytest.importorskip("formulae")
    table, _ = cavity.data.table("sleepstudy", as_frame=True)
    posterior = cavity.GLM("Reaction ~ Days").fit(table)
    line = posterior.plot(table)[-1]
    assert (line.get_xlabel(), line.get_ylabel()) == ("Days", "Reaction")
    expected = next(curve for curve in line.lines if curve.get_label() == "expected")
    target = posterior.predict({"Days": expected.get_xdata()})[0]
    np.testing.assert_allclose(expected.get_ydata(), target, rtol=AT_REST)
    components = cavity.GLM("Reaction ~ Days + (1 | Subject)").fit(table).plot()[1]
    assert [label.get_text() for label in components.get_yticklabels()] == ["sd(residual)", "sd(intercept | Subject)"]


def test_a_learnt_parameter_is_drawn_over_an_effect():
    shape = np.exp(RNG.normal(1.0, 0.5, size=60))
    counts = RNG.poisson(RNG.gamma(shape, np.exp(np.linspace(0.0, 4.0, 60)) / shape, size=(len(X), 60)))
    model = cavity.GLM("negative-binomial", intercept=True)
    many = model.fit_many(X, counts, share="dispersion")
    display = plot.ParameterTrendDisplay.from_posterior(many)
    points, medians = display.ax_.lines[:2]
    np.testing.assert_array_equal(points.get_xydata(), np.column_stack([many.mean[:, 0], many.parameters[:, 0]]))
    np.testing.assert_array_equal(medians.get_xydata().T, display.trend)
    inside = np.sort(many.mean[:, 0])[:10], many.parameters[np.argsort(many.mean[:, 0])[:10], 0]
    np.testing.assert_array_equal(display.trend[:, 0], np.median(inside, axis=1))
    assert display.ax_.get_yscale() == "log"
    assert display.shared == many.shared["median(dispersion)"]
    pyplot.close(display.figure_)
    with pytest.raises(ValueError, match="must have parameters that were learnt by response, got none"):
        plot.ParameterTrendDisplay.from_posterior(cavity.GLM("poisson", intercept=True).fit_many(X, counts))
    with pytest.raises(TypeError, match="must be a ManyPosterior"):
        plot.ParameterTrendDisplay.from_posterior(glm())


def test_marginals():
    """Densities of a coefficient and of a hyperparameter, with their intervals."""
    herds = cavity.data.table("cbpp", as_frame=True)[0]
    posterior = cavity.MixedGLM("p(incidence, size) ~ period + (1 | herd)", integrate="grid").fit(herds)
    marginals = [posterior.marginal(name) for name in ("intercept", "sd(intercept | herd)")]
    display = plot.MarginalDisplay.from_marginals(marginals, level=0.9)
    assert display.names == ("intercept", "sd(intercept | herd)")
    for k, marginal in enumerate(marginals):
        np.testing.assert_allclose(display.intervals[k], marginal.interval(0.9))
        np.testing.assert_allclose(display.densities[k], marginal.density(display.points[k]))
        np.testing.assert_allclose(display.ax_.lines[2 * k].get_ydata(), display.densities[k])
    single = plot.MarginalDisplay.from_marginals(marginals[1], title="herds")
    assert single.ax_.get_xlabel() == "sd(intercept | herd)"
    with pytest.raises(TypeError, match="marginals must be marginals of a posterior"):
        plot.MarginalDisplay.from_marginals(posterior)
