"""Times that may be censored: events as a column, and ``surv(...)`` on the left of formulas."""

import numpy as np
import pytest
from scipy import integrate, stats
from support.tolerances import AT_REST, EXPANSION, ROUNDING

import cavity
from cavity.likelihoods import Gaussian, Interval

pytest.importorskip("formulae")
pd = pytest.importorskip("pandas")

RNG = np.random.default_rng(3)
N = 60
x = RNG.normal(size=N).round(3)
TIME = np.minimum(2.0 + 0.6 * x + RNG.normal(size=N) * 0.7, 2.5 + RNG.normal(size=N) * 0.5).round(4)
DIED = RNG.random(N) < 0.6
BOUNDS = np.column_stack([TIME, np.where(DIED, TIME, np.inf)])
FRAME = pd.DataFrame(
    {"x": x, "t": TIME, "died": DIED, "status": DIED + 1, "upper": BOUNDS[:, 1], "text": np.where(DIED, "yes", "no")}
).assign(g=np.digitize(TIME, [1.4, 2.0]))
X = np.column_stack([np.ones(N), x])
EVENTS = [DIED, DIED.astype(int), DIED.astype(float).tolist(), pd.Series(DIED, dtype="boolean"), pd.Series(DIED)]


@pytest.mark.parametrize("event", EVENTS, ids=["bool", "int", "list", "boolean", "series"])
def test_events_are_bounds(event):
    posterior = cavity.GLM(Interval(0.5)).fit(X, TIME, event=event)
    assert np.array_equal(posterior.mean, cavity.GLM(Interval(0.5)).fit(X, BOUNDS).mean)


def test_censored_mean_is_that_of_quadrature():
    """One coefficient: the posterior mean and sd by quadrature of the product of densities and survival functions."""
    event, t = DIED[:12], TIME[:12]
    posterior = cavity.GLM(Gaussian(0.5), prior_variance=4.0).fit(np.ones((12, 1)), t, event=event)

    def density(f, power):
        log_p = np.where(event, stats.norm.logpdf(t, f, 0.5**0.5), stats.norm.logsf(t, f, 0.5**0.5)).sum()
        return f**power * np.exp(log_p + stats.norm.logpdf(f, 0.0, 2.0))

    z, first, second = (integrate.quad(density, -8, 12, (k,), points=(2.0,), epsabs=0)[0] for k in range(3))
    mean, variance = first / z, second / z - (first / z) ** 2
    assert abs(posterior.mean[0] - mean) < EXPANSION
    assert posterior.variance[0] == pytest.approx(variance, rel=10 * EXPANSION)
    assert posterior.log_evidence == pytest.approx(np.log(z), abs=EXPANSION)


FORMULAS = [
    "surv(t, died) ~ x",
    "Surv(t, status == 2) ~ x",
    "surv(t, status - 1, event) ~ x",
    "surv(t, text == 'yes') ~ x",
    "surv(t, upper) ~ x",
    "surv(t, upper, 'interval') ~ x",
    "surv(2 * t / 2, died) ~ x",
]


@pytest.mark.parametrize("formula", FORMULAS)
def test_formulas_of_times(formula):
    expected = cavity.GLM(Interval(None), intercept=True).fit(x[:, None], BOUNDS)
    posterior = cavity.GLM(formula, "gaussian").fit(FRAME)
    assert isinstance(posterior.model.likelihood, Interval)
    assert posterior.mean == pytest.approx(expected.mean, abs=AT_REST)
    assert posterior.log_density(FRAME) == pytest.approx(expected.log_density(x[:, None], BOUNDS), abs=AT_REST)
    assert np.isfinite(posterior.residuals(FRAME)).all()


def test_one_argument_is_a_time_without_censoring():
    a, b = (cavity.GLM(f"{y} ~ x", "gaussian").fit(FRAME) for y in ("surv(t)", "t"))
    assert a.log_evidence == pytest.approx(b.log_evidence, abs=AT_REST)
    assert a.residuals(FRAME, kind="response") == pytest.approx(b.residuals(FRAME, kind="response"), abs=EXPANSION)


