"""The clutter model: golden values, the naive twin, quadrature, fixed points, equivariances, extremes, errors."""

import itertools
import tracemalloc
import warnings
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from reference import clutter as reference
from support.clutters import FIELDS, assert_same_bits, bits, draw, finite, points_of, sweeper_of
from support.events import writing
from support.tolerances import AT_REST, EARLY, INTEGRAL, LOSSES, OPTIMUM, ROOT_EPS, ROUNDING, SOLVES, SUMS

import cavity
from cavity import Clutter, ConvergenceWarning, _core
from cavity.models.clutter import cavities, sweeps

GOLDEN_X = np.array([0.1, 2.3])


# ---------------------------------------------------------------------------------------------- truth


def test_golden_ep():
    """From tests/golden/make_clutter.py."""
    posterior = Clutter().fit(GOLDEN_X, tol=1e-14)
    assert posterior.converged
    assert posterior.mean == pytest.approx(0.78995965714228971505, rel=SUMS)
    assert posterior.variance == pytest.approx(40.126282042868738147, rel=SUMS)
    assert posterior.log_evidence == pytest.approx(-5.129415372413431, rel=ROUNDING)


def test_golden_adf():
    posterior = Clutter().fit(GOLDEN_X, method="adf")
    assert posterior.mean == pytest.approx(0.7243547551406376, rel=ROUNDING)
    assert posterior.variance == pytest.approx(53.89526255331836, rel=ROUNDING)
    assert posterior.log_evidence == pytest.approx(-5.144342579226638, rel=ROUNDING)


def test_golden_exact_is_what_the_reference_integrates():
    mean, variance, log_evidence = reference.exact(GOLDEN_X[:, None])
    assert (mean, variance, log_evidence) == pytest.approx(
        (0.6371317338526923, 51.60175779973849, -5.105467275850213), rel=AT_REST
    )


@pytest.mark.parametrize("d", [1, 2, 3, 8, 17, 130])
def test_adf_equals_its_naive_twin(d):
    x = draw((60, d), seed=d)
    posterior = Clutter(clutter_mean=0.3, prior_variance=8.0).fit(x, method="adf")
    m, v, evidence = reference.adf(x, centre=0.3, v0=8.0)
    np.testing.assert_allclose(posterior.mean, m, rtol=LOSSES, atol=SUMS)
    assert posterior.variance == pytest.approx(v, rel=LOSSES)
    assert posterior.log_evidence == pytest.approx(evidence, rel=SOLVES)


@pytest.mark.sample(3)
@pytest.mark.parametrize("schedule", ["sequential", "parallel"])
@pytest.mark.parametrize("d", [1, 2, 9, 130])
@pytest.mark.parametrize("damping", [1.0, 0.6])
def test_ep_equals_its_naive_twin(schedule, d, damping):
    x = draw((50, d), seed=d + 1)
    parallel = schedule == "parallel"
    posterior = Clutter(prior_variance=8.0).fit(x, schedule=schedule, damping=damping, max_iter=400, tol=1e-13)
    m, v, evidence, loo, tau, rho = reference.ep(x, 60 if damping == 1 else 130, damping=damping, v0=8.0)
    assert posterior.converged
    np.testing.assert_allclose(posterior.mean, m, rtol=INTEGRAL, atol=SOLVES)
    assert posterior.variance == pytest.approx(v, rel=INTEGRAL)
    assert posterior.log_evidence == pytest.approx(evidence, rel=LOSSES)
    np.testing.assert_allclose(posterior.loo_log_density, loo, rtol=INTEGRAL, atol=INTEGRAL)
    np.testing.assert_allclose(posterior.sites.tau, tau, rtol=ROOT_EPS, atol=AT_REST)
    np.testing.assert_allclose(posterior.sites.rho, rho, rtol=ROOT_EPS, atol=AT_REST)
    assert parallel or posterior.trace["double_loop"] == 0


@pytest.mark.parametrize("d", [1, 3])
def test_single_sweeps_equal_the_naive_twin(d):
    """Before convergence too: the order of updates, the damping and the skipping of improper cavities."""
    x = draw((40, d), seed=3)
    for n_sweeps, damping, parallel in itertools.product((1, 2, 5), (1.0, 0.5, 0.3), (False, True)):
        sweeper = sweeper_of(points_of(x), damping=damping)
        for _ in range(n_sweeps):
            sweeper.renew_all() if parallel else sweeper.visit_one_by_one(len(x))
        m, v, *_ = reference.ep(x, n_sweeps, damping=damping, parallel=parallel)
        mean, variance = sweeper.sites.moments
        units = sweeper.points.units
        np.testing.assert_allclose(units.origin + mean / units.scale, m, rtol=AT_REST)
        assert variance / units.scale**2 == pytest.approx(v, rel=AT_REST)


