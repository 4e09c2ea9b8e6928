"""Matern processes as chains: the prior and fits against dense covariances, golden values, knots, warnings."""

import numpy as np
import pytest
from support.term_priors import dense_precision
from support.tolerances import AT_REST, EARLY, EXPANSION, INTEGRAL, OPTIMUM, PRINTED, ROOT_EPS, SOLVES
from terms.test_walks import chain_counts

import cavity
from cavity.covariances import Matern
from cavity.terms import MaternChain
from cavity.terms.matern_steps import Transition, find_knots, weigh_hermite
from cavity.terms.saved import describe_term, restore_term

pd = pytest.importorskip("pandas")

SMOOTHNESSES = (0.5, 1.5, 2.5)
TIMES = np.array([0.0, 0.4, 0.45, 1.0, 2.2, 2.9, 3.0, 7.0])


def covariance(smoothness, t, u, sd=1.0, lengthscale=1.0):
    k = Matern(smoothness, variance=sd**2, lengthscale=lengthscale)
    return k.cross(np.reshape(t, (-1, 1)), np.reshape(u, (-1, 1)))


def table_by_group():
    return {"t": np.tile(TIMES, 2)[:-2], "g": np.repeat(list("ab"), 8)[:-2]}


@pytest.mark.parametrize("smoothness", SMOOTHNESSES)
@pytest.mark.parametrize("group", [None, "g"])
def test_the_prior_is_that_of_dense_algebra(smoothness, group):
    """The covariance of f, log|P|, and derivatives by differences."""
    term = MaternChain("t", smoothness, group, max_states=1000)
    built = term.build(table_by_group())
    prior, p = built.prior, built.p
    free = np.log([0.7, 1.9])
    P, value = dense_precision(prior, free)
    f = np.linalg.inv(P)[::p, ::p]
    expected = covariance(smoothness, TIMES, TIMES, 0.7, 1.9)
    np.testing.assert_allclose(f[:8, :8], expected, atol=AT_REST)
    if group is not None:
        np.testing.assert_allclose(f[8:, 8:], expected[:6, :6], atol=AT_REST)
        np.testing.assert_allclose(f[:8, 8:], 0.0, atol=SOLVES)
    assert value.log_determinant == pytest.approx(np.linalg.slogdet(P)[1], abs=ROOT_EPS)
    for i, step in enumerate(1e-5 * np.eye(2)):
        up, down = prior.evaluate(free + step), prior.evaluate(free - step)
        slope = (up.log_determinant - down.log_determinant) / 2e-5
        assert value.log_determinant_slopes[i] == pytest.approx(slope, rel=OPTIMUM)
        differences = (up.coefficients - down.coefficients) / 2e-5
        unit = np.abs(differences).max()
        np.testing.assert_allclose(value.slopes[:, i] / unit, differences / unit, atol=OPTIMUM)


@pytest.mark.parametrize("p", [1, 2, 3])
def test_transitions_of_short_and_long_steps(p):
    """Q against P - A P A' where this keeps its digits, and leading terms where it does not."""
    transition = Transition(p)
    step = transition.step(np.array([0.8, 30.0, 1e6]))
    Q = transition.P - step.A @ transition.P @ step.A.transpose(0, 2, 1)
    np.testing.assert_allclose(np.linalg.inv(step.inverse), Q, atol=SOLVES)
    np.testing.assert_allclose(step.log_determinant, np.linalg.slogdet(Q)[1], atol=INTEGRAL)
    d = 1e-5
    scale = d ** (p - 0.5 - np.arange(p))
    i = p - 1.0 - np.arange(p)
    factorials = np.array([2.0, 1.0, 1.0])[3 - p :]
    leading = transition.q / (i[:, None] + i + 1.0) / factorials / factorials[:, None]
    exact = np.linalg.inv(transition.step(np.array([d])).inverse[0]) / scale / scale[:, None]
    np.testing.assert_allclose(exact, leading, rtol=PRINTED)


