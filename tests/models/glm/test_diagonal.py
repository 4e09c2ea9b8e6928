"""Independent weights: against a naive dense twin, quadrature and exact Gaussian posteriors; symmetries and limits."""

import mpmath as mp
import numpy as np
import pytest
from reference import diagonal as reference
from scipy import integrate, sparse
from scipy.special import log_ndtr
from support.events import writing
from support.glms import GLM
from support.tolerances import AT_REST, EARLY, INTEGRAL, LOSSES, ROOT_EPS, ROUNDING, SOLVES, SUMS

from cavity import likelihoods
from cavity.base.loop import CONVERGED_STATUS, MAX_ITER_STATUS, STOPPED_STATUS, STUCK_STATUS
from cavity.base.rows import Rows
from cavity.ep.options import Options
from cavity.jobs.job import Job
from cavity.models.glm import diagonal, sparse_rows
from cavity.models.glm.diagonal import predict
from cavity.models.linear.prior import Prior

PROBIT = likelihoods.Probit()


def fit(likelihood, X, y, *, prior_mean, prior_variance, offset=None, weights=None, method="ep", options=None):
    """Fit to rows and a prior given as arrays."""
    prior = Prior(prior_mean, prior_variance, np.sqrt(prior_variance))
    return diagonal.fit(likelihood, Rows(X, y, offset, weights), prior, method, options or Options())


class Cauchy(likelihoods.Likelihood):
    """Written in Python; its equal, Student's t with one degree of freedom, is compiled."""

    def log_p(self, y, f):
        return -np.log(np.pi * (1 + (y - f) ** 2))


class ScaledCauchy(likelihoods.Likelihood):
    """Cauchy's distribution of scale 0.22, in Python."""

    def log_p(self, y, f):
        return Cauchy().log_p(y / 0.22, f / 0.22) - np.log(0.22)


def draw(n, d, density=0.6, seed=0):
    """Return a design with zeros in it, labels, prior moments and offsets."""
    rng = np.random.default_rng(seed)
    x = np.where(rng.random((n, d)) < density, rng.normal(size=(n, d)), 0.0)
    x[np.arange(n), rng.integers(0, d, n)] = 1.0  # no row is empty
    y = np.where(x @ rng.normal(size=d) + rng.normal(size=n) > 0, 1.0, -1.0)
    return x, y, rng.normal(size=d), np.exp(rng.normal(size=d)), rng.normal(size=n)


def run(x, y, m=0.0, v=1.0, likelihood=PROBIT, **options):
    """`fit` with a prior given by numbers or vectors; `options` of EP and others."""
    d = x.shape[1]
    ep = {name: options.pop(name) for name in list(options) if hasattr(Options, name)}
    prior = dict(prior_mean=np.broadcast_to(m, (d,)), prior_variance=np.broadcast_to(v, (d,)))
    return fit(likelihood, x, likelihood.check(y), **prior, options=Options(**ep), **options)


def assert_close(a, b, rtol=1e-9, atol=1e-9):
    """Compare two results."""
    np.testing.assert_allclose(a.belief.mean, b.belief.mean, rtol=rtol, atol=atol)
    np.testing.assert_allclose(a.belief.variance, b.belief.variance, rtol=rtol)
    np.testing.assert_allclose(a.loo, b.loo, rtol=rtol, atol=atol)
    assert a.log_evidence == pytest.approx(b.log_evidence, rel=rtol, abs=atol)


def same_bits(a, b):
    """Whether two results are equal to the last bit."""
    pairs = [(a.belief.mean, b.belief.mean), (a.belief.variance, b.belief.variance), (a.loo, b.loo)]
    return all(p.tobytes() == q.tobytes() for p, q in pairs) and a.log_evidence == b.log_evidence


# ---------------------------------------------------------------------------------------------- twins and quadrature


@pytest.mark.parametrize("weighted", [False, True])
def test_adf_is_its_twin(weighted):
    x, y, m, v, offset = draw(40, 5)
    weights = np.random.default_rng(1).choice([0.0, 0.3, 1.0, 2.0, 2.5], 40) if weighted else None
    result = run(x, y, m, v, method="adf", offset=offset, weights=weights)
    mean, variance, log_z = reference.adf(x, y, m, v, offset, weights)
    np.testing.assert_allclose(result.belief.mean, mean, rtol=AT_REST, atol=INTEGRAL)
    np.testing.assert_allclose(result.belief.variance, variance, rtol=AT_REST)
    np.testing.assert_allclose(result.loo, log_z, rtol=AT_REST, atol=SOLVES)
    assert result.log_evidence == pytest.approx(log_z.sum(), rel=LOSSES)
    assert (result.status, result.n_iter, result.trace) == (CONVERGED_STATUS, 1, {})