@pytest.mark.long_cases("2")
@pytest.mark.parametrize("d", [1, 2])
def test_ep_with_moments_by_brute_force(d):
    """The whole fixed point again, with tilted moments integrated on a grid instead of by formula."""
    x = draw((6, d), seed=11, theta=1.0)
    model = dict(w=0.3, c=8.0, s=1.0, m0=0.0, v0=9.0)
    m, v, *_ = reference.ep(x, 25, **model, moments=reference.tilted_by_quadrature)
    posterior = Clutter(clutter_weight=0.3, clutter_variance=8.0, prior_variance=9.0).fit(x)
    np.testing.assert_allclose(posterior.mean, m, rtol=OPTIMUM, atol=EARLY)
    assert posterior.variance == pytest.approx(v, rel=OPTIMUM)


@pytest.mark.parametrize("d", [1, 2])
def test_adf_with_moments_by_brute_force(d):
    x = draw((6, d), seed=11, theta=1.0)
    m, v, evidence = reference.adf(x, w=0.3, c=8.0, v0=9.0, moments=reference.tilted_by_quadrature)
    posterior = Clutter(clutter_weight=0.3, clutter_variance=8.0, prior_variance=9.0).fit(x, method="adf")
    np.testing.assert_allclose(posterior.mean, m, rtol=OPTIMUM, atol=EARLY)
    assert posterior.variance == pytest.approx(v, rel=OPTIMUM)
    assert posterior.log_evidence == pytest.approx(evidence, rel=EARLY)


@pytest.mark.long_cases("1", "2")
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_ep_is_close_to_the_exact_posterior(seed):
    x = draw((100, 1), seed=seed)
    mean, variance, log_evidence = reference.exact(x)
    posterior = Clutter().fit(x[:, 0])
    assert abs(posterior.mean - mean) < 0.03 * np.sqrt(variance)
    assert posterior.variance == pytest.approx(variance, rel=0.03)
    assert abs(posterior.log_evidence - log_evidence) < 0.01
    adf = Clutter().fit(x[:, 0], method="adf")
    assert abs(adf.log_evidence - log_evidence) < 3


@pytest.mark.parametrize("d", [1, 2, 5])
@pytest.mark.parametrize("schedule", ["sequential", "parallel"])
def test_fixed_point(d, schedule):
    """cavity x site = posterior, and the tilted moments are the posterior's, for every site."""
    x = draw((80, d), seed=4)
    posterior = Clutter().fit(x, schedule=schedule, tol=1e-12)
    full, sites = posterior.posterior, posterior.sites
    product = posterior.prior * sites.prod()
    np.testing.assert_allclose(product.mean, posterior.mean, rtol=LOSSES)
    assert product.variance == pytest.approx(posterior.variance, rel=LOSSES)
    assert product.log_scale == pytest.approx(posterior.log_evidence, rel=LOSSES)
    for i in range(len(x)):
        rest = full / sites[i]
        log_z, r, m, v = reference.tilted(x[i], rest.mean, rest.variance, 0.5, 10.0, 1.0)
        np.testing.assert_allclose(m, posterior.mean, rtol=AT_REST, atol=INTEGRAL)
        assert v == pytest.approx(posterior.variance, rel=AT_REST)
        assert posterior.loo_log_density[i] == pytest.approx(log_z, rel=AT_REST)
        assert posterior.clutter_probability(x)[i] == pytest.approx(1 - r, rel=ROOT_EPS)
        assert (rest.normalized() * sites[i]).log_scale == pytest.approx(log_z, rel=AT_REST)


def test_schedules_orders_and_dampings_share_the_fixed_point():
    x = draw((100, 2), seed=9)
    base = Clutter().fit(x)
    for options in (
        dict(schedule="parallel"),
        dict(order="random", rng=1),
        dict(order=np.arange(100)[::-1]),
        dict(damping=0.4, max_iter=300),
        dict(order=np.random.default_rng(0).permutation(100)),
    ):
        other = Clutter().fit(x, **options)
        np.testing.assert_allclose(other.mean, base.mean, rtol=AT_REST)
        assert other.variance == pytest.approx(base.variance, rel=AT_REST)
        np.testing.assert_allclose(other.loo_log_density, base.loo_log_density, rtol=EARLY)


def test_order_of_adf():
    x = draw((30, 2), seed=2)
    order = np.random.default_rng(3).permutation(30)
    ordered = Clutter().fit(x, method="adf", order=order)
    m, v, evidence = reference.adf(x[order])
    np.testing.assert_allclose(ordered.mean, m, rtol=SOLVES)
    assert ordered.log_evidence == pytest.approx(evidence, rel=SOLVES)
    shuffled = Clutter().fit(x[order], method="adf")
    np.testing.assert_array_equal(ordered.sites.tau[order], shuffled.sites.tau)
    first, second = (Clutter().fit(x, method="adf", order="random", rng=7) for _ in range(2))
    assert first.mean.tolist() == second.mean.tolist() != ordered.mean.tolist()


# ---------------------------------------------------------------------------------------------- convergence