GOLDEN = {
    0.5: (
        -284.6138729615,
        [0.98292757, 0.50203853, 1.29861691, 1.31290802],
        [0.33801876, 0.30590920, 0.25713127, 0.30074535],
    ),
    1.5: (
        -280.4689626927,
        [0.96432376, 0.38459138, 1.20582776, 1.24570228],
        [0.26958119, 0.22538923, 0.17082358, 0.24838579],
    ),
    2.5: (
        -284.1784457474,
        [0.90829789, 0.29023928, 1.11062230, 1.20597352],
        [0.25767141, 0.20984217, 0.15718517, 0.23909953],
    ),
}


@pytest.mark.parametrize("smoothness", SMOOTHNESSES)
def test_golden_values_of_poisson_chains(smoothness):
    """EP by other code on the dense covariance; the chain of smoothness 5/2 loses what it says."""
    i, y = chain_counts()
    t = 0.1 * i + 0.03 * np.sin(1.7 * i)
    name = f"matern{2 * smoothness:.0f}2(t)"
    model = cavity.MixedGLM(
        f"y ~ 0 + {name[:-1]}, max_states=200)", "poisson", effect_covariances={name: {"sd": 0.8, "lengthscale": 2.0}}
    )
    posterior = model.fit({"t": t, "y": y}, offset=np.full(200, 0.5))
    log_evidence, mean, sd = GOLDEN[smoothness]
    assert posterior.log_evidence == pytest.approx(log_evidence, abs=AT_REST if smoothness < 2 else 5 * EARLY)
    moments = posterior.predict({"t": t[[0, 50, 100, 199]]}, offset=0.5)
    np.testing.assert_allclose(moments[0], mean, atol=ROOT_EPS)
    np.testing.assert_allclose(np.sqrt(moments[1]), sd, atol=ROOT_EPS)


@pytest.mark.parametrize("smoothness", SMOOTHNESSES)
def test_poisson_chains_are_dense_processes(smoothness):
    """Equal times, gaps of a million: evidence and predictions at states, between, before and after them."""
    rng = np.random.default_rng(0)
    t = np.concatenate([np.linspace(0.0, 10.0, 25), np.full(3, 5.0), [1e6, 1e6 + 1.0]])
    offset = 0.01 * np.arange(30)  # rows that are equal would be one site
    y = rng.poisson(np.exp(np.sin(t)))
    kernel = Matern(smoothness, variance=0.49, lengthscale=1.5)
    process = cavity.GaussianProcess(kernel, "poisson").fit(t[:, None], y, offset=offset, learn=False, tol=INTEGRAL)
    name = f"matern{2 * smoothness:.0f}2(t)"
    arguments = {name: {"sd": 0.7, "lengthscale": 1.5}}
    formula = f"y ~ 0 + {name[:-1]}, max_states=100000000)"
    posterior = cavity.MixedGLM(formula, "poisson", effect_covariances=arguments).fit({"t": t, "y": y}, offset=offset)
    assert posterior.log_evidence == pytest.approx(process.log_evidence, abs=ROOT_EPS)
    new = np.array([5.0, 0.2, -0.7, 10.3, 500.0, 1e6 + 0.5, 2e6])
    moments = posterior.predict({"t": new}, offset=0.0), process.predict(new[:, None], offset=0.0)
    for mine, dense in zip(*moments, strict=True):
        np.testing.assert_allclose(mine, dense, atol=ROOT_EPS)


def test_levels_have_processes_of_their_own():
    """By group, Gaussian noise, new levels: against dense algebra."""
    rng = np.random.default_rng(1)
    table = table_by_group()
    y = rng.normal(size=14)
    name = "matern32(t | g)"
    model = cavity.MixedGLM(
        f"y ~ {name[:-1]}, max_states=1000)",
        cavity.likelihoods.Gaussian(0.3),
        prior_variance=4.0,
        effect_covariances={name: {"sd": 0.7, "lengthscale": 1.9}},
    )
    posterior = model.fit(pd.DataFrame(table | {"y": y}))
    new = {"t": np.array([0.2, 9.0, -1.0, 0.4]), "g": np.array(["a", "b", "b", "zz"])}

    def prior(one, other):
        same = one["g"][:, None] == other["g"]
        return 4.0 + same * covariance(1.5, one["t"], other["t"], 0.7, 1.9)

    V = prior(table, table) + 0.3 * np.eye(14)
    expected = -0.5 * (y @ np.linalg.solve(V, y) + np.linalg.slogdet(V)[1] + 14 * np.log(2 * np.pi))
    assert posterior.log_evidence == pytest.approx(expected, abs=AT_REST)
    gain = np.linalg.solve(V, prior(table, new)).T
    mean, variance = posterior.predict(pd.DataFrame(new), levels="new")
    np.testing.assert_allclose(mean, gain @ y, atol=ROOT_EPS)
    np.testing.assert_allclose(variance, np.diagonal(prior(new, new) - gain @ prior(table, new)), atol=ROOT_EPS)