@pytest.mark.long_cases("True-0.1")
@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("weighted", "power"),
    [
        (False, 1.0),
        (True, 0.5),
        (True, 0.1),
        *(pytest.param(*item, marks=pytest.mark.long) for item in ((True, 1.0), (False, 0.5), (False, 0.1))),
    ],
)
def test_ep_is_its_twin(weighted, power):
    x, y, m, v, offset = draw(12, 4, seed=3)
    weights = np.random.default_rng(1).choice([0.3, 1.0, 2.0, 2.5], 12) if weighted else None
    result = run(x, y, m, v, offset=offset, weights=weights, power=power, tol=1e-11)
    assert result.status == CONVERGED_STATUS
    mean, variance, log_evidence, loo = reference.ep(x, y, m, v, 40, offset, weights, power)
    np.testing.assert_allclose(result.belief.mean, mean, rtol=ROOT_EPS, atol=AT_REST)
    np.testing.assert_allclose(result.belief.variance, variance, rtol=ROOT_EPS)
    np.testing.assert_allclose(result.loo, loo, rtol=ROOT_EPS)
    assert result.log_evidence == pytest.approx(log_evidence, rel=AT_REST)


@pytest.mark.long_cases("likelihood2")
@pytest.mark.sample(2)
@pytest.mark.parametrize(
    "likelihood",
    [PROBIT, likelihoods.Logit(), likelihoods.Poisson(), likelihoods.StudentT(), likelihoods.Clutter(), Cauchy()],
)
def test_adf_matches_moments_on_a_grid(likelihood):
    """Two weights, three rows: each time the moments of prior times likelihood, integrated over the plane."""
    x, y = np.array([[1.0, -0.5], [0.7, 2.0], [0.0, 1.5]]), np.array([1.0, 1.0, 1.0])
    offset, mean, variance, total = np.array([0.1, -0.4, 0.3]), np.array([0.2, -0.1]), np.array([1.0, 0.5]), 0.0
    result = run(x, y, mean, variance, likelihood, method="adf", offset=offset)
    for row, yi, oi in zip(x, y, offset, strict=True):
        axes = [m + np.sqrt(v) * np.linspace(-9, 9, 801) for m, v in zip(mean, variance, strict=True)]
        w = np.stack(np.meshgrid(*axes, indexing="ij"))
        scale = 2 * np.pi * np.sqrt(variance.prod())
        prior = np.exp(-0.5 * np.einsum("jab,j->ab", (w - mean[:, None, None]) ** 2, 1 / variance)) / scale
        f = np.einsum("jab,j->ab", w, row) + oi
        h = prior * np.exp(likelihood.log_p(np.full_like(f, yi), f))

        def integral(values):
            return integrate.simpson(integrate.simpson(values, x=axes[1]), x=axes[0])  # noqa: B023

        z = integral(h)
        mean = np.array([integral(h * wj) for wj in w]) / z
        variance = np.array([integral(h * (wj - mj) ** 2) for wj, mj in zip(w, mean, strict=True)]) / z
        total += np.log(z)
    np.testing.assert_allclose(result.belief.mean, mean, rtol=EARLY, atol=ROOT_EPS)
    np.testing.assert_allclose(result.belief.variance, variance, rtol=EARLY)
    assert result.log_evidence == pytest.approx(total, rel=ROOT_EPS)


def posterior_of_one_weight(x, y, weights, m, v):
    """Return log evidence, mean and variance of one weight by quadrature."""
    w = np.linspace(m - 12 * np.sqrt(v), m + 12 * np.sqrt(v), 40001)
    log_h = -0.5 * (w - m) ** 2 / v - 0.5 * np.log(2 * np.pi * v)
    log_h = log_h + sum(wi * log_ndtr(yi * xi * w) for xi, yi, wi in zip(x, y, weights, strict=True))
    h = np.exp(log_h)
    z = integrate.simpson(h, x=w)
    mean = integrate.simpson(h * w, x=w) / z
    return np.log(z), mean, integrate.simpson(h * (w - mean) ** 2, x=w) / z


@pytest.mark.parametrize("method", ["ep", "adf"])
@pytest.mark.parametrize("weight", [0.4, 1.0])
def test_one_row_one_column_is_exact(method, weight):
    result = run(np.array([[1.7]]), [-1.0], 0.5, 2.0, method=method, weights=np.array([weight]))
    log_z, mean, variance = posterior_of_one_weight([1.7], [-1.0], [weight], 0.5, 2.0)
    assert result.log_evidence == pytest.approx(log_z, rel=INTEGRAL)
    assert result.belief.mean[0] == pytest.approx(mean, rel=INTEGRAL)
    assert result.belief.variance[0] == pytest.approx(variance, rel=INTEGRAL)
    if method == "ep":
        assert result.loo[0] == pytest.approx(log_ndtr(-1.7 * 0.5 / np.sqrt(1 + 1.7**2 * 2)), rel=SOLVES)