@pytest.mark.parametrize("n", [20, 50, 100, 200])
def test_every_draw_of_minkas_setting_converges(n):
    x = draw((1000, n, 1), seed=n)
    posterior = Clutter().fit(x)  # a ConvergenceWarning would be an error here
    assert posterior.converged.all()
    assert (posterior.status == "converged").all()
    assert (posterior.trace["double_loop"] <= 70).all()
    # each is a fixed point: one more sweep from the sites found moves nothing
    sites = posterior._sites
    for b in np.flatnonzero(posterior.trace["double_loop"] > 0)[:5]:
        sweeper = sweeper_of(points_of(x[b]))
        sweeper.sites.site_tau[:], sweeper.sites.site_rho[:] = sites.site_tau[b], sites.site_rho[b]
        sweeper.refresh()
        change, complete = sweeper.step(None)
        assert complete[0]
        assert change[0] < 1e-7
        assert (1 / posterior.variance[b] - posterior.sites.rho[b]).min() > 0


@pytest.mark.sample(2)
@pytest.mark.parametrize("n", [20, 50])
def test_parallel_always_converges_too(n):
    for row in draw((200, n), seed=n):
        assert Clutter().fit(row, schedule="parallel").converged


def test_not_converging_is_said():
    x = draw((50,), seed=1)
    with pytest.warns(ConvergenceWarning, match=r"not converged: max_iter reached \(last change .*max_iter 2\)"):
        posterior = Clutter().fit(x, max_iter=2)
    assert not posterior.converged
    assert posterior.n_iter == 2
    assert np.isfinite(posterior.log_evidence)
    assert np.isfinite(posterior.loo_log_density).all()
    with pytest.warns(ConvergenceWarning, match="stopped by callback"):
        stopped = Clutter().fit(x, callback=lambda event: event.n_iter == 3)
    assert stopped.n_iter == 3
    seen = []
    done = Clutter().fit(x, callback=writing(seen, "change"))
    assert [n for n, _ in seen] == list(range(1, done.n_iter + 1))
    np.testing.assert_array_equal([c for _, c in seen], done.trace["change"])


@pytest.mark.sample(4)
@pytest.mark.parametrize("n_iter", range(1, 12))
@pytest.mark.filterwarnings("ignore::cavity.ConvergenceWarning")
def test_unfinished_fits_are_finite_on_hard_data(n_iter):
    for schedule in ("sequential", "parallel"):
        for row in draw((40, 20), seed=20):
            posterior = Clutter().fit(row, max_iter=n_iter, schedule=schedule)
            assert np.isfinite([posterior.mean, posterior.variance, posterior.log_evidence]).all()
            assert posterior.variance > 0
            assert np.isfinite(posterior.loo_log_density).all()
            assert not posterior.converged or posterior.trace["change"][-1] <= 1e-10


# ---------------------------------------------------------------------------------------------- symmetries


@given(st.floats(-60, 60), st.floats(-1e3, 1e3), st.integers(0, 5))
def test_affine_equivariance(log2_scale, shift, seed):
    x, a = draw((25,), seed=seed + 100), 2.0**log2_scale
    base = Clutter(clutter_mean=0.5).fit(x)
    b = shift * a
    moved = Clutter(
        clutter_variance=10 * a * a,
        noise_variance=a * a,
        prior_variance=100 * a * a,
        prior_mean=b,
        clutter_mean=0.5 * a + b,
    ).fit(a * x + b)
    sd = np.sqrt(base.variance)
    if base.trace["double_loop"] == moved.trace["double_loop"] == 0:
        assert (moved.mean - b) / a == pytest.approx(base.mean, abs=OPTIMUM * sd)
        assert moved.variance / a**2 == pytest.approx(base.variance, rel=OPTIMUM)
        assert moved.log_evidence + len(x) * np.log(a) == pytest.approx(base.log_evidence, abs=OPTIMUM)


def test_rotation_equivariance():
    x, angle = draw((60, 2), seed=6), 0.7
    turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    base, turned = Clutter().fit(x), Clutter().fit(x @ turn.T)
    np.testing.assert_allclose(turned.mean, turn @ base.mean, rtol=AT_REST)
    assert turned.log_evidence == pytest.approx(base.log_evidence, rel=SOLVES)


def test_a_coordinate_of_zeros_in_one_dimension_or_as_a_column():
    x = draw((40,), seed=1)
    flat, column = Clutter().fit(x), Clutter().fit(x[:, None])
    assert flat.mean == column.mean[0]
    assert flat.log_evidence == column.log_evidence
    assert isinstance(flat.sites, cavity.Gaussian)
    assert isinstance(column.sites, cavity.SphericalGaussian)


# ---------------------------------------------------------------------------------------------- batches and bits


@pytest.mark.parametrize(
    "options", [{}, dict(damping=0.7), dict(order=np.arange(30)[::-1]), dict(schedule="parallel"), dict(method="adf")]
)
@pytest.mark.parametrize("d", [1, 2])
def test_a_batch_has_the_bits_of_its_problems(options, d):
    x = draw((37, 30, d), seed=5)
    batch = Clutter().fit(x, **options)
    for b in (0, 1, 15, 16, 36):
        single = Clutter().fit(x[b], **options)
        if options.get("method") == "adf" and (1 / single.variance <= single.sites.rho).any():
            continue
        one = [np.asarray(getattr(single, name)) for name in FIELDS[:-1]]
        assert_same_bits(one, [np.asarray(getattr(batch, name))[b] for name in FIELDS[:-1]])
        np.testing.assert_array_equal(single.sites.tau, batch.sites.tau[b])


