"""The filter and smoother of chains against textbook code, many digits, and differences of the evidence."""

import mpmath as mp
import numpy as np
import pytest
from reference import chain as textbook
from reference.gaussian_process import matern
from support.tolerances import AT_REST, INTEGRAL, LOSSES, ROOT_EPS, ROUNDING, SLOPES, SOLVES

from cavity import _core

kernel = _core.best("chain")
SUMS = {
    "1/2": [(1, 2.0, 1.5)],
    "3/2": [(2, 2.0, 1.5)],
    "5/2": [(3, 2.0, 1.5)],
    "3/2 + 5/2": [(2, 2.0, 1.5), (3, 0.7, 0.5)],
    "four": [(2, 5.0, 1.0), (3, 2.0, 2.0), (3, 20.0, 2.0), (1, 1.0, 1.0)],
}


def blocks_of(processes):
    return np.array([[p, np.sqrt(2 * p - 1) / length, variance] for p, length, variance in processes])


def run(processes, t, rho, g, *, gradient=False):
    """Return log|I + K R|, whether the posterior is proper, mean, variance, alpha, the curvature and the gradient."""
    blocks, n = blocks_of(processes), len(t)
    p = int(blocks[:, 0].sum())
    moments, slopes = np.empty((n, p + p * (p + 1) // 2)), np.empty((len(blocks), 2))
    sites = blocks, np.diff(t, prepend=-np.inf), rho, g
    log_determinant, square, proper = kernel.filter_rows(*sites, moments, None)
    out = [np.empty(n) for _ in range(4)]
    kernel.smooth_rows(*sites, moments, *out, None, slopes)
    return (log_determinant, square, proper, *out, slopes)


def dense(processes, t):
    X = t[:, None]
    return sum(matern(2 * p - 1, variance, length)(X, X) for p, length, variance in processes)


@pytest.fixture(params=SUMS)
def processes(request):
    return SUMS[request.param]


def rows(seed=0):
    rng = np.random.default_rng(seed)
    t = np.sort(np.concatenate([rng.uniform(0, 10, 40), [3.0, 3.0, 3.0 + 1e-12, 1e4, 1e4 + 0.1]]))
    return t, rng.uniform(0.1, 3.0, len(t)), rng.normal(size=len(t))


def test_textbook_filter_and_smoother(processes):
    rng = np.random.default_rng(1)
    t, noise = np.cumsum(rng.uniform(0.05, 1.0, 60)), rng.uniform(0.1, 1.0, 60)
    y = np.sin(t) + rng.normal(size=60)
    log_p, mean, variance = textbook.smooth(processes, t, y, noise)
    log_determinant, square, proper, *moments, _ = run(processes, t, 1.0 / noise, y / noise)
    assert proper
    constants = np.sum(np.log(2 * np.pi * noise))
    assert -0.5 * (square + log_determinant + constants) == pytest.approx(log_p, rel=LOSSES)
    np.testing.assert_allclose(moments[0], mean, rtol=AT_REST, atol=AT_REST)
    np.testing.assert_allclose(moments[1], variance, rtol=AT_REST)


@pytest.mark.parametrize("negative", [False, True])
def test_dense_algebra_of_any_gaps(processes, negative):
    t, rho, g = rows()
    if negative:
        first = int(np.argmax(t == 3.0))
        rho[[5, first, first + 1]] = -0.05, -4.0, 6.0  # up to the second one there is no proper distribution
    gram = dense(processes, t)
    B = np.eye(len(t)) + rho[:, None] * gram
    S = gram @ np.linalg.inv(B)
    log_determinant, _, proper, mean, variance, alpha, curvature, _ = run(processes, t, rho, g)
    assert proper
    assert log_determinant == pytest.approx(np.linalg.slogdet(B)[1], abs=INTEGRAL)
    np.testing.assert_allclose(mean, S @ g, atol=INTEGRAL)
    np.testing.assert_allclose(variance, np.diag(S), rtol=INTEGRAL)
    np.testing.assert_allclose(alpha, g - rho * (S @ g), atol=INTEGRAL)
    np.testing.assert_allclose(curvature, rho - rho**2 * np.diag(S), atol=INTEGRAL)


def test_improper_posteriors_are_told_by_their_inertia(processes):
    """Whatever the filter meets on the way, a posterior is proper if and only if K^-1 + R is positive definite."""
    rng, counts = np.random.default_rng(2), [0, 0]
    t = np.sort(rng.uniform(0, 4, 12))
    inverse = np.linalg.inv(dense(processes, t) + 1e-9 * np.eye(12))
    for _ in range(200):
        rho = rng.normal(0.3, 1.0, 12)
        smallest = np.linalg.eigvalsh(inverse + np.diag(rho))[0]
        if abs(smallest) > 1e-3:
            proper = run(processes, t, rho, rho)[2]
            assert proper == (smallest > 0)
            counts[proper] += 1
    assert min(counts) > 5


def test_gradients_are_those_of_the_evidence(processes):
    t, rho, g = rows(3)

    def evidence(processes):
        log_determinant, _, _, mean, *_ = run(processes, t, rho, g)
        return 0.5 * (mean @ g - log_determinant)

    step, gradient = 1e-5, run(processes, t, rho, g)[-1]
    for k, (p, length, variance) in enumerate(processes):
        for j, (by_variance, by_length) in enumerate(((1, 0), (0, 1))):
            ends = [
                [
                    *processes[:k],
                    (p, length * np.exp(sign * step * by_length), variance * np.exp(sign * step * by_variance)),
                    *processes[k + 1 :],
                ]
                for sign in (1, -1)
            ]
            slope = (evidence(ends[0]) - evidence(ends[1])) / (2 * step)
            assert gradient[k, j] == pytest.approx(slope, abs=SLOPES)


def exact_gram(processes, t):
    """The covariance matrix of a sum of processes (p, length, variance), in the digits of mpmath."""
    out = mp.zeros(len(t))
    for p, length, variance in processes:
        poly = {1: lambda s: 1, 2: lambda s: 1 + s, 3: lambda s: 1 + s + s * s / 3}[p]
        s = [[mp.sqrt(2 * p - 1) * abs(mp.mpf(a) - mp.mpf(b)) / length for b in t] for a in t]
        out += mp.matrix([[variance * poly(value) * mp.exp(-value) for value in row] for row in s])
    return out


@pytest.mark.parametrize("p", [1, 2, 3])
@pytest.mark.parametrize("ratio", [1.0, 0.1, 0.01, 0.001])
def test_no_digits_are_lost_where_times_are_close(p, ratio):
    """The sparse precision of states loses 9e-5 nats at dt/l = 0.01 for 5/2; the filter is compared in 60 digits."""
    rng = np.random.default_rng(4)
    t = np.cumsum(rng.uniform(0.5, 1.5, 25)) * ratio
    y, noise = np.sin(t) + 0.3 * rng.normal(size=25), 0.1
    with mp.workdps(60):
        K = exact_gram([(p, 1.0, 1.0)], t) + mp.mpf(noise) * mp.eye(25)
        x = mp.matrix([mp.mpf(value) for value in y])
        expected = float(-((x.T * mp.lu_solve(K, x))[0] + mp.log(mp.det(K)) + 25 * mp.log(2 * mp.pi)) / 2)
    log_determinant, square, *_ = run([(p, 1.0, 1.0)], t, np.full(25, 1 / noise), y / noise)
    value = -0.5 * (square + log_determinant + 25 * np.log(2 * np.pi * noise))
    assert value == pytest.approx(expected, abs=SOLVES)


@pytest.mark.parametrize("scale", [1.0, 1e-100, 1e100])
def test_no_digits_are_lost_where_noise_is_small(processes, scale):
    """Noise of 1e-14 at equal times: P - u u' rho/scale is 1e-14 with an error of 1e-16, means are off by 2e-4.

    A gradient by G - k y' - y k' + k k' y'h, with entries of 1e14 that cancel, is off by 1e-3.
    """
    t, noise = np.array([0.0, 0.4, 1.0, 1.0, 1.0, 1.0, 1.7, 2.0, 2.0]), 1e-14 * scale**2
    processes = [(p, length, variance * scale**2) for p, length, variance in processes]
    y = 2.0 ** -np.arange(9.0) + 1e-7 * np.sin(np.arange(9.0))  # equal times differ by some sds of the noise
    y[2:6], y[7:] = 0.25 + 1e-7 * np.sin(np.arange(4.0)), 0.5 + 1e-7 * np.sin(np.arange(2.0))
    y = y * scale
    with mp.workdps(80):
        gram, exact_noise = exact_gram(processes, t), mp.mpf(noise)
        inverse = mp.inverse(gram + exact_noise * mp.eye(9))
        x = mp.matrix(y.tolist())
        means = np.array((x - exact_noise * (inverse * x)).tolist(), dtype=float)[:, 0]
        variances = np.array([float(exact_noise - exact_noise**2 * inverse[i, i]) for i in range(9)])
        expected = float(-((x.T * inverse * x)[0] + mp.log(mp.det(gram + exact_noise * mp.eye(9)))) / 2)
        weights, h, slopes = inverse * x * x.T * inverse - inverse, mp.mpf(10) ** -30, []
        for p, length, process_variance in processes:
            one, longer = (exact_gram([(p, length * mp.exp(k * h), process_variance)], t) for k in (0, 1))
            slopes.append(
                [float(mp.fsum((weights * by)[i, i] for i in range(9)) / 2) for by in (one, (longer - one) / h)]
            )
    sites = np.full(9, 1.0 / noise), y / noise
    log_determinant, square, proper, mean, variance, *_, gradient = run(processes, t, *sites)
    np.testing.assert_allclose(gradient, slopes, rtol=AT_REST, atol=AT_REST)
    assert proper
    np.testing.assert_allclose(variance, variances, rtol=AT_REST)
    np.testing.assert_allclose((mean - means) / np.sqrt(variances), 0.0, atol=ROOT_EPS)  # y is rounded by 1e-9 sds
    assert -0.5 * (square + log_determinant + 9 * np.log(noise)) == pytest.approx(expected, rel=ROOT_EPS)


def test_interpolation_is_a_row_without_a_site(processes):
    t, rho, g = rows(5)
    new = np.array([-5.0, t[3], 0.5 * (t[7] + t[8]), 3.0, 2000.0, 1e4 + 5.0])
    blocks, n = blocks_of(processes), len(t)
    p = int(blocks[:, 0].sum())
    moments, slopes = np.empty((n, p + p * (p + 1) // 2)), np.empty((n, p + p * (p + 1) // 2))
    sites = blocks, np.diff(t, prepend=-np.inf), rho, g
    kernel.filter_rows(*sites, moments, None)
    kernel.smooth_rows(*sites, moments, *(np.empty(n) for _ in range(4)), slopes, None)
    after = np.searchsorted(t, new, side="right")
    before = np.where(after > 0, new - t[after - 1], np.inf)
    ahead = np.where(after < n, t[np.minimum(after, n - 1)] - new, np.inf)
    mean, variance = np.empty(len(new)), np.empty(len(new))
    kernel.interpolate(blocks, sites[1], moments, slopes, after, before, ahead, mean, variance)
    both = np.concatenate([t, new])
    order = np.argsort(both, kind="stable")
    extended = [np.concatenate([a, np.zeros(len(new))])[order] for a in (rho, g)]
    _, _, _, all_means, all_variances, *_ = run(processes, both[order], *extended)
    places = np.argsort(order)[n:]
    np.testing.assert_allclose(mean, all_means[places], atol=SOLVES)
    np.testing.assert_allclose(variance, all_variances[places], rtol=SOLVES)
    kernel.interpolate(blocks, sites[1], moments, None, after, before, ahead, mean, variance)  # filtered
    gram = dense(processes, np.append(t[: after[2]], new[2]))
    truth, cross = gram[:-1, :-1], gram[-1, :-1]
    S = np.linalg.solve(truth + np.diag(1.0 / rho[: after[2]]), cross)
    assert variance[2] == pytest.approx(gram[-1, -1] - cross @ S, rel=LOSSES)
    assert mean[2] == pytest.approx(S @ (g / rho)[: after[2]], rel=LOSSES, abs=ROUNDING)


def test_gradients_do_not_depend_on_the_unit_of_y(processes):
    """A unit that is a power of two changes no digit: squares of precisions once left the range of float64."""
    t, rho, g = rows(3)
    *_, curvature, gradient = run(processes, t, rho, g)
    for unit in (2.0**340, 2.0**-340):
        scaled = [(p, length, variance * unit**2) for p, length, variance in processes]
        *_, scaled_curvature, scaled_gradient = run(scaled, t, rho / unit**2, g / unit)
        np.testing.assert_array_equal(scaled_curvature * unit**2, curvature)
        np.testing.assert_array_equal(scaled_gradient, gradient)