def test_one_column_is_close_to_quadrature():
    """EP's error falls as 1/N: here it is 7% of the variance for 30 rows."""
    rng = np.random.default_rng(2)
    x, weights = rng.normal(size=500), rng.choice([0.5, 1.0, 3.0], 500)
    y = np.where(x + rng.normal(size=500) > 0, 1.0, -1.0)
    result = run(x[:, None], y, 0.0, 4.0, weights=weights)
    log_z, mean, variance = posterior_of_one_weight(x, y, weights, 0.0, 4.0)
    sd = np.sqrt(variance)
    assert result.status == CONVERGED_STATUS
    assert result.log_evidence == pytest.approx(log_z, abs=1e-2)
    assert result.belief.mean[0] == pytest.approx(mean, abs=1e-2 * sd)
    assert result.belief.variance[0] == pytest.approx(variance, rel=1e-2)


# ---------------------------------------------------------------------------------------------- exact posteriors


def gaussian_posterior(x, y, m, v, noise, weights):
    """Return mean, variances, log evidence and, for weights 1, leave-one-out log densities of the full model.

    In 60 digits: the matrices have condition numbers up to 1e13.
    """
    with mp.workdps(60):
        n, d = x.shape
        a, r, prior = mp.matrix(x), mp.matrix(y) - mp.matrix(x) * mp.matrix(m), mp.diag(v)
        s = [mp.mpf(noise) / w for w in weights]
        k = mp.diag(s) + a * prior * a.T
        inverse = k**-1
        solved, gain = inverse * r, prior * a.T
        mean, covariance = mp.matrix(m) + gain * solved, prior - gain * inverse * gain.T
        evidence = -(mp.log(mp.det(k)) + (r.T * solved)[0]) / 2
        for si, w in zip(s, weights, strict=True):  # the powers of the likelihood are not normalised
            evidence += mp.log(si) / 2 - w * mp.log(2 * mp.pi * noise) / 2
        loo = [(mp.log(inverse[i, i] / (2 * mp.pi)) - solved[i] ** 2 / inverse[i, i]) / 2 for i in range(n)]
        numbers = [float(mean[j]) for j in range(d)], [float(covariance[j, j]) for j in range(d)]
        return *map(np.array, numbers), float(evidence), np.array([float(one) for one in loo])


@pytest.mark.parametrize("noise", [1e-12, 0.5])
@pytest.mark.parametrize("kind", ["one feature a row", "chain"])
def test_gaussian_without_loops_is_exact(kind, noise):
    """Orthogonal columns with one feature a row, and a graph of rows and columns that is a tree."""
    rng = np.random.default_rng(5)
    if kind == "chain":
        x = np.zeros((5, 6))
        x[np.arange(5), np.arange(5)], x[np.arange(5), np.arange(1, 6)] = rng.normal(size=(2, 5))
    else:
        x = np.zeros((12, 3))
        x[np.arange(12), np.arange(12) % 3] = rng.normal(size=12)
    n, d = x.shape
    m, v = rng.normal(size=d), np.exp(rng.normal(size=d))
    # sites of a power of the likelihood are exact only where they do not have to factorise
    weights = np.ones(n) if kind == "chain" else rng.choice([0.5, 1.0, 2.0], n)
    w = m + np.sqrt(v) * rng.normal(size=d)
    y = x @ w + np.sqrt(noise) * rng.normal(size=n)
    result = run(x, y, m, v, likelihoods.Gaussian(noise), weights=weights, tol=1e-12)
    mean, variance, evidence, loo = gaussian_posterior(x, y, m, v, noise, weights)
    assert result.status == CONVERGED_STATUS
    np.testing.assert_allclose(result.belief.mean, mean, rtol=AT_REST)
    np.testing.assert_allclose(result.belief.variance, variance, rtol=AT_REST)
    assert result.log_evidence == pytest.approx(evidence, rel=AT_REST)
    if kind == "chain":
        np.testing.assert_allclose(result.loo, loo, rtol=AT_REST)


def test_gaussian_with_loops_has_the_exact_mean():
    x, _, m, v, _ = draw(40, 6, seed=7)
    y = np.random.default_rng(0).normal(size=40)
    result = run(x, y, m, v, likelihoods.Gaussian(2.0), tol=1e-12)
    np.testing.assert_allclose(result.belief.mean, gaussian_posterior(x, y, m, v, 2.0, np.ones(40))[0], rtol=AT_REST)


# ---------------------------------------------------------------------------------------------- symmetries