def test_threads_do_not_change_bits():
    x = draw((300, 20, 1), seed=5)
    assert_same_bits(bits(Clutter().fit(x)), bits(Clutter().fit(x, n_threads=3)))
    x = draw((30, 20, 2), seed=5)
    assert_same_bits(bits(Clutter().fit(x)), bits(Clutter().fit(x, n_threads=2)))
    x = draw((300_000,), seed=5)
    base = Clutter().fit(x, schedule="parallel")
    assert_same_bits(bits(base), bits(Clutter().fit(x, schedule="parallel", n_threads=2)))
    assert_same_bits(bits(base), bits(Clutter().fit(x, schedule="parallel", n_threads=3)))


@pytest.mark.parametrize("variant", _core.variants("clutter")[:-1])
def test_variants_return_the_same_bits(variant, monkeypatch):
    data = draw((200,), seed=1), draw((40, 11), seed=2), draw((20, 25, 1), seed=3), draw((9000,), seed=4)
    options = {}, dict(schedule="parallel"), {}, dict(schedule="parallel")
    base = [bits(Clutter().fit(x, **o)) for x, o in zip(data, options, strict=True)]
    adf = [bits(Clutter().fit(x, method="adf"))[:3] for x in data]
    for module in (cavities, sweeps):
        monkeypatch.setattr(module, "kernel", _core.load("clutter", variant))
    monkeypatch.setattr(sweeps, "lane_kernel", _core.load("clutter_lanes", variant))
    for x, o, expected, filtered in zip(data, options, base, adf, strict=True):
        assert_same_bits(bits(Clutter().fit(x, **o)), expected)
        assert_same_bits(bits(Clutter().fit(x, method="adf"))[:3], filtered)


@pytest.mark.parametrize("kind", ["float32", "strided", "readonly", "fortran", "int", "list"])
def test_data_of_every_kind(kind):
    x = np.round(draw((50, 3), seed=1) * 4) / 4
    if kind == "int":
        x = np.round(x)
    wide = np.zeros((50, 6))
    wide[:, ::2] = x
    frozen = x.copy()
    frozen.flags.writeable = False
    given_x = {
        "float32": x.astype(np.float32),
        "strided": wide[:, ::2],
        "readonly": frozen,
        "fortran": np.asfortranarray(x),
        "int": x.astype(np.int16),
        "list": x.tolist(),
    }[kind]
    for options in ({}, dict(schedule="parallel"), dict(method="adf")):
        base, other = Clutter().fit(x, **options), Clutter().fit(given_x, **options)
        assert base.mean.tolist() == other.mean.tolist()
        assert base.log_evidence == other.log_evidence


@pytest.mark.long_cases("parallel")
@pytest.mark.parametrize("schedule", ["sequential", "parallel"])
def test_memory_is_the_sites(schedule):
    for d in (1, 6):
        x = draw((400_000, d), seed=1)
        Clutter().fit(x[:100], schedule=schedule, n_threads=1)
        tracemalloc.start()
        posterior = Clutter().fit(x, schedule=schedule, n_threads=1)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        # beside the sites: scratch of the size of a block, far below one more double a point
        assert peak <= (d + 2) * 8 * len(x) + 2.9e6
        assert posterior.converged


# ---------------------------------------------------------------------------------------------- extremes


@pytest.mark.parametrize("schedule", ["sequential", "parallel"])
def test_far_outliers(schedule):
    """300 sigma away: the point is clutter, costs its clutter density, and leaves the posterior of the others."""
    x = draw((60,), seed=3)
    base = Clutter().fit(x, schedule=schedule)
    far = Clutter().fit(np.append(x, [2.0 + 300.0]), schedule=schedule)
    assert finite(far)
    assert far.mean == pytest.approx(base.mean, rel=SOLVES)
    assert far.variance == pytest.approx(base.variance, rel=SOLVES)
    expected = np.log(0.5) + reference.log_normal(302.0, 0.0, 10.0)
    assert far.log_evidence - base.log_evidence == pytest.approx(expected, rel=SOLVES)
    assert far.clutter_probability(np.append(x, 302.0))[-1] == 1.0
    assert finite(Clutter().fit(np.append(x, [1e5, -1e7]), schedule=schedule))


@pytest.mark.parametrize("schedule", ["sequential", "parallel"])
@pytest.mark.parametrize("w", [1e-300, 1e-12, 0.5, 1 - 1e-12, np.nextafter(1, 0)])
def test_weights_near_the_ends(w, schedule):
    x = draw((40,), seed=2, w=0.0)
    posterior = Clutter(clutter_weight=w).fit(x, schedule=schedule)
    assert finite(posterior)
    if w == 1e-300:  # then this is the conjugate normal model
        rho = 1 / 100 + len(x)
        assert posterior.variance == pytest.approx(1 / rho, rel=SOLVES)
        assert posterior.mean == pytest.approx(x.sum() / rho, rel=SOLVES)
    if w > 0.9:  # and here the data say next to nothing
        assert posterior.variance == pytest.approx(100, rel=OPTIMUM)