@pytest.mark.parametrize("p", [1, 2, 3])
def test_polynomials_between_knots(p):
    """Any polynomial of degree 2 p - 1 is that of its values and derivatives; and the variance that is missing."""
    polynomial = np.polynomial.Polynomial(np.random.default_rng(p).normal(size=2 * p))
    ends = [polynomial.deriv(i)(x) if i else polynomial(x) for x in (0.0, 1.0) for i in range(p)]
    share = np.linspace(0.0, 1.0, 7)
    np.testing.assert_allclose(weigh_hermite(share, p) @ ends, polynomial(share), atol=SOLVES)
    middle = np.array([0.5 * np.sqrt(2 * p - 1) * 0.1])
    lacking = Transition(p).interpolate(middle, middle)[1][0]
    assert lacking == pytest.approx({1: 0.5, 2: 0.11, 3: 0.015}[p] * 0.1 ** (2 * p - 1), rel=0.05)


def test_knots_are_around_times():
    """Also of times that are knots but for their last bit."""
    rng = np.random.default_rng(6)
    origin, h = 0.3, 0.1 / 3.0
    times = origin + h * rng.integers(1, 1000, 300)
    times = np.concatenate([times, np.nextafter(times, -np.inf), np.nextafter(times, np.inf)])
    knots = np.unique(find_knots(np.zeros(900), times, origin, h)[:, 1])
    after = np.searchsorted(knots, times)
    assert np.all(after < len(knots))
    before = np.searchsorted(knots, times, side="right") - 1
    assert np.all(before >= 0)
    assert np.all(knots[after] - knots[before] < 1.01 * h)
    assert np.all((knots[before] == times) == (knots[after] == times))


@pytest.mark.parametrize(("smoothness", "tolerance"), [(1.5, 0.01), (2.5, EXPANSION)])
def test_knots_are_nearly_exact(smoothness, tolerance):
    """Very close times, and a wide gap: states at knots, against the dense covariance."""
    rng = np.random.default_rng(2)
    t = np.sort(rng.uniform(0.0, 6.0, 150))
    t[t > 3.0] += 4.0
    t[10] = t[9] + 1e-12
    y = np.sin(t) + 0.5 * rng.normal(size=150)
    built = MaternChain("t", smoothness, max_states=60).build({"t": t})
    assert built.has_interpolation
    assert len(built.times) <= 60
    name = f"matern{2 * smoothness:.0f}2(t)"
    arguments = {name: {"sd": 1.0, "lengthscale": 1.5}}
    model = cavity.MixedGLM(
        f"y ~ 0 + {name[:-1]}, max_states=60)", cavity.likelihoods.Gaussian(0.25), effect_covariances=arguments
    )
    posterior = model.fit({"t": t, "y": y})
    V = covariance(smoothness, t, t, 1.0, 1.5) + 0.25 * np.eye(150)
    expected = -0.5 * (y @ np.linalg.solve(V, y) + np.linalg.slogdet(V)[1] + 150 * np.log(2 * np.pi))
    assert posterior.log_evidence == pytest.approx(expected, abs=tolerance)
    new = np.linspace(-1.0, 12.0, 40)
    gain = np.linalg.solve(V, covariance(smoothness, t, new, 1.0, 1.5)).T
    mean, variance = posterior.predict({"t": new})
    np.testing.assert_allclose(mean, gain @ y, atol=tolerance)
    np.testing.assert_allclose(
        variance, 1.0 - np.sum(gain.T * covariance(smoothness, t, new, 1.0, 1.5), axis=0), atol=tolerance
    )