def test_weight_two_is_a_row_twice():
    x, y, m, v, offset = draw(15, 3, seed=1)
    weights = np.ones(15)
    weights[::3] = 2.0
    index = np.repeat(np.arange(15), weights.astype(int))
    once = run(x, y, m, v, offset=offset, weights=weights, tol=1e-12)
    twice = run(x[index], y[index], m, v, offset=offset[index], tol=1e-12)
    assert once.status == twice.status == CONVERGED_STATUS
    np.testing.assert_allclose(once.belief.mean, twice.belief.mean, rtol=AT_REST)
    np.testing.assert_allclose(once.belief.variance, twice.belief.variance, rtol=AT_REST)
    np.testing.assert_allclose(once.loo[index], twice.loo, rtol=AT_REST)
    assert once.log_evidence == pytest.approx(twice.log_evidence, rel=LOSSES)
    once = run(x, y, m, v, method="adf", weights=weights)
    twice = run(x[index], y[index], m, v, method="adf")
    np.testing.assert_array_equal(once.belief.mean, twice.belief.mean)
    np.testing.assert_array_equal(once.belief.variance, twice.belief.variance)


def test_weight_zero_is_no_row():
    x, y, m, v, offset = draw(12, 3, seed=1)
    weights = np.r_[np.ones(9), np.zeros(3)]
    for method in ("ep", "adf"):
        all_rows = run(x, y, m, v, method=method, offset=offset, weights=weights)
        some = run(x[:9], y[:9], m, v, method=method, offset=offset[:9])
        np.testing.assert_allclose(all_rows.belief.mean, some.belief.mean, rtol=ROUNDING)
        np.testing.assert_allclose(all_rows.belief.variance, some.belief.variance, rtol=ROUNDING)
        assert all_rows.log_evidence == pytest.approx(some.log_evidence, rel=ROUNDING)
        if method == "ep":
            f = predict(x[9:], some.belief.mean, some.belief.variance, offset[9:])
            np.testing.assert_allclose(all_rows.loo[9:], log_ndtr(y[9:] * f[0] / np.sqrt(1 + f[1])), rtol=SOLVES)
        else:
            assert not all_rows.loo[9:].any()


@pytest.mark.parametrize("method", ["ep", "adf"])
def test_symmetries(method):
    x, y, m, v, offset = draw(30, 4, seed=2)
    base = run(x, y, m, v, method=method, offset=offset)
    flipped = run(x, -y, -m, v, method=method, offset=-offset)
    np.testing.assert_array_equal(flipped.belief.mean, -base.belief.mean)
    np.testing.assert_array_equal(flipped.belief.variance, base.belief.variance)
    assert flipped.log_evidence == base.log_evidence
    order = np.array([2, 0, 3, 1])
    permuted = run(x[:, order], y, m[order], v[order], method=method, offset=offset)
    np.testing.assert_allclose(permuted.belief.mean, base.belief.mean[order], rtol=AT_REST)
    np.testing.assert_allclose(permuted.belief.variance, base.belief.variance[order], rtol=AT_REST)
    scale = 2.0 ** np.array([3, -2, 0, 400])
    scaled = run(x / scale, y, m * scale, v * scale**2, method=method, offset=offset)
    np.testing.assert_allclose(scaled.belief.mean / scale, base.belief.mean, rtol=SOLVES)
    np.testing.assert_allclose(scaled.belief.variance / scale**2, base.belief.variance, rtol=SOLVES)
    assert scaled.log_evidence == pytest.approx(base.log_evidence, rel=SOLVES)
    shifted = run(x, y, 0.0, v, method=method, offset=offset + x @ m)
    np.testing.assert_allclose(shifted.belief.mean + m, base.belief.mean, rtol=ROOT_EPS)


def test_fixed_point_does_not_depend_on_damping():
    x, y, m, v, offset = draw(30, 4, seed=2)
    results = [run(x, y, m, v, offset=offset, damping=damping, tol=1e-10) for damping in (1.0, 0.7, 0.2)]
    assert {r.status for r in results} == {CONVERGED_STATUS}
    assert results[2].n_iter > results[0].n_iter
    assert_close(results[0], results[1], rtol=ROOT_EPS)
    assert_close(results[0], results[2], rtol=ROOT_EPS)


def test_formats_give_the_same_bits_and_stay_as_they_are():
    x, y, m, v, _ = draw(30, 4, seed=4)
    base = run(x, y, m, v)
    for make in (sparse.csr_matrix, sparse.csr_array, sparse.csc_matrix, sparse.coo_array, sparse.lil_matrix):
        assert same_bits(run(make(x), y, m, v), base)
    rows, columns = np.nonzero(x)
    order = np.lexsort((-columns, rows))  # unsorted, each entry in two halves, with a stored zero
    rows, columns = np.repeat(rows[order], 2), np.repeat(columns[order], 2)
    data = 0.5 * x[rows, columns]
    indptr = np.searchsorted(rows, np.arange(31))
    messy = sparse.csr_matrix((np.r_[data, 0.0], np.r_[columns, 0], np.r_[indptr[:-1], len(data) + 1]), shape=x.shape)
    before = messy.indices.copy(), messy.data.copy()
    assert same_bits(run(messy, y, m, v), base)
    np.testing.assert_array_equal(messy.indices, before[0])
    np.testing.assert_array_equal(messy.data, before[1])
    long = sparse.csr_matrix(x)
    long.indices, long.indptr = long.indices.astype(np.int64), long.indptr.astype(np.int64)
    assert same_bits(run(long, y, m, v), base)
    np.testing.assert_array_equal(
        run(sparse.csr_array(np.sign(x).astype(np.int8)), y).belief.mean, run(np.sign(x), y).belief.mean
    )