@pytest.mark.parametrize("n", [1, 2, 3])
def test_tiny_data(n):
    x = draw((n, 1), seed=n)
    posterior = Clutter().fit(x[:, 0], max_iter=1000)
    assert finite(posterior)
    m, v, evidence, *_ = reference.ep(x, 400)
    assert posterior.mean == pytest.approx(m[0], rel=EARLY, abs=ROOT_EPS)
    assert posterior.log_evidence == pytest.approx(evidence, rel=AT_REST)


def test_one_point_is_exact():
    _, _, m, v = reference.tilted(np.array([1.7]), np.array([0.0]), 100.0, 0.5, 10.0, 1.0)
    for options in ({}, dict(schedule="parallel"), dict(method="adf")):
        posterior = Clutter().fit([1.7], **options)
        assert posterior.mean == pytest.approx(m[0], rel=SUMS)
        assert posterior.variance == pytest.approx(v, rel=SUMS)


def test_duplicates_and_constants():
    for x in (np.full(50, 3.25), np.zeros(10), np.repeat(draw((10,), seed=1), 20), np.full((30, 4), -1.5)):
        assert finite(Clutter().fit(x))
        assert finite(Clutter().fit(x, schedule="parallel"))


@pytest.mark.parametrize("scale", [1e-80, 1e-30, 1e30, 1e80])
def test_extreme_units(scale):
    x = draw((40,), seed=2)
    base = Clutter().fit(x)
    model = dict(clutter_variance=10 * scale**2, noise_variance=scale**2, prior_variance=100 * scale**2)
    posterior = Clutter(**model).fit(x * scale)
    assert finite(posterior)
    assert posterior.mean / scale == pytest.approx(base.mean, rel=INTEGRAL)
    assert posterior.variance / scale**2 == pytest.approx(base.variance, rel=INTEGRAL)


@pytest.mark.parametrize("prior_variance", [1e-60, 1e60, 1e90])
@pytest.mark.parametrize("clutter_variance", [1e-20, 1e60])
def test_extreme_ratios(prior_variance, clutter_variance):
    x = draw((40,), seed=2)
    assert finite(Clutter(prior_variance=prior_variance, clutter_variance=clutter_variance).fit(x))


def test_a_thousand_dimensions():
    x = draw((40, 1000), seed=2)
    posterior = Clutter().fit(x)
    assert finite(posterior)
    m, v, evidence, *_ = reference.ep(x, posterior.n_iter)
    np.testing.assert_allclose(posterior.mean, m, rtol=ROOT_EPS, atol=AT_REST)
    assert posterior.log_evidence == pytest.approx(evidence, rel=SOLVES)


def test_far_from_zero_nothing_is_lost():
    x = draw((100,), seed=2)
    base = Clutter(prior_mean=0.0).fit(x)
    other = np.round(x * 2.0**20) / 2.0**20 + 2.0**30
    moved = Clutter(prior_mean=2.0**30, clutter_mean=2.0**30).fit(other)
    second = Clutter().fit(np.round(x * 2.0**20) / 2.0**20)
    assert moved.mean - 2.0**30 == pytest.approx(second.mean, abs=OPTIMUM)
    assert moved.variance == pytest.approx(second.variance, rel=SOLVES)
    assert abs(second.mean - base.mean) < 1e-5


# ---------------------------------------------------------------------------------------------- streaming and scoring


@pytest.mark.parametrize("d", [1, 3])
def test_update_is_adf_on_top(d):
    x = draw((60, d), seed=4)
    x = x[:, 0] if d == 1 else x
    full = Clutter().fit(x, method="adf")
    parts = Clutter().fit(x[:25], method="adf").update(x[25:40]).update(x[40:])
    np.testing.assert_allclose(parts.mean, full.mean, rtol=SOLVES)
    assert parts.variance == pytest.approx(full.variance, rel=SOLVES)
    assert parts.log_evidence == pytest.approx(full.log_evidence, rel=SOLVES)
    assert parts.n_samples == 60
    assert parts.sites.shape == (20,)
    assert (parts.prior * parts.sites.prod()).log_scale == pytest.approx(full.log_evidence, rel=LOSSES)
    start = Clutter().fit(x[:30])
    before = start.mean if d == 1 else start.mean.copy()
    start.update(x[30:])
    assert np.all(start.mean == before)


def test_update_of_a_batch():
    x = draw((5, 40, 1), seed=4)
    batch = Clutter().fit(x[:, :20]).update(x[:, 20:], n_threads=2)
    for b in range(5):
        single = Clutter().fit(x[b, :20]).update(x[b, 20:])
        assert batch.mean[b, 0] == single.mean[0]
        assert batch.log_evidence[b] == single.log_evidence


