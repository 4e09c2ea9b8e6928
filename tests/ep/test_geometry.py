"""One contract of all geometries: what `cavity.ep.geometry.Geometry` says, against Gaussian algebra on the values."""

import inspect

import numpy as np
import pytest
from support.tolerances import AT_REST, SOLVES

from cavity import likelihoods
from cavity.covariances import Matern12, Matern32
from cavity.ep import geometry as protocol
from cavity.ep.chain import Chain, Times
from cavity.ep.dense import Dense
from cavity.ep.latent import Latent
from cavity.ep.sites import Sites
from cavity.models.gp.chain_processes import make_blocks
from cavity.runs.executors import Threads

N = 12


def weights(d, *, offset=True, prior="matrix", mean=True):
    """A geometry of d weights, and the prior moments of f = X w + offset."""

    def make(rng, threads):
        X, base = rng.normal(size=(N, d)), rng.normal(size=N) if offset else None
        root = np.exp(0.3 * rng.normal(size=d)) if prior == "vector" else np.tril(rng.normal(size=(d, d))) + np.eye(d)
        m = rng.normal(size=d) if mean else np.zeros(d)
        spread = X * root if root.ndim == 1 else X @ root
        return Dense(X, base, m, root, threads), X @ m + (0.0 if base is None else base), spread @ spread.T

    return make


def process(rng, threads):
    """A Gaussian process, and the prior moments of its values."""
    root, base = rng.normal(size=(N, N)), rng.normal(size=N)
    gram = root @ root.T + 0.1 * np.eye(N)
    return Latent(gram.copy(), base, threads), base, gram


def whitened_rows(rng, threads):
    """Rows of a stream: whitened features of few inducing points, on top of what is known."""
    W, base = 0.5 * rng.normal(size=(N, 4)), rng.normal(size=N)
    return Dense(W, base, np.zeros(4), np.ones(4), threads), base, W @ W.T


def chain(rng, threads):
    """A sum of Matern processes over times, some of them equal."""
    t, base = rng.permutation(np.append(rng.uniform(0, 4, N - 1), 2.0)), rng.normal(size=N)
    covariance = Matern12(0.5, 3.0) + Matern32(1.5, 0.7)
    return Chain(make_blocks(covariance), Times(t), base, threads), base, covariance.gram(t[:, None])


GEOMETRIES = {
    "weights, matrix": weights(3),
    "weights, vector": weights(3, prior="vector", offset=False),
    "weights, centred": weights(5, prior="vector", mean=False),
    "more weights than rows": weights(20),
    "stream": whitened_rows,
    "process": process,
    "chain": chain,
}


@pytest.fixture(params=GEOMETRIES)
def case(request):
    """A geometry, prior mean and covariance of its values, and random sites, some of negative precision."""
    rng = np.random.default_rng(sum(map(ord, request.param)))
    with Threads(2) as threads:
        geometry, mean, covariance = GEOMETRIES[request.param](rng, threads)
        tau, rho = rng.normal(size=N), rng.uniform(0.1, 2.0, N)
        rho[3] = -0.01
        yield geometry, mean, covariance, tau, rho


def naive(mean, covariance, tau, rho):
    """Posterior mean and covariance of the values by textbook algebra: V (I + R V)^-1."""
    V = covariance @ np.linalg.inv(np.eye(N) + rho[:, None] * covariance)
    return mean + V @ (tau - rho * mean), V


def values(geometry, belief):
    """Means and variances of all values."""
    groups = geometry.each_group(lambda blocks: [geometry.values(belief, part, x) for part, x in blocks])
    parts = [moments for group in groups for moments in group]
    return tuple(np.concatenate(moments) for moments in zip(*parts, strict=True))


def same(a, b, rtol=1e-8):
    np.testing.assert_allclose(a, b, rtol=rtol, atol=AT_REST)


def test_the_protocol_is_kept(case):
    geometry = case[0]
    assert geometry.n_rows == N
    for name, method in inspect.getmembers(protocol.Geometry, inspect.isfunction):
        if not name.startswith("_"):
            asked = [parameter for parameter in inspect.signature(method).parameters if parameter != "self"]
            assert len(inspect.signature(getattr(geometry, name)).parameters) == len(asked), name
    for name, _ in inspect.getmembers(protocol.Belief, inspect.isfunction):
        assert name.startswith("_") or hasattr(geometry.prior(), name)


def test_beliefs_are_the_posteriors_of_their_sites(case):
    geometry, mean, covariance, tau, rho = case
    m, v = values(geometry, geometry.prior())
    same(m, mean)
    same(v, np.diag(covariance))
    m, v = values(geometry, geometry.belief(*geometry.gather(tau, rho)))
    expected, V = naive(mean, covariance, tau, rho)
    same(m, expected)
    same(v, np.diag(V))
    assert geometry.belief(*geometry.gather(tau, np.full(N, -1e6))) is None