@pytest.mark.parametrize("likelihood", [PROBIT, likelihoods.Logit(), likelihoods.StudentT()])
@pytest.mark.parametrize("method", ["ep", "adf"])
def test_repeated_runs_return_the_same_bits(method, likelihood):
    x, y, m, v, offset = draw(200, 30, density=0.2, seed=6)
    weights = np.random.default_rng(1).choice([0.3, 1.0, 2.0], 200)
    first, second = (
        run(x.copy(), y, m, v, likelihood, method=method, offset=offset, weights=weights) for _ in range(2)
    )
    assert same_bits(first, second)


def test_blocks_do_not_matter(set_sizes):
    x, y, m, v, _ = draw(50, 4, seed=4)
    results = [run(x, y, m, v, method=method) for method in ("ep", "adf")]
    set_sizes(KERNEL_ROWS=7)
    assert same_bits(run(x, y, m, v), results[0])
    assert same_bits(run(x, y, m, v, method="adf"), results[1])


# ---------------------------------------------------------------------------------------------- rows in Python


@pytest.mark.parametrize("method", ["ep", "adf"])
@pytest.mark.parametrize("weighted", [False, True])
def test_a_likelihood_in_python_is_its_compiled_equal(method, weighted):
    x, y, m, v, offset = draw(12, 3, seed=2)
    weights = np.random.default_rng(1).choice([0.0, 0.3, 1.0, 2.5], 12) if weighted else None
    options = dict(method=method, offset=offset, weights=weights, max_iter=300)
    slow = run(x, y, m, v, Cauchy(), **options)
    fast = run(x, y, m, v, likelihoods.StudentT(degrees_of_freedom=1), **options)
    assert slow.status == fast.status
    assert_close(slow, fast, rtol=EARLY, atol=ROOT_EPS)


@pytest.mark.parametrize("method", ["ep", "adf"])
def test_powers_that_a_kernel_does_not_know(method):
    """OrderedProbit with one threshold at 0 is probit, but its kernel does not know powers."""
    x, y, m, v, _ = draw(12, 3, seed=3)
    weights = np.random.default_rng(1).choice([0.3, 1.0, 2.5], 12)
    power = 0.5 if method == "ep" else 1.0
    classes = run(x, (y + 1) / 2, m, v, likelihoods.OrderedProbit([0.0]), method=method, weights=weights, power=power)
    labels = run(x, y, m, v, PROBIT, method=method, weights=weights, power=power)
    assert classes.status == labels.status == CONVERGED_STATUS
    assert_close(classes, labels, rtol=ROOT_EPS)


# ---------------------------------------------------------------------------------------------- limits


@pytest.mark.parametrize("method", ["ep", "adf"])
def test_rows_without_features_and_columns_without_rows(method):
    x, y, m, v, offset = draw(20, 4, seed=8)
    base = run(x, y, m, v, method=method, offset=offset)
    wide = np.zeros((23, 6))
    wide[:20, [0, 2, 3, 5]] = x
    prior_m, prior_v = np.full(6, 0.1), np.full(6, 0.3)
    prior_m[[0, 2, 3, 5]], prior_v[[0, 2, 3, 5]] = m, v
    labels, wide_offset = np.r_[y, 1.0, -1.0, 1.0], np.r_[offset, 0.3, 0.3, -2.0]
    weights = np.r_[np.ones(20), 1.0, 2.0, 0.0]
    result = run(wide, labels, prior_m, prior_v, method=method, offset=wide_offset, weights=weights)
    np.testing.assert_array_equal(result.belief.mean[[0, 2, 3, 5]], base.belief.mean)
    np.testing.assert_array_equal(result.belief.variance[[0, 2, 3, 5]], base.belief.variance)
    np.testing.assert_array_equal(result.belief.mean[[1, 4]], 0.1)
    np.testing.assert_array_equal(result.belief.variance[[1, 4]], 0.3)
    log_p = log_ndtr([0.3, -0.3, -2.0])
    np.testing.assert_allclose(result.loo[20:], log_p if method == "ep" else log_p * [1, 2, 0], rtol=SUMS)
    assert result.log_evidence == pytest.approx(base.log_evidence + log_p[0] + 2 * log_p[1], rel=SUMS)