def test_all_models_take_events():
    mixed = [
        cavity.MixedGLM("surv(t, died) ~ x + (1 | g)", Gaussian(0.5)).fit(FRAME),
        cavity.MixedGLM([cavity.RandomEffects("g")], Gaussian(0.5), intercept=True).fit(
            FRAME[["x", "t", "died", "g"]], "t", event="died"
        ),
    ]
    assert mixed[0].mean == pytest.approx(mixed[1].mean, rel=EXPANSION)
    for model in (cavity.GaussianProcess, cavity.StreamingGP):
        a, b = (
            model("rbf", Interval(0.5)).fit(x[:, None], *y, event=e) for y, e in [((TIME,), DIED), ((BOUNDS,), None)]
        )
        assert np.array_equal(a.predict(x[:, None])[0], b.predict(x[:, None])[0])


def test_columns_of_events_are_found_again():
    columns = FRAME[["x", "t", "died"]].astype(float)
    posterior = cavity.GLM(Interval(0.5), intercept=True).fit(columns, "t", event="died")
    expected = posterior.log_density(x[:, None], BOUNDS)
    assert posterior.roles == {"y": "t", "event": "died"}
    assert posterior.columns == ("x",)
    assert np.array_equal(posterior.log_density(columns), expected)
    assert np.array_equal(posterior.log_density(columns, "t"), expected)
    gaps = columns.copy()
    gaps.loc[3, "died"] = np.nan
    density = posterior.log_density(gaps, missing="nan")
    assert np.isnan(density[3])
    assert np.array_equal(np.delete(density, 3), np.delete(expected, 3))
    more = posterior.update(columns[:5])
    assert np.array_equal(more.mean, posterior.update(x[:5, None], TIME[:5], event=DIED[:5]).mean)
    dropped = cavity.GLM(Interval(0.5), intercept=True).fit(gaps, "t", event="died", missing="drop").dropped
    assert dropped.columns == {"died": 1}
    with pytest.raises(ValueError, match="no column 'died'"):
        posterior.log_density(columns[["x", "t"]])


BAD_EVENTS = [
    (DIED + 1, ValueError, r"got \d in row 0, 1 and 2 are R's codes: recode it, as event = status == 2"),
    (np.where(DIED, 1, -1), ValueError, r"got -1 in row \d+: recode it"),
    (FRAME["text"], TypeError, "'(yes|no)' in row 0: write a comparison, as status == 'died'"),
    (DIED[:9], ValueError, "one entry for each of the 60 times, got 9"),
    (np.where(DIED, 1, np.nan), ValueError, "a value in every row, got nan in row .* missing='drop'"),
    (1.0, ValueError, r"event must have 1 dimension.*, got shape \(\)"),
]


@pytest.mark.parametrize(("event", "error", "message"), BAD_EVENTS, ids=["R", "signs", "text", "short", "nan", "one"])
def test_bad_events(event, error, message):
    with pytest.raises(error, match=message):
        cavity.GLM("gaussian", intercept=True).fit(x[:, None], TIME, event=event)


def test_events_need_one_time_and_a_likelihood_of_times():
    with pytest.raises(ValueError, match=r"got shape \(60, 2\); bounds \(N, 2\) need no events"):
        cavity.GLM(Interval(0.5)).fit(X, BOUNDS, event=DIED)
    with pytest.raises(ValueError, match="event is for times until an event, .* got Poisson"):
        cavity.GLM("surv(t, died) ~ x", "poisson").fit(FRAME)
    with pytest.raises(ValueError, match="event must be None where there is a formula"):
        cavity.GLM("surv(t, died) ~ x", "gaussian").fit(FRAME, event="died")


BAD_FORMULAS = {
    "surv(t, status)": r"status .* 2 in row \d+, .* R's codes: .* surv\(t, status == 2\); bounds are .* 'interval'",
    "surv(t, x)": r"must have lower <= .*; if x has events .* 0 only, got [-.\d]+ in row 0; else exchange the bounds",
    "surv(t, status, event)": r"status must hold 1 .* write|status must hold 1 .* as surv\(t, status == 2\)",
    "surv()": r"surv\(time, event\) has times and 1 or 0",
    "surv(t, upper, died)": "a third argument 'event' or 'interval'",
    "surv(t, gone)": "'gone' missing",
}


