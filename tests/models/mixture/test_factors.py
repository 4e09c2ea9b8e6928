"""The factors of a Gaussian mixture against the distributions they are made of, and each other."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import special
from support.examples import examples
from support.tolerances import AT_REST, INTEGRAL, LOSSES, PRINTED, ROOT_EPS, ROUNDING, SLOPES, SOLVES, SUMS

import cavity
from cavity.distributions import Dirichlet, Gamma, NormalWishart, Wishart
from cavity.models.mixture.factors import GammaFactors, WeightFactors, WishartFactors
from cavity.models.mixture.scaling import Scaling
from cavity.models.mixture.state import MixtureState

KINDS = ("full", "tied", "diag", "spherical", "gaps")
every = pytest.mark.parametrize("kind", KINDS)


def random_factors(rng, kind, k, dim):
    """Any factors of a kind; "gaps" are diagonal ones with a beta for each column."""
    mean, beta = rng.normal(size=(k, dim)), rng.gamma(2.0, size=(k, 1)) + 0.1
    if kind in ("full", "tied"):
        several = k if kind == "full" else 1
        root = np.tril(rng.normal(size=(several, dim, dim)), -1) + (1.0 + rng.random()) * np.eye(dim)
        return WishartFactors.of(mean, beta, dim + rng.gamma(2.0, size=several), root @ np.swapaxes(root, 1, 2))
    groups = 1 if kind == "spherical" else dim
    if kind == "gaps":
        beta = rng.gamma(2.0, size=(k, dim)) + 0.1
    return GammaFactors(mean, beta, 1.0 + rng.gamma(2.0, size=(k, groups)), 0.5 + rng.gamma(2.0, size=(k, groups)))


def distributions(factors, kind):
    """The same factors as (distributions of precisions, of precisions and means together where there are such)."""
    if kind == "full":
        return [
            NormalWishart(m, b[0], n, V)
            for m, b, n, V in zip(factors.mean, factors.beta, factors.nu, factors.scatter, strict=True)
        ]
    if kind == "tied":
        return [Wishart(factors.nu[0], factors.scatter[0])]
    return [Gamma(0.5 * factors.nu, 0.5 * factors.scatter)]


def random_weights(rng, sticks, k):
    return WeightFactors(rng.gamma(1.0, size=(k - 1, 2) if sticks else k) + 0.01)


def log_normaliser(factors, kind):
    """The log of the integral of exp(<natural, t>) over means and precisions, written out for one component each."""
    k, dim = factors.mean.shape
    beta = np.broadcast_to(factors.beta, (k, dim))
    total = -0.5 * np.sum(np.log(beta))
    if kind in ("full", "tied"):
        for nu, V in zip(factors.nu, factors.scatter, strict=True):
            total += special.multigammaln(0.5 * nu, dim) - 0.5 * nu * np.linalg.slogdet(0.5 * V)[1]
        return total
    return total + np.sum(special.gammaln(0.5 * factors.nu) - 0.5 * factors.nu * np.log(0.5 * factors.scatter))


@every
@examples(25)
@given(seed=st.integers(0, 2**32 - 1), k=st.integers(1, 3), dim=st.integers(1, 4))
def test_statistics_are_the_gradient_of_the_log_normaliser(kind, seed, k, dim):
    """Natural parameters and statistics belong together: a small step along any direction says so."""
    rng = np.random.default_rng(seed)
    factors = random_factors(rng, kind, k, dim)
    natural = factors.natural()
    step = 1e-5 * rng.normal(size=natural.size) * np.abs(natural)
    step = step + factors.at(natural + step).natural() - (natural + step)  # symmetric matrices stay so
    up, down = factors.at(natural + step), factors.at(natural - step)
    slope = 0.5 * (log_normaliser(up, kind) - log_normaliser(down, kind))
    assert slope == pytest.approx((up.natural() - natural) @ factors.statistics(), rel=SLOPES, abs=ROOT_EPS)


@every
@examples(25)
@given(seed=st.integers(0, 2**32 - 1), k=st.integers(1, 3), dim=st.integers(1, 4))
def test_divergence_is_that_of_exponential_families(kind, seed, k, dim):
    """KL = <natural difference, statistics> - difference of log normalisers, and that of the known distributions."""
    rng = np.random.default_rng(seed)
    q, p = random_factors(rng, kind, k, dim), random_factors(rng, kind, k, dim)
    expected = (q.natural() - p.natural()) @ q.statistics() - log_normaliser(q, kind) + log_normaliser(p, kind)
    assert q.divergence(p) == pytest.approx(expected, rel=AT_REST, abs=AT_REST)
    assert 0.0 <= q.divergence(q) < 1e-28
    if kind == "full":
        pairs = zip(distributions(q, kind), distributions(p, kind), strict=True)
        assert q.divergence(p) == pytest.approx(sum(cavity.kl(a, b) for a, b in pairs), rel=SOLVES)
    same_means = type(q)(p.mean, p.beta, *[getattr(q, name) for name in q.__slots__[2:]])
    inner = zip(distributions(same_means, kind), distributions(p, kind), strict=True)
    assert same_means.divergence(p) == pytest.approx(sum(np.sum(cavity.kl(a, b)) for a, b in inner), rel=INTEGRAL)


def test_divergence_of_close_factors_keeps_its_digits():
    """Half the squared step in the Fisher metric, to four digits, where the naive difference has none."""
    rng = np.random.default_rng(0)
    for kind in KINDS:
        q = random_factors(rng, kind, 2, 3)
        natural = q.natural()
        p = q.at(natural * (1.0 + 1e-7))
        step = p.natural() - natural
        expected = 0.5 * step @ (p.statistics() - q.statistics())
        assert q.divergence(p) == pytest.approx(expected, rel=PRINTED)


@every
def test_naturals_come_back_and_combine(kind):
    rng = np.random.default_rng(1)
    a, b, c = (random_factors(rng, kind, 3, 2) for _ in range(3))
    for x, y in zip(a.at(a.natural()).natural(), a.natural(), strict=True):
        assert x == pytest.approx(y, rel=SOLVES, abs=SOLVES)
    mixed = type(a).combine([(0.5, a), (0.3, b), (0.2, c)])
    expected = 0.5 * a.natural() + 0.3 * b.natural() + 0.2 * c.natural()
    np.testing.assert_allclose(mixed.natural(), expected, rtol=LOSSES, atol=SOLVES)
    order = [2, 0, 1]
    assert a.take(order).divergence(b.take(order)) == pytest.approx(a.divergence(b), rel=SOLVES)
    bad = a.natural().copy()
    bad[a.mean.size] = 1.0  # a beta of -2
    assert a.at(bad) is None
    assert a.at(np.full(bad.size, np.nan)) is None
    with pytest.raises(cavity.NotPositiveDefiniteError):
        type(a).combine([(1.0, a), (1.0, b), (-1.0, type(c)(c.mean, c.beta, c.nu, *_swollen(c)))])


def _swollen(factors):
    return [1e4 * factors.scatter, *[getattr(factors, name) for name in factors.__slots__[4:]]]


@every
def test_combinations_far_from_the_origin_lose_no_digits(kind):
    rng = np.random.default_rng(2)
    a, b = random_factors(rng, kind, 2, 2), random_factors(rng, kind, 2, 2)
    near = type(a).combine([(0.5, a), (0.5, b)])
    far = [
        type(f)(np.round(f.mean * 2**20) / 2**20 + 2.0**30, *[getattr(f, n) for n in f.__slots__[1:]]) for f in (a, b)
    ]
    moved = type(a).combine([(0.5, far[0]), (0.5, far[1])])
    np.testing.assert_allclose(moved.scatter, near.scatter, rtol=SLOPES)


@every
def test_other_frames(kind):
    """Coordinates of another scaling: statistics of the precision scale, and the divergence stays."""
    rng = np.random.default_rng(3)
    q, p = random_factors(rng, kind, 3, 2), random_factors(rng, kind, 3, 2)
    scale = np.array([4.0, 4.0] if kind == "spherical" else [4.0, 0.25])
    shift = np.array([1.0, -2.0])
    q2, p2 = q.rescale(shift, scale), p.rescale(shift, scale)
    np.testing.assert_allclose(q2.mean, (q.mean - shift) * scale)
    assert q2.divergence(p2) == pytest.approx(q.divergence(p), rel=INTEGRAL)
    weights = random_weights(rng, False, 3)
    state = MixtureState(weights, q, np.zeros(3))
    old, new = Scaling(np.zeros(2), np.ones(2)), Scaling(shift, scale)
    back = state.rescale(old, new).rescale(new, old)
    np.testing.assert_allclose(back.factors.scatter, q.scatter, rtol=SUMS)
    np.testing.assert_allclose(back.factors.mean, q.mean, atol=ROUNDING)


@every
def test_contrasts_find_the_same_components_in_another_order(kind):
    rng = np.random.default_rng(4)
    q = random_factors(rng, kind, 5, 2)
    weights = random_weights(rng, False, 5)
    state, order = MixtureState(weights, q, np.arange(5.0)), np.array([3, 1, 4, 0, 2])
    other = MixtureState(WeightFactors(weights.concentration[order]), q.take(order), np.arange(5.0)[order])
    prior = MixtureState(WeightFactors(np.full(5, 0.5)), q, np.zeros(5))
    matched = other.match(state, prior)
    np.testing.assert_array_equal(matched.factors.mean, q.mean)
    np.testing.assert_allclose(matched.weights.concentration, weights.concentration)
    np.testing.assert_array_equal(matched.counts, state.counts)
    contrasts = q.contrasts(q)
    np.testing.assert_allclose(contrasts, contrasts.T, rtol=INTEGRAL)
    np.testing.assert_allclose(np.diagonal(contrasts), 2.0 * 2)  # tr(P C') + tr(P' C) of one component
    assert np.all(contrasts >= 4.0 - 1e-9)


@pytest.mark.parametrize("k", [1, 2, 5])
def test_weights(k):
    rng = np.random.default_rng(k)
    counts = rng.gamma(1.0, size=k)
    dirichlet = random_weights(rng, False, k)
    np.testing.assert_allclose(dirichlet.expected_logs(), Dirichlet(dirichlet.concentration).statistics, rtol=ROUNDING)
    sticks = random_weights(rng, True, k)
    v = rng.beta(*sticks.concentration.T, size=(100_000, k - 1)) if k > 1 else np.empty((1, 0))
    left = np.concatenate([np.ones((len(v), 1)), np.cumprod(1.0 - v, axis=1)], axis=1)
    pi = left * np.concatenate([v, np.ones((len(v), 1))], axis=1)
    np.testing.assert_allclose(sticks.mean(), pi.mean(axis=0), atol=0.01)
    assert sticks.mean().sum() == pytest.approx(1.0, rel=ROUNDING)
    a, b = sticks.concentration.T
    log_v = np.append(special.digamma(a) - special.digamma(a + b), 0.0)
    log_left = np.append(0.0, np.cumsum(special.digamma(b) - special.digamma(a + b)))
    np.testing.assert_allclose(sticks.expected_logs(), log_v + log_left, rtol=SOLVES, atol=ROUNDING)
    for prior in (dirichlet, sticks):
        q = prior.update(prior, counts)
        if k > 1 or not prior.sticks:
            np.testing.assert_allclose(q.counts(prior), counts, rtol=INTEGRAL)
        assert prior.divergence(prior) == 0.0
        assert q.divergence(prior) >= 0.0
    if k > 1:
        later = [counts[j + 1 :].sum() for j in range(k - 1)]
        expected = sticks.concentration + np.column_stack([counts[:-1], later])
        np.testing.assert_allclose(sticks.update(sticks, counts).concentration, expected)


@every
@examples(20)
@given(seed=st.integers(0, 2**32 - 1), strength=st.sampled_from([1e-12, 1e-3, 1.0, 1e8, 1e25]))
def test_renewed_is_the_optimum_and_conjugate(kind, seed, strength):
    """Statistics about any point lead to one factor: prior natural parameters plus sums of rows."""
    rng = np.random.default_rng(seed)
    k, dim, n = 2, 3, 12
    X, r = rng.normal(size=(n, dim)), rng.dirichlet(np.ones(k), size=n)
    prior = random_factors(rng, kind, k, dim)
    prior = type(prior)(prior.mean, strength * prior.beta, *[getattr(prior, name) for name in prior.__slots__[2:]])
    results = []
    for start in (prior.mean, rng.normal(size=(k, dim))):
        d = X[:, None, :] - start
        first = np.einsum("nk,nkd->kd", r, d)
        full = kind in ("full", "tied")
        second = np.einsum("nk,nkd,nke->kde", r, d, d) if full else np.einsum("nk,nkd->kd", r, d * d)
        counts = r.sum(axis=0)[:, None] * np.ones((1, dim if kind == "gaps" else 1))
        about = type(prior)(start, *[getattr(prior, name) for name in prior.__slots__[1:]])
        results.append(about.update(prior, counts, first, second))
    np.testing.assert_allclose(results[0].mean, results[1].mean, rtol=SOLVES, atol=SUMS)
    np.testing.assert_allclose(results[0].scatter, results[1].scatter, rtol=AT_REST, atol=SOLVES)
    totals = r.T @ X
    expected = (prior.beta * prior.mean + totals) / (prior.beta + r.sum(axis=0)[:, None])
    np.testing.assert_allclose(results[0].mean, expected, rtol=SOLVES, atol=SUMS)
    assert results[0].divergence(prior) < 1e3  # also where the prior mean is known to 25 digits