@pytest.mark.parametrize("method", ["ep", "adf"])
@pytest.mark.parametrize("shape", [(3, 0), (0, 3), (2, 3)])
def test_nothing_to_learn(method, shape):
    result = run(np.zeros(shape), np.ones(shape[0]), 0.7, 2.0, method=method)
    assert result.status == CONVERGED_STATUS
    np.testing.assert_array_equal(result.belief.mean, np.full(shape[1], 0.7))
    np.testing.assert_array_equal(result.belief.variance, np.full(shape[1], 2.0))
    assert result.log_evidence == pytest.approx(-shape[0] * np.log(2.0), rel=ROUNDING)
    impossible = run(np.zeros((1, 2)), [-1.0], likelihood=likelihoods.Step(), offset=np.ones(1), method=method)
    assert impossible.log_evidence == -np.inf


@pytest.mark.parametrize("size", [1e-60, 1e-9, 1e9, 1e30])
@pytest.mark.parametrize("method", ["ep", "adf"])
def test_huge_and_tiny_features(size, method):
    """One feature beside moderate ones: a step of its weight, then nothing but it matters to the row."""
    x, y, m, v, _ = draw(20, 4, seed=9)
    x[5, 0] = size
    for likelihood in (
        PROBIT,
        likelihoods.Gaussian(),
        likelihoods.Laplace(),
        likelihoods.StudentT(),
        likelihoods.Logit(),
    ):
        result = run(x, y, m, v, likelihood, method=method)
        assert np.isfinite(result.belief.mean).all()
        assert np.all((result.belief.variance > 0) & np.isfinite(result.belief.variance))
        assert np.isfinite(result.log_evidence)


@pytest.mark.parametrize("likelihood", [PROBIT, likelihoods.Step()])
@pytest.mark.parametrize("n", [1, 127, 128, 300])
def test_probit_rows_without_weights_have_the_bits_of_weights_of_one(n, likelihood):
    """Log Z of such rows are found together; latent values are ordinary, far out, nearly known, or missing."""
    x, y, m, v, offset = draw(n, 4, seed=n)
    x[::7] = 0.0
    if likelihood is PROBIT:
        offset[3::11] *= 1e30
        x[5::13] *= 1e-60
    plain = run(x, y, m, v, likelihood, method="adf", offset=offset)
    weighted = run(x, y, m, v, likelihood, method="adf", offset=offset, weights=np.ones(n))
    assert same_bits(plain, weighted)


def test_a_feature_that_outweighs_the_noise_keeps_its_digits():
    """V r = 1e18: 1 + a d2 has no digit left, the variance is noise/x^2 all the same."""
    result = run(np.array([[1e9, 1.0]]), [3.0], likelihood=likelihoods.Gaussian(), method="adf")
    assert result.belief.variance[0] == pytest.approx(2.0 / (1e18 + 2.0), rel=SOLVES)
    ep = run(np.array([[1e9, 1.0]]), [3.0], likelihood=likelihoods.Gaussian())
    assert ep.belief.variance[0] == pytest.approx(2e-18, rel=SOLVES)
    assert ep.belief.variance[1] == pytest.approx(1 - 1 / (1e18 + 2.0), rel=SOLVES)
    assert ep.log_evidence == pytest.approx(-0.5 * np.log(2 * np.pi * 1e18), rel=SOLVES)


@pytest.mark.parametrize("method", ["ep", "adf"])
def test_out_of_range_is_an_error(method):
    for size in (1e-200, 1e200):
        with pytest.raises(OverflowError, match=r"the latent value of row 1 has mean 0 and variance"):
            run(np.array([[1.0, 0.0], [0.0, size]]), [1.0, 1.0], method=method)
        with pytest.raises(OverflowError, match=r"the latent value of row 1 has mean 0 and variance"):
            run(np.array([[1.0, 0.0], [0.0, size]]), [1.0, 1.0], likelihood=Cauchy(), method=method)


def test_wide_rows_and_a_constant_column():
    """A column in every row, and a row with every column: neither prefetching nor work space may overrun."""
    rng = np.random.default_rng(0)
    x = np.where(rng.random((300, 500)) < 0.02, 1.0, 0.0)
    x[:, 0], x[7] = 1.0, rng.normal(size=500)
    y = np.where(x @ rng.normal(size=500) > 0, 1.0, -1.0)
    result = run(x, y, 0.0, 0.5, method="adf")
    mean, variance, log_z = reference.adf(x, y, np.zeros(500), np.full(500, 0.5))
    np.testing.assert_allclose(result.belief.mean, mean, rtol=ROOT_EPS, atol=SOLVES)
    np.testing.assert_allclose(result.belief.variance, variance, rtol=AT_REST)
    assert run(x, y, 0.0, 0.5).status == CONVERGED_STATUS


# ---------------------------------------------------------------------------------------------- iteration