@pytest.mark.parametrize("left", BAD_FORMULAS)
def test_bad_formulas(left):
    with pytest.raises(ValueError, match=BAD_FORMULAS[left]):
        cavity.GLM(f"{left} ~ x", "gaussian").fit(FRAME)


def test_bounds_of_new_rows_are_what_they_were_in_the_fit():
    """Upper bounds of 1 or 2 alone would be events, or R's codes of them."""
    bounds = pd.DataFrame({"x": x, "low": np.linspace(0.1, 2.0, N), "high": np.linspace(0.5, 5.0, N)})
    posterior = cavity.GLM("surv(low, high) ~ x", "weibull").fit(bounds)
    for high in (1.0, 2.0):
        new = bounds[:3].assign(high=[high, high, 3.0])
        np.testing.assert_array_equal(posterior.log_density(new[:2]), posterior.log_density(new)[:2])


def test_bounds_in_the_wrong_order_have_a_way_out():
    message = r"the lower .* must not be above the upper ones; got 3.0 and 2.0 in row 1; exchange them; .* event="
    with pytest.raises(ValueError, match=message):
        cavity.GLM("weibull", intercept=True).fit(np.zeros((2, 1)), [[1.0, 2.0], [3.0, 2.0]])
    with pytest.raises(ValueError, match="got 5.0 and 4.0 in row 0; exchange them"):
        cavity.GLM(Interval(0.5), intercept=True).fit(np.zeros((1, 1)), [[5.0, 4.0]])


def test_expressions_of_formulas_and_missing_values():
    """Of times and events: rows without either are left out."""
    rows = FRAME.assign(t=np.where(x > 1.0, np.nan, TIME), status=np.where(x < -1.0, np.nan, DIED + 1))
    posterior = cavity.GLM("surv(exp(t + 1), status == 2, 'event') ~ x", "weibull").fit(rows, missing="drop")
    other = cavity.GLM("surv(t, e) ~ x", "weibull").fit(FRAME.assign(t=np.exp(TIME + 1.0), e=DIED)[np.abs(x) <= 1.0])
    assert posterior.log_evidence == pytest.approx(other.log_evidence, rel=ROUNDING)
    arrays = rows.t.to_numpy(), np.where(x < -1.0, np.nan, DIED)
    dropped = cavity.GLM("weibull", intercept=True).fit(
        x[:, None], np.exp(arrays[0] + 1.0), event=arrays[1], missing="drop"
    )
    assert dropped.log_evidence == pytest.approx(other.log_evidence, rel=ROUNDING)


def test_residuals_of_censored_rows_are_normal():
    """Right-censored rows draw from what is above them, so that all residuals of the true model are standard normal."""
    rng = np.random.default_rng(0)
    X = np.column_stack([np.ones(4000), rng.normal(size=4000)])
    t, c = X @ [1.0, 0.5] + rng.normal(size=4000), rng.normal(1.0, 1.0, 4000)
    posterior = cavity.GLM(Gaussian(1.0)).fit(X, np.minimum(t, c), event=t <= c)
    residuals = posterior.residuals(X, np.column_stack([np.minimum(t, c), np.where(t <= c, t, np.inf)]))
    assert stats.kstest(residuals, "norm").pvalue > 0.01
    assert abs(residuals.mean()) < 4 / 4000**0.5 + ROUNDING


def test_streams_take_events_in_as_the_bounds_that_they_are():
    """Bits of the state; a fit with columns by name finds both again."""
    model = cavity.StreamingGP("rbf", Interval(0.5))
    streams = [model.fit(X[:40], BOUNDS[:40], learn=False) for _ in range(2)]
    streams[0].update(X[40:], TIME[40:], event=DIED[40:])
    streams[1].update(X[40:], BOUNDS[40:])
    assert streams[0].log_bound == streams[1].log_bound
    columns = FRAME[["x", "t", "died"]].assign(one=1.0)[["one", "x", "t", "died"]]
    named = model.fit(columns[:40], "t", event="died", learn=False)
    assert named.update(columns[40:], "t", event="died").log_bound == streams[1].log_bound
    with pytest.raises(ValueError, match=r"event must hold 1 \(observed\)"):
        named.update(X[:2], TIME[:2], event=[2, 1])