@pytest.mark.parametrize("formula", ["matern12(t)", "matern32(t)", "matern52(t)", "matern32(t | g) + (1 | g)"])
@pytest.mark.filterwarnings("ignore:the log evidence has no maximum")
def test_parameters_are_at_a_maximum(formula, tmp_path):
    rng = np.random.default_rng(3)
    t = rng.uniform(0.0, 20.0, 200)
    frame = pd.DataFrame({"t": t, "g": rng.choice(list("uv"), 200)})
    frame["y"] = rng.poisson(np.exp(0.5 + np.sin(t)))
    best = cavity.MixedGLM(f"y ~ {formula}", "poisson").fit(frame)
    assert best.converged
    name = best.structured_terms[0]
    values = best.model.effect_covariances
    for parameter in ("sd", "lengthscale"):
        for factor in (0.98, 1.02):
            moved = values | {name: values[name] | {parameter: values[name][parameter] * factor}}
            other = cavity.MixedGLM(f"y ~ {formula}", "poisson", effect_covariances=moved).fit(frame)
            assert other.log_evidence < best.log_evidence
    best.save(tmp_path / "fit.npz")
    second, new = cavity.load(tmp_path / "fit.npz"), pd.DataFrame({"t": [-1.0, 3.3, 25.0], "g": list("uvu")})
    np.testing.assert_array_equal(second.predict(new), best.predict(new))
    assert len(best.curve(name, n_points=7).columns["mean"]) == 7 * (2 if "|" in name else 1)


def test_the_prior_of_a_term_is_of_its_standard_deviation():
    t = np.linspace(0.0, 10.0, 40)
    y, prior = np.random.default_rng(7).poisson(np.exp(np.sin(t))), cavity.priors.PC(1.0)
    posterior = cavity.MixedGLM("y ~ matern32(t)", "poisson", priors={"matern32(t)": prior}).fit({"t": t, "y": y})
    sd = posterior.model.effect_covariances["matern32(t)"]["sd"]
    expected = prior.log_density(sd) + np.log(sd)
    assert posterior.hyperparameters.log_prior == pytest.approx(expected, abs=ROOT_EPS)


@pytest.mark.parametrize("smoothness", SMOOTHNESSES)
def test_a_file_gives_the_same_rows(smoothness):
    for term in (MaternChain("t", smoothness), MaternChain("t", smoothness, "g", max_states=4)):
        table = table_by_group()
        built = term.build(table)
        second = restore_term(describe_term(built))
        free = [0.1, 0.4]
        np.testing.assert_array_equal(second.design(table).toarray(), built.design(table).toarray())
        later = table | {"t": table["t"] + 0.77}
        np.testing.assert_array_equal(second.extra_variance(later, free), built.extra_variance(later, free))
        assert restore_term(describe_term(term)).name == term.name
        assert len(built.effect_names()) == built.size


def fit_gaussian(formula, t, lengthscale):
    name = formula.replace(", max_states=200", "")
    arguments = {name: {"sd": 1.0, "lengthscale": lengthscale}}
    model = cavity.MixedGLM(f"y ~ 0 + {formula}", cavity.likelihoods.Gaussian(0.25), effect_covariances=arguments)
    return model.fit({"t": t, "y": np.sin(t)})


def test_a_warning_of_lost_digits():
    """And the loss is no larger than it says."""
    t = np.linspace(0.0, 10.0, 200)
    with pytest.warns(
        cavity.NumericalWarning, match=r"states of matern52\(t\) are 0.0503 apart beside .* off by 0.0002"
    ):
        posterior = fit_gaussian("matern52(t, max_states=200)", t, 5.0)
    V = covariance(2.5, t, t, 1.0, 5.0) + 0.25 * np.eye(200)
    expected = -0.5 * (np.sin(t) @ np.linalg.solve(V, np.sin(t)) + np.linalg.slogdet(V)[1] + 200 * np.log(2 * np.pi))
    assert abs(posterior.log_evidence - expected) < 2e-4