def test_callback_and_max_iter():
    x, y, m, v, _ = draw(30, 4, seed=2)
    seen = []
    result = run(x, y, m, v, job=Job.checked(writing(seen, "change", stop=3)))
    assert (result.status, result.n_iter) == (STOPPED_STATUS, 3)
    assert [n for n, _ in seen] == [1, 2, 3]
    np.testing.assert_array_equal(result.trace["change"], [change for _, change in seen])
    assert not result.trace["improper"].any()
    assert run(x, y, m, v, max_iter=2).status == MAX_ITER_STATUS
    with pytest.raises(KeyboardInterrupt):
        run(x, y, m, v, job=Job.checked(lambda event: (_ for _ in ()).throw(KeyboardInterrupt)))


def test_skipped_rows_are_counted_and_the_evidence_stays_finite():
    """Two observations of one weight that contradict each other: one site is negative, the other all there is."""
    likelihood = likelihoods.StudentT(degrees_of_freedom=1, scale=0.22)
    result = run(np.ones((2, 1)), [28.3, 2.9], 0.0, 1720.0, likelihood)
    assert result.status == STUCK_STATUS
    assert result.trace["improper"][-1] == 1
    assert np.isfinite(result.log_evidence)
    assert result.belief.variance[0] > 0
    np.testing.assert_array_equal(np.isnan(result.loo), [True, False])
    same = run(np.ones((2, 1)), [28.3, 2.9], 0.0, 1720.0, ScaledCauchy(), max_iter=3)
    few = run(np.ones((2, 1)), [28.3, 2.9], 0.0, 1720.0, likelihood, max_iter=3)
    assert same.trace["improper"][-1] == few.trace["improper"][-1] == 1
    assert same.log_evidence == pytest.approx(few.log_evidence, rel=EARLY)


@pytest.mark.parametrize("n", [1, 2, 3])
def test_a_damped_pass_goes_that_part_of_the_way(n):
    """The site of Gaussian noise of variance 1/2 is (y, 1)/noise, whatever the cavity."""
    result = run(np.ones((1, 1)), [3.0], 0.0, 2.0, likelihoods.Gaussian(0.5), damping=0.3, max_iter=n, tol=1e-300)
    reached = 1 - 0.7**n
    assert 1 / result.belief.variance[0] == pytest.approx(0.5 + 2.0 * reached, rel=ROUNDING)
    assert result.belief.mean[0] / result.belief.variance[0] == pytest.approx(6.0 * reached, rel=ROUNDING)


# ---------------------------------------------------------------------------------------------- kernel


@pytest.mark.parametrize("method", ["adf", "ep"])
@pytest.mark.parametrize("d", [1, 2, 3])
def test_every_row_has_bounds_of_its_own(method, d):
    """An interval without a lower or an upper bound is probit with the other bound as an offset."""
    x, y, m, v, offset = draw(12, d, seed=d)
    bounds = np.random.default_rng(d).normal(size=12)
    intervals = np.where(y[:, None] > 0, np.transpose([bounds, np.full(12, np.inf)]), 0.0)
    intervals += np.where(y[:, None] > 0, 0.0, np.transpose([np.full(12, -np.inf), bounds]))
    result = run(x, intervals, m, v, likelihoods.Interval(1.0), method=method, offset=offset, tol=1e-11)
    if method == "adf":
        mean, variance, loo = reference.adf(x, y, m, v, offset - bounds)
    else:
        mean, variance, log_evidence, loo = reference.ep(x, y, m, v, 40, offset - bounds)
        assert result.log_evidence == pytest.approx(log_evidence, rel=AT_REST)
    np.testing.assert_allclose(result.belief.mean, mean, rtol=ROOT_EPS, atol=AT_REST)
    np.testing.assert_allclose(result.belief.variance, variance, rtol=ROOT_EPS)
    np.testing.assert_allclose(result.loo, loo, rtol=ROOT_EPS)


@pytest.mark.parametrize("d", range(1, 10))
def test_the_change_of_the_last_weight_counts(d):
    """Of its mean in posterior standard deviations, and of its variance; nan is kept."""
    before = np.zeros((d, 4))
    before[:, 1] = 4.0
    for last, change in (((3.0, 4.0), 1.5), ((0.0, 16.0), 0.75), ((0.0, 2.0), 1.0), ((np.nan, 4.0), np.nan)):
        after = before.copy()
        after[-1, :2] = last
        np.testing.assert_array_equal(sparse_rows.kernel.largest_change(before, after), change)


@pytest.mark.parametrize("d", range(1, 10))
def test_a_row_that_would_spoil_its_last_weight_is_left_out(d):
    """A row of weight two whose cavity meets an outlier half way: the site has twice too negative a precision."""
    x = np.append(np.full(d - 1, 1e-3), 1.0)[None]
    likelihood, skipped, state = likelihoods.StudentT(degrees_of_freedom=1.0, scale=1e-3), 0, np.zeros((d, 4))
    state[:, 1] = 1.0
    for y in np.linspace(1.0, 6.0, 26):
        (data,) = sparse_rows.ChunkedRows(likelihood, Rows(sparse.csr_matrix(x), np.array([y]))).chunks()
        *_, rho = data.tilted(0, 1.0, 0.0, float(np.sum(x**2)))
        last = 1.0 + 2.0 * rho / (1.0 + np.sum(x[0, :-1] ** 2) * rho)  # its precision; those of others hardly change
        fresh, moved = np.zeros((d, 2)), state.copy()
        assert data.rows.sweep(0, 1, np.array([0.5]), np.ones(1), 1.0, moved, fresh) == (int(last <= 0), -1)
        assert (last <= 0) == (not fresh.any()) == np.array_equal(moved, state)
        assert np.all(moved[:, 1] > 0)
        skipped += last <= 0
    assert 0 < skipped < 26