def test_predictive_densities():
    x = draw((50, 2), seed=1)
    posterior, new = Clutter().fit(x), draw((7, 2), seed=2)
    expected = [reference.tilted(row, posterior.mean, posterior.variance, 0.5, 10.0, 1.0)[:2] for row in new]
    np.testing.assert_allclose(posterior.log_density(new), [e[0] for e in expected], rtol=SOLVES)
    np.testing.assert_allclose(
        posterior.clutter_probability(new, fitted=False), [1 - e[1] for e in expected], rtol=INTEGRAL
    )
    batch = Clutter().fit(np.stack([x, x + 1]))
    np.testing.assert_array_equal(batch.log_density(np.stack([new, new]))[0], posterior.log_density(new))
    np.testing.assert_array_equal(batch.clutter_probability(np.stack([x, x + 1]))[0], posterior.clutter_probability(x))


def test_judging_points_without_a_proper_cavity_is_refused():
    x = np.random.default_rng(8).normal(0, 6, 13)
    posterior = Clutter().fit(x, method="adf")
    assert (1 / posterior.variance <= posterior.sites.rho).any()
    with pytest.raises(ValueError, match="clutter_probability: after ADF some points have no proper cavity"):
        posterior.clutter_probability(x)
    with pytest.raises(ValueError, match="loo_log_density: after ADF some points have no proper cavity"):
        posterior.loo_log_density  # noqa: B018
    assert np.isfinite(posterior.clutter_probability(x, fitted=False)).all()
    with pytest.raises(ValueError, match="loo_log_density: EP has left some points without a proper cavity"):
        replace(posterior, method="ep").loo_log_density  # noqa: B018


def test_the_trace_has_a_row_for_every_iteration():
    x = draw((300, 20, 1), seed=20)
    batch = Clutter().fit(x)
    some = np.flatnonzero(batch.trace["double_loop"] > 0)[0]
    for b in (0, some):
        single = Clutter().fit(x[b])
        n_iter = batch.n_iter[b]
        assert n_iter == single.n_iter == len(single.trace["change"]) == len(single.trace["improper"])
        for name in ("change", "improper"):
            np.testing.assert_array_equal(batch.trace[name][:n_iter, b], single.trace[name])
            assert not batch.trace[name][n_iter:, b].any()
        assert batch.trace["double_loop"][b] == single.trace["double_loop"]


def test_warnings_point_at_the_caller():
    for x in (draw((50,)), draw((3, 50, 1))):
        with pytest.warns(ConvergenceWarning) as caught:
            Clutter().fit(x, max_iter=1)
        assert caught[0].filename == __file__


def test_models_compare_and_hash():
    assert Clutter(prior_mean=[0.0, 1.0]) == Clutter(prior_mean=np.array([0.0, 1.0]))
    assert len({Clutter(), Clutter(), Clutter(prior_mean=[0.0, 1.0])}) == 2


def test_results_are_frozen_and_short():
    posterior = Clutter().fit(draw((30, 2)))
    with pytest.raises(AttributeError):
        posterior.mean = 1.0
    for array in (posterior.mean, posterior.trace["change"], posterior.sites.tau):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1.0
    assert len(repr(posterior).splitlines()) <= 6
    assert "converged" in repr(posterior)
    assert "30 problems of 5 points" in repr(Clutter().fit(draw((30, 5, 1)), tol=1e-4))


# ---------------------------------------------------------------------------------------------- errors

X = np.array([1.0, 2.0, 3.0])
BAD_FITS = [
    (dict(x=[1.0, np.nan]), ValueError, r"x must be finite, got x\[1\] = nan"),
    (dict(x=[[1.0, 2.0], [3.0, -np.inf]]), ValueError, r"x must be finite, got x\[1, 1\] = -inf"),
    (dict(x=[]), ValueError, r"x must not be empty, got shape \(0,\)"),
    (dict(x=np.zeros((3, 0))), ValueError, r"x must not be empty, got shape \(3, 0\)"),
    (dict(x=1.0), ValueError, r"x must have 1 or 2 or 3 dimension\(s\), got shape \(\)"),
    (dict(x=np.ma.masked_array([1.0, 2.0], [0, 1])), TypeError, "x must not be a masked array"),
    (dict(x=np.array(["a"])), TypeError, "x must hold real numbers, got dtype <U1"),
    (dict(x=["a"]), FileNotFoundError, "x must be real numbers or the path"),
    (dict(x=[1j]), TypeError, "x must hold real numbers, got dtype complex128"),
    (dict(method="vb"), ValueError, "method must be one of 'ep', 'adf', got 'vb'"),
    (dict(schedule="random"), ValueError, "schedule must be one of 'sequential', 'parallel', got 'random'"),
    (dict(order="random"), ValueError, "order='random' needs rng"),
    (dict(order="sorted"), ValueError, "order must be one of 'random', got 'sorted'"),
    (dict(order=[0, 1]), ValueError, r"order must be a permutation of range\(3\), got dtype int64 and shape \(2,\)"),
    (dict(order=[0, 1, 1]), ValueError, "order must hold each of 0..2 once"),
    (dict(order=[0, 1, 2], schedule="parallel"), ValueError, "order has no meaning for schedule='parallel'"),
    (dict(damping=0.0), ValueError, r"damping must be in \[0.01, 1\], got 0.0"),
    (dict(damping="x"), TypeError, "damping must be a number, got 'x'"),
    (dict(max_iter=0), ValueError, "max_iter must be at least 1, got 0"),
    (dict(max_iter=2.5), TypeError, "max_iter must be an integer, got 2.5"),
    (dict(tol=-1.0), ValueError, r"tol must be in \[0, inf\), got -1.0"),
    (dict(tol=np.nan), ValueError, "tol must be in"),
    (dict(n_threads=0), ValueError, "n_threads must be at least 1, or -1 for all cores, got 0"),
    (dict(order="random", rng="seed"), TypeError, "rng must be a seed"),
    (dict(method="adf", damping=0.5), ValueError, "method='adf' sees each point once"),
    (dict(method="adf", schedule="parallel"), ValueError, "method='adf' sees each point once"),
    (dict(x=[1.0, 1e150]), ValueError, "x must be within 1e.100 noise standard deviations of the median"),
]