def test_prior_gap_and_divergence(case):
    """Density of the posterior over the prior's at its mean, and KL(q || prior), in the directions seen."""
    geometry, mean, covariance, tau, rho = case
    belief = geometry.belief(*geometry.gather(tau, rho))
    expected, V = naive(mean, covariance, tau, rho)
    shift = expected - mean
    distance2 = shift @ np.linalg.pinv(covariance, rcond=1e-10) @ shift
    log_determinant = np.linalg.slogdet(np.eye(N) + rho[:, None] * covariance)[1]
    same(belief.prior_gap(), 0.5 * (distance2 + log_determinant))
    # tr(prior^-1 V) - rank = -tr(R V)
    same(belief.divergence(), 0.5 * (distance2 + log_determinant - rho @ np.diag(V)))
    assert geometry.prior().divergence() == pytest.approx(0.0, abs=SOLVES)


def test_sums_are_linear_in_the_sites_whoever_adds_them(case):
    geometry, _, _, tau, rho = case
    h, g = geometry.gather(tau, rho)
    twice = geometry.gather(2.0 * tau, 2.0 * rho)
    same(twice[0], 2.0 * h)
    same(twice[1], 2.0 * g)

    def task(part, x, h, g):
        h, g = geometry.add(part, x, tau[part], rho[part], h, g)
        return h, g, float(part.stop - part.start)

    by_blocks = geometry.reduce(task)
    same(by_blocks[0], h)
    same(by_blocks[1], g)
    assert by_blocks[2] == N


def test_blocks_are_in_order_and_cover_all_rows(case):
    geometry = case[0]
    groups = list(geometry.each_group(lambda blocks: [part for part, _ in blocks]))
    rows = [i for group in groups for part in group for i in range(part.start, part.stop)]
    assert rows == list(range(N))


@pytest.mark.parametrize("limit", [0, 48])
def test_a_sweep_is_as_good_as_summing_its_sites(case, limit, set_sizes):
    """Visits one after the other end in the belief of the sites that they leave, and see each other's changes."""
    set_sizes(MAX_RANK_ONE_COLUMNS=limit)
    geometry, mean, covariance, _, _ = case
    if geometry.parallel_only:
        pytest.skip("it has no visits one after the other")
    y = np.random.default_rng(5).normal(size=N)
    sites, tau, rho = Sites(likelihoods.Gaussian(0.5), y), np.zeros(N), np.zeros(N)
    belief, skipped, log_z = geometry.sweep(sites, geometry.prior(), slice(0, N), tau, rho, 1.0, 1.0)
    assert skipped == 0
    same(tau, 2.0 * y)
    same(rho, np.full(N, 2.0))
    second = geometry.belief(*geometry.gather(tau, rho))
    converged = geometry.converged_belief(belief)
    for mine, theirs in zip(values(geometry, converged), values(geometry, second), strict=True):
        same(mine, theirs)
    assert second.change_from(converged) < 1e-7
    # the normalisers of one pass over Gaussian noise are the predictive densities of the rows in turn
    noisy = covariance + 0.5 * np.eye(N)
    gap = np.linalg.solve(noisy, y - mean) @ (y - mean)
    same(log_z, -0.5 * (gap + np.linalg.slogdet(2.0 * np.pi * noisy)[1]))


def test_sharpened_beliefs_keep_their_mean(case):
    geometry, _, _, tau, rho = case
    belief = geometry.belief(*geometry.gather(tau, np.abs(rho)))
    sharper = geometry.sharpen(belief, 10.0)
    before, after = values(geometry, belief), values(geometry, sharper)
    same(after[0], before[0], 1e-6)
    assert np.all(after[1] < before[1])


def test_coordinates_measure_changes_by_the_divergence(case):
    """Half the squared length of a small step is the divergence between the two beliefs."""
    geometry, mean, covariance, tau, rho = case
    h, g = geometry.gather(tau, rho)
    belief = geometry.belief(h, g)
    size = 1e-3
    step = geometry.gather(size * np.cos(np.arange(N)), size * np.sin(np.arange(N)))
    squared_length = geometry.slope(belief, *step)
    moved = naive(mean, covariance, tau + size * np.cos(np.arange(N)), rho + size * np.sin(np.arange(N)))
    expected, V = naive(mean, covariance, tau, rho)
    root = np.linalg.pinv(covariance, rcond=1e-10)
    ratio = V @ (root + np.diag(rho + size * np.sin(np.arange(N))) - root - np.diag(rho))
    shift = moved[0] - expected
    inverse = root + np.diag(rho + size * np.sin(np.arange(N)))
    divergence = 0.5 * (np.trace(ratio) - np.linalg.slogdet(np.eye(N) + ratio)[1] + shift @ inverse @ shift)
    assert 0.5 * squared_length == pytest.approx(divergence, rel=2e-2)