@pytest.mark.parametrize("d", range(1, 10))
def test_sites_are_added_without_rounding(d):
    """Many small ones to a large prior, in any column."""
    n = 40
    x = sparse.csr_matrix(np.ones((n, d)))
    (data,), state = sparse_rows.ChunkedRows(PROBIT, Rows(x, np.ones(n))).chunks(), np.zeros((d, 4))
    state[:, :2] = 1e16, 2e16
    sites = np.random.default_rng(d).uniform(0.5, 1.5, (n * d, 2))
    for start in range(0, n, 8):
        data.rows.add(start, start + 8, sites, state)
    for j in range(d):
        for k in range(2):
            exact = mp.mpf(1e16 * (k + 1)) + sum(map(mp.mpf, sites[j::d, k].tolist()))
            assert abs(mp.mpf(state[j, k]) + mp.mpf(state[j, 2 + k]) - exact) < 1e-12


@pytest.mark.parametrize("n", range(2, 18))
@pytest.mark.parametrize("place", [0, -1])
def test_the_rest_of_a_row_keeps_its_digits(n, place):
    """One feature has nearly all of the variance; exact noise of nearly nothing: its variance is that of the others."""
    x = np.full(n, 1e-6)
    x[place] = 1e6
    (data,) = sparse_rows.ChunkedRows(
        likelihoods.Gaussian(1e-18), Rows(sparse.csr_matrix(x[None]), np.array([0.0]))
    ).chunks()
    state, log_z = np.tile([0.0, 1.0], (n, 1)), np.zeros(1)
    assert data.rows.filter(0, 1, None, state, log_z) == -1
    with mp.workdps(60):
        shares = [mp.mpf(a) ** 2 for a in x.tolist()]
        exact = [float(1 - share / (sum(shares) + mp.mpf(1e-18))) for share in shares]
    np.testing.assert_allclose(state[:, 1], exact, rtol=SOLVES)


# ---------------------------------------------------------------------------------------------- predictions and errors


def test_predict():
    x, _, m, v, offset = draw(30, 4, seed=2)
    for rows in (x, sparse.csr_matrix(x), sparse.coo_matrix(x)):
        mean, variance = predict(rows, m, v, offset)
        np.testing.assert_allclose(mean, x @ m + offset, rtol=SUMS, atol=ROUNDING)
        np.testing.assert_allclose(variance, x**2 @ v, rtol=SUMS)
    mean, variance = predict(np.zeros((2, 0)), np.zeros(0), np.zeros(0), np.array([1.0, 2.0]))
    assert (mean.tolist(), variance.tolist()) == ([1.0, 2.0], [0.0, 0.0])
    assert predict(np.zeros((0, 2)), np.zeros(2), np.ones(2))[0].shape == (0,)


BAD = [
    (dict(method="vb"), {}, "method must be one of 'ep', 'adf', got 'vb'"),
    ({}, dict(prior_mean=np.zeros(3)), r"prior_mean must be a number or have shape \(2,\)"),
    ({}, dict(prior_variance=np.ones(3)), r"prior_variance must be a number or have shape \(2,\)"),
    (dict(offset=np.zeros(3)), {}, "offset must .*2"),
    (dict(sample_weight=np.zeros(3)), {}, "sample_weight must .*2"),
    (dict(sample_weight=np.array([1.0, np.nan])), {}, r"sample_weight must be finite, got sample_weight\[1\] = nan"),
    (dict(sample_weight=np.array([1.0, -2.0])), {}, "sample_weight must not be negative, got .*-2.0"),
    (dict(sample_weight=np.array([1.0, 1e10]), method="adf"), {}, "need 1e.10 copies of rows, more than 1e.07"),
    (dict(method="adf", power=0.5), {}, "method='adf' sees each row once"),
    (dict(damping=0.0), {}, r"damping must be in \(0, 1\], got 0.0"),
    (dict(y=[1.0]), {}, "y must have one entry per row of X, that is 2"),
]


@pytest.mark.parametrize(("options", "settings", "message"), BAD)
def test_bad_arguments(options, settings, message):
    options = {"y": [1.0, -1.0]} | options
    with pytest.raises(ValueError, match=message):
        GLM(PROBIT, approximation="diagonal", **settings).fit(np.eye(2), **options)