@pytest.mark.parametrize(("options", "error", "message"), BAD_FITS)
def test_bad_fits(options, error, message):
    x = options.pop("x", X)
    with pytest.raises(error, match=message):
        Clutter().fit(x, **options)


BAD_MODELS = [
    (dict(clutter_weight=0.0), ValueError, r"clutter_weight must be in \(0, 1\), got 0.0"),
    (dict(clutter_weight=1.0), ValueError, "clutter_weight must be in"),
    (dict(clutter_weight=np.nan), ValueError, "clutter_weight must be in"),
    (dict(clutter_variance=-1.0), ValueError, r"clutter_variance must be in \(0, inf\), got -1.0"),
    (dict(noise_variance=0.0), ValueError, "noise_variance must be in"),
    (dict(prior_variance=np.inf), ValueError, "prior_variance must be in"),
    (dict(prior_mean=np.nan), ValueError, "prior_mean must be finite, got prior_mean = nan"),
    (dict(clutter_mean=[[1.0]]), ValueError, r"clutter_mean must have 0 or 1 dimension\(s\), got shape \(1, 1\)"),
    (dict(noise_variance="1"), TypeError, "noise_variance must be a number, got '1'"),
]


@pytest.mark.parametrize(("settings", "error", "message"), BAD_MODELS)
def test_bad_models(settings, error, message):
    with pytest.raises(error, match=message):
        Clutter(**settings)


def test_settings_that_do_not_fit_the_data():
    with pytest.raises(
        ValueError, match=r"prior_mean must be a number or have shape \(1,\) like a data point, got \(2,\)"
    ):
        Clutter(prior_mean=[0.0, 1.0]).fit(X)
    with pytest.raises(ValueError, match="clutter_variance must be within a factor 1e.100 of noise_variance"):
        Clutter(clutter_variance=1e150).fit(X)
    with pytest.raises(ValueError, match="prior_mean must be within 1e.100 noise standard deviations"):
        Clutter(prior_mean=1e120).fit(X)


def test_vector_settings():
    x = draw((50, 2), seed=3)
    posterior = Clutter(prior_mean=[1.0, -1.0], clutter_mean=[0.5, 0.0]).fit(x)
    shifted = Clutter(prior_mean=[0.5, -1.0]).fit(x - [0.5, 0.0])
    np.testing.assert_allclose(posterior.mean, shifted.mean + [0.5, 0.0], rtol=AT_REST)


def test_bad_points_for_a_posterior():
    posterior = Clutter().fit(X)
    with pytest.raises(ValueError, match=r"x must be the fitted data, shape \(3, 1\), got shape \(2,\)"):
        posterior.clutter_probability(X[:2])
    with pytest.raises(ValueError, match="x must have 1 dimension"):
        posterior.update(np.ones((2, 2)))
    with pytest.raises(
        ValueError, match=r"x must hold points like the fitted ones, shape \(4, 2\) but for N, got shape \(4, 3\)"
    ):
        Clutter().fit(np.ones((4, 2))).update(np.ones((4, 3)))
    with pytest.raises(ValueError, match="x must be points of dimension 2"):
        Clutter().fit(np.ones((4, 2))).log_density(np.ones((4, 3)))


# ---------------------------------------------------------------------------------------------- found by attack


@pytest.mark.parametrize("far", [1e4, 1e8, 1e10])
def test_evidence_of_points_far_from_the_clutter(far):
    """The signal term must not be computed as a difference from the clutter's."""
    z = np.round(np.random.default_rng(0).standard_normal(100) * 2.0**10) / 2.0**10
    near = Clutter(clutter_weight=0.5, clutter_mean=-1e3).fit(z)
    moved = Clutter(prior_mean=far).fit(far + z)
    for one, other in ((near, moved), (near, Clutter(prior_mean=far).fit(far + z, schedule="parallel"))):
        assert one.log_evidence == pytest.approx(other.log_evidence, rel=INTEGRAL)
        np.testing.assert_allclose(one.loo_log_density, other.loo_log_density, rtol=EARLY)