@pytest.mark.parametrize(("smoothness", "lengthscale"), [(1.5, 15.0), (2.5, 1.6)])
def test_moments_without_a_warning(smoothness, lengthscale, recwarn):
    """Where the log evidence is said to lose up to 1e-6, means and standard deviations are within 1e-8."""
    t = np.linspace(0.0, 10.0, 200)
    name = f"matern{2 * smoothness:.0f}2(t"
    posterior = fit_gaussian(f"{name}, max_states=200)", t, lengthscale)
    assert not [warning for warning in recwarn if issubclass(warning.category, cavity.NumericalWarning)]
    assert 200e-16 * (10.0 / 199 / lengthscale) ** (-2 * smoothness) > 5e-7  # no settings far from those that warn
    noise = cavity.likelihoods.Gaussian(0.25)
    dense = cavity.GaussianProcess(Matern(smoothness, 1.0, lengthscale), noise, method="dense")
    dense = dense.fit(t[:, None], np.sin(t), learn=False)
    assert posterior.log_evidence == pytest.approx(dense.log_evidence, abs=OPTIMUM)
    mean, variance = posterior.predict({"t": t})
    np.testing.assert_allclose(mean, dense.mean, atol=ROOT_EPS)
    np.testing.assert_allclose(np.sqrt(variance), np.sqrt(dense.variance), atol=ROOT_EPS)


def test_a_warning_of_times_that_are_nearly_equal():
    """1e-12 apart: beside other terms digits are lost, as many as the warning says; a chain alone loses none."""
    t = np.concatenate([np.linspace(0.0, 10.0, 25), [5.0, 5.0, 3.0, 3.0 + 1e-12, 1e6]])
    with pytest.warns(cavity.NumericalWarning, match=r"states of matern12\(t\) are 1e-12 apart .* off by 0.000[1-9];"):
        posterior = fit_gaussian("matern12(t)", t, 1.5)
    kernel, noise = Matern(0.5, 1.0, 1.5), cavity.likelihoods.Gaussian(0.25)
    dense, chain = (
        cavity.GaussianProcess(kernel, noise, method=method).fit(t[:, None], np.sin(t), learn=False)
        for method in ("dense", "chain")
    )
    assert posterior.log_evidence == pytest.approx(dense.log_evidence, abs=PRINTED)
    assert chain.log_evidence == pytest.approx(dense.log_evidence, abs=SOLVES)


def test_a_warning_of_knots_that_are_far_apart():
    t = np.linspace(0.0, 100.0, 500)
    with pytest.warns(
        cavity.NumericalWarning, match=r"knots of matern52\(t\) are 1.69 apart .* max_states=334 of the term"
    ):
        fit_gaussian("matern52(t)", t, 1.5)


def test_a_lengthscale_without_a_maximum():
    """A straight line: the search ends where its range ends, and says so."""
    t = np.linspace(0.0, 10.0, 50)
    y = t + 0.1 * np.random.default_rng(4).normal(size=50)
    with pytest.warns(cavity.NumericalWarning, match=r"no maximum in the lengthscale\(matern12\(t\)\): .* beyond 30"):
        posterior = cavity.MixedGLM("y ~ matern12(t)", cavity.likelihoods.Gaussian(0.01)).fit({"t": t, "y": y})
    assert posterior.converged


@pytest.mark.parametrize(
    ("term", "message"),
    [
        (lambda: MaternChain("t", 2.0), "smoothness must be 0.5, 1.5 or 2.5, got 2.0"),
        (lambda: MaternChain(None), "column must be the name or number of a column"),
        (lambda: MaternChain("t", max_states=1), "max_states must be at least 2"),
        (lambda: MaternChain("c"), r"column 'c' must have different values for matern32\(c\)"),
        (lambda: MaternChain("bad"), "column 'bad' must be finite, got .* = nan"),
        (lambda: MaternChain("far"), "column 'far' must be finite, got .* = inf"),
    ],
)
def test_what_is_refused(term, message):
    with pytest.raises((ValueError, TypeError), match=message):
        term().build(
            {"t": TIMES, "c": np.ones(8), "bad": np.append(TIMES[1:], np.nan), "far": np.append(TIMES[1:], np.inf)}
        )


def test_rows_off_the_states_need_parameters():
    built = MaternChain("t", 1.5).build({"t": TIMES})
    with pytest.raises(ValueError, match="rows between states depend on the parameters"):
        built.design({"t": np.array([0.1])})