def test_an_improper_posterior_is_settled():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        hard = [
            Clutter(clutter_weight=0.7, clutter_variance=0.5, prior_variance=1000.0).fit(
                [-24.0, 33.0, -27.0], damping=0.5
            ),
            Clutter(clutter_weight=0.3, clutter_variance=0.5920447, prior_variance=98.10556).fit(
                [6.59798308, -6.71417538], schedule="parallel", max_iter=3
            ),
            Clutter(clutter_weight=0.7, clutter_variance=0.257, prior_variance=515122.0).fit(
                [[-16.223], [6.829], [-3.837]], schedule="parallel"
            ),
        ]
    for posterior in hard:
        assert np.all(posterior.variance > 0)
        assert np.isfinite(posterior.log_evidence)
        assert np.isfinite(posterior.loo_log_density).all()


def test_origin_is_among_the_data():
    rng = np.random.default_rng(0)
    signal, clutter = rng.standard_normal(40) + 3, 1e10 * (1 + rng.random(40))
    model = Clutter(clutter_variance=1e20)
    fits = [model.fit(np.r_[signal, clutter[:n]]) for n in (40, 38)]
    assert fits[0].mean == pytest.approx(fits[1].mean, abs=AT_REST)


def test_tol_zero_stays_at_the_fixed_point():
    x = [-8.194099656011558, -6.514171909737703, 7.324393207508331]
    base = Clutter().fit(x)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        assert Clutter().fit(x, tol=0).mean == pytest.approx(base.mean, rel=ROOT_EPS)


def test_far_new_points_are_refused():
    posterior = Clutter().fit(X)
    for call in (posterior.log_density, posterior.update, lambda x: posterior.clutter_probability(x, fitted=False)):
        with pytest.raises(ValueError, match="x must be within 1e.100 noise standard deviations of the fitted data"):
            call([1e160])
    with pytest.raises(ValueError, match="noise_variance must be between 1e-290 and 1e290"):
        Clutter(noise_variance=1e-310, clutter_variance=1e-309, prior_variance=1e-308).fit(X)


def test_an_update_does_not_forget_that_nothing_converged():
    with pytest.warns(ConvergenceWarning):
        start = Clutter().fit(draw((50,)), max_iter=1)
    after = start.update([1.0])
    assert not after.converged
    assert after.status == start.status


@pytest.mark.sample(3)
@pytest.mark.parametrize("variant", _core.variants("clutter"))
@pytest.mark.parametrize("n", [*range(1, 18), *range(126, 131), 255, 256, 257])
def test_the_last_rows_of_a_tile_count(variant, n):
    """A parallel sweep and the evaluation at its end, from given sites, against the naive twin; d = 1 and 2."""
    kernel = _core.load("clutter", variant)
    for d in (1, 2):
        x = draw((n, d), seed=n)
        x[-1] = 2.2
        unit = points_of(x).units
        where = unit.model, x, unit.origin, unit.scale, unit.centre
        site_tau, site_rho, sums = np.zeros((n, d)), np.zeros(n), np.empty((1, d + 1))
        tau, rho = np.zeros(d) - 1.3 * unit.origin, 1.3
        assert kernel.sweep_parallel(*where, site_tau, site_rho, tau, rho, 1.0, sums) == 0
        log_z, odds, value = np.empty(n), np.empty(n), np.empty(n)
        none = np.zeros((n, d)), np.zeros(n)
        kernel.evaluate(*where, *none, tau, rho, log_z, odds, value, np.empty(1))
        for i in range(n):
            z, r, m, v = reference.tilted(x[i], np.zeros(d), 1 / 1.3, 0.5, 10.0, 1.0)
            assert log_z[i] == pytest.approx(z, rel=SOLVES)
            assert odds[i] == pytest.approx(np.log1p(-r) - np.log(r), rel=AT_REST, abs=AT_REST)
            assert site_rho[i] == pytest.approx(1 / v - 1.3, rel=AT_REST, abs=SOLVES)
            np.testing.assert_allclose(site_tau[i], (m - unit.origin) / v - tau, rtol=AT_REST, atol=LOSSES)
        np.testing.assert_allclose(sums[0], [*site_tau.sum(axis=0), site_rho.sum()], rtol=LOSSES, atol=LOSSES)


@pytest.mark.parametrize("variant", _core.variants("clutter"))
@pytest.mark.parametrize("n", [4 * 8192 - 1, 4 * 8192, 5 * 8192 + 3])
def test_chunks_side_by_side_are_summed_in_the_order_of_the_rows(variant, n):
    kernel, x = _core.load("clutter", variant), draw((n, 1), seed=n)
    unit = points_of(x).units
    log_z, odds, value, sums = np.empty(n), np.empty(n), np.empty(n), np.empty(-(-n // 8192))
    where = unit.model, x, unit.origin, unit.scale, unit.centre, np.zeros((n, 1)), np.zeros(n)
    kernel.evaluate(*where, np.array([0.4]), 1.3, log_z, odds, value, sums)
    chunks = [value[start : start + 8192] for start in range(0, n, 8192)]
    np.testing.assert_array_equal(sums, [np.cumsum(chunk)[-1] for chunk in chunks])
