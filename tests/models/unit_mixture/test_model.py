"""UnitMixture against coordinate ascent by the book, exact evidence, and its own laws."""

import contextlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from reference import mean_field as ref
from scipy import integrate, special
from support.events import writing
from support.examples import examples
from support.tolerances import AT_REST, EARLY, EXPANSION, INTEGRAL, LOSSES, OPTIMUM, ROOT_EPS, ROUNDING, SOLVES, SUMS

import cavity
from cavity import data
from cavity.models.unit_mixture.start import build_state
from cavity.models.unit_mixture.sweep import UnitMixtureSweeps

ALL = ("prior_variance", "weights", "noise_variance")


def draws(seed, n, means, noise=1.0):
    rng = np.random.default_rng(seed)
    return rng.normal(rng.choice(np.asarray(means, dtype=float), size=n), np.sqrt(noise))


@pytest.mark.parametrize("weights", [None, [0.2, 0.5, 0.3]])
def test_sweeps_and_elbo_are_those_of_the_book(weights):
    y = draws(0, 60, [-3, 0, 2], 1.5)
    model = cavity.UnitMixture(3, prior_variance=9.0, prior_mean=0.5, noise_variance=1.5, weights=weights)
    start = np.array([-1.0, 0.1, 1.0])
    w = np.full(3, 1 / 3) if weights is None else np.array(weights)
    variance = 1 / (1 / 9.0 + len(y) * w / 1.5)
    with pytest.warns(cavity.ConvergenceWarning):
        post = model.fit(y, initial_means=start, accelerate=False, max_iter=9, tol=0)
    mean, variance, elbos = ref.unit_mixture_cavi(y, start, variance, w, 1.5, 0.5, 9.0, 9)
    np.testing.assert_allclose(post.trace["elbo"], elbos, rtol=SUMS)
    # the state whose ELBO was evaluated last is the one before the last sweep
    before = ref.unit_mixture_cavi(y, start, 1 / (1 / 9.0 + len(y) * w / 1.5), w, 1.5, 0.5, 9.0, 8)
    np.testing.assert_allclose(post.mean, before[0], rtol=SOLVES)
    np.testing.assert_allclose(post.variance, before[1], rtol=SOLVES)
    resp = ref.unit_mixture_responsibilities(y, post.mean, post.variance, w, 1.5)
    np.testing.assert_allclose(post.responsibilities(y), resp, rtol=LOSSES, atol=1e-300)
    np.testing.assert_allclose(post.counts, resp.sum(axis=0), rtol=SOLVES)
    assert post.elbo == post.trace["elbo"][-1]


def test_fixed_point():
    y = draws(1, 300, [-2, 1, 4])
    post = cavity.UnitMixture(3, prior_variance=16.0).fit(y, tol=1e-16)
    assert post.converged
    w = np.full(3, 1 / 3)
    mean, variance, elbos = ref.unit_mixture_cavi(y, post.mean, post.variance, w, 1.0, 0.0, 16.0, 2)
    np.testing.assert_allclose(mean, post.mean, rtol=EARLY)
    np.testing.assert_allclose(variance, post.variance, rtol=EARLY)
    np.testing.assert_allclose(elbos, post.elbo, rtol=SUMS)


@pytest.mark.parametrize("k", [1, 2, 3])
def test_elbo_is_below_the_exact_evidence_and_meets_it_for_one_component(k):
    y = np.array([-2.1, -1.7, 0.3, 2.5, 2.9])
    post = cavity.UnitMixture(k, prior_variance=4.0, noise_variance=0.8).fit(y)
    exact = ref.unit_mixture_evidence(y, k, [1 / k] * k, 0.8, 0.0, 4.0)
    if k == 1:
        assert post.elbo == pytest.approx(exact, rel=SUMS)
        assert post.n_iter == 2
    else:
        assert exact - np.log(6) - 0.7 < post.elbo < exact  # one of k! modes


def test_log_evidence_is_elbo_plus_divergence():
    """One point, two components: KL(q || p) by quadrature over both means and a sum over z."""
    y, s2 = 1.3, 4.0
    post = cavity.UnitMixture(2, prior_variance=s2).fit([y], initial_means=[0.5, -1.0], tol=1e-15)
    exact = ref.unit_mixture_evidence([y], 2, [0.5, 0.5], 1.0, 0.0, s2)
    resp = post.responsibilities([y])[0]
    q = [cavity.Gaussian.from_moments(m, v) for m, v in zip(post.mean, post.variance, strict=True)]

    def log_prior(t):
        return -0.5 * t * t / s2 - 0.5 * np.log(2 * np.pi * s2)

    def log_likelihood(theta):
        return -0.5 * (y - theta) ** 2 - 0.5 * np.log(2 * np.pi)

    def excess(b, a, z):
        log_q = q[0].logpdf(a) + q[1].logpdf(b) + np.log(resp[z])
        log_p = log_prior(a) + log_prior(b) + np.log(0.5) + log_likelihood((a, b)[z]) - exact
        return np.exp(log_q) * (log_q - log_p)

    nodes, weights = np.polynomial.legendre.leggauss(100)
    a, b = (m + 9 * s * nodes for m, s in zip(post.mean, np.sqrt(post.variance), strict=True))
    areas = np.outer(weights, weights) * 81 * np.sqrt(np.prod(post.variance))
    kl = sum(np.sum(areas * excess(b, a[:, None], z)) for z in (0, 1))
    assert kl > 0.01
    assert post.elbo + kl == pytest.approx(exact, abs=ROOT_EPS)


@examples(40)
@given(
    seed=st.integers(0, 2**32 - 1),
    k=st.integers(1, 6),
    n=st.integers(1, 60),
    spread=st.sampled_from([0.1, 1.0, 5.0, 1e3]),
    learn=st.sets(st.sampled_from(ALL)),
    accelerate=st.sampled_from([False, "anderson", "squarem"]),
)
def test_elbo_never_falls(seed, k, n, spread, learn, accelerate):
    y = spread * np.random.default_rng(seed).normal(size=n)
    elbos = []
    model = cavity.UnitMixture(k, prior_variance=2.0 * spread**2, learn=tuple(learn))
    # with as many means as points the noise is learnt to be nothing, which is an error
    expected = [cavity.ConvergenceWarning, cavity.SettingsWarning] + [ArithmeticError] * (n <= k)
    with contextlib.suppress(*expected):
        model.fit(y, accelerate=accelerate, max_iter=60, callback=writing(elbos))
    values = [elbo for _, elbo in elbos]
    assert np.all(np.isfinite(values))
    rounding = 1e-13 * max(np.abs(values).max(), n)
    assert np.all(np.diff(values) >= -rounding)


def test_predicted_gap_is_the_gap():
    for seed in range(6):
        y = draws(seed, 400, [0, 1.3, 2.6])
        model = cavity.UnitMixture(3)
        best = model.fit(y, tol=1e-15, max_iter=5000)
        for accelerate in (False, True):
            post = model.fit(y, tol=1e-8, accelerate=accelerate, max_iter=5000)
            assert post.converged
            assert post.predicted_gap <= 1e-8 * len(y)
            assert 0 <= best.elbo - post.elbo + 1e-11 < 2e-8 * len(y)
            if not accelerate:
                assert best.elbo - post.elbo == pytest.approx(post.predicted_gap, rel=0.3)


def test_acceleration_saves_passes_and_ends_at_the_same_optimum():
    y = draws(3, 2000, np.arange(6))
    model = cavity.UnitMixture(6)
    plain = model.fit(y, accelerate=False, tol=1e-9, max_iter=5000)
    for method, factor in (("anderson", 5), ("squarem", 3)):
        fast = model.fit(y, accelerate=method, tol=1e-9)
        assert fast.elbo == pytest.approx(plain.elbo, abs=AT_REST * len(y))
        close = plain.elbo - 1e-6 * len(y)
        needed = [np.argmax(post.trace["elbo"] > close) + 1 for post in (plain, fast)]
        assert needed[0] > factor * needed[1]


def test_variational_em_recovers_the_settings():
    rng = np.random.default_rng(6)
    means = 10.0 + 30.0 * special.ndtri((np.arange(12) + 0.5 + rng.uniform(-0.2, 0.2, 12)) / 12)
    weights = rng.dirichlet(np.full(12, 20.0))
    z = rng.choice(12, size=60_000, p=weights)
    y = rng.normal(means[z], 1.7)
    model = cavity.UnitMixture(12, prior_mean=10.0, prior_variance=1.0, noise_variance=9.0, learn=ALL)
    post = model.fit(y, initial_means=means + 1.0)
    order = np.argsort(post.mean)
    np.testing.assert_allclose(post.mean[order], np.sort(means), atol=0.15)
    np.testing.assert_allclose(post.weights[order], weights[np.argsort(means)], atol=0.01)
    assert post.noise_variance == pytest.approx(1.7**2, rel=0.02)
    assert post.prior_variance == pytest.approx(np.mean((means - 10.0) ** 2), rel=0.01)


@pytest.mark.parametrize("name", ALL)
def test_learnt_settings_maximise_the_elbo(name):
    """At the optimum the ELBO of a fit with the setting moved a little is lower, on both sides."""
    y = draws(8, 500, [-3, 0, 4], 1.4)
    best = cavity.UnitMixture(3, learn=(name,)).fit(y, tol=1e-14)
    for factor in (0.98, 1.02):
        moved = {name: getattr(best, name)}
        if name == "weights":
            moved[name] = best.weights * np.array([factor, 1.0, 1.0])
        else:
            moved[name] *= factor
        post = cavity.UnitMixture(3, **moved).fit(y, initial_means=best.mean, tol=1e-14)
        assert post.elbo < best.elbo - 1e-6


@pytest.mark.parametrize("learn", [(), ALL])
def test_laws_of_translation_scale_and_permutation(learn):
    y = draws(9, 200, [-3, 0, 4])
    base = dict(prior_variance=20.0, noise_variance=1.2, prior_mean=0.3, learn=learn)
    post = cavity.UnitMixture(3, **base).fit(y, tol=1e-15)
    moved = cavity.UnitMixture(3, **base | {"prior_mean": 0.3 + 1e6}).fit(y + 1e6, tol=1e-15)
    np.testing.assert_allclose(moved.mean - 1e6, post.mean, atol=EARLY)  # y + 1e6 itself is rounded to 1e-10
    assert moved.elbo == pytest.approx(post.elbo, abs=EARLY)
    scaled = dict(prior_variance=20.0 * 1e-8, noise_variance=1.2e-8, prior_mean=0.3e-4, learn=learn)
    small = cavity.UnitMixture(3, **scaled).fit(y * 1e-4, tol=1e-15)
    np.testing.assert_allclose(small.mean * 1e4, post.mean, rtol=OPTIMUM)
    assert small.elbo == pytest.approx(post.elbo + 200 * np.log(1e4), abs=EARLY)
    shuffled = cavity.UnitMixture(3, **base).fit(np.random.default_rng(1).permutation(y), tol=1e-15)
    np.testing.assert_allclose(shuffled.mean, post.mean, rtol=OPTIMUM)
    swapped = cavity.UnitMixture(3, **base).fit(y, initial_means=post.mean[::-1], tol=1e-15)
    np.testing.assert_allclose(swapped.mean[::-1], post.mean, rtol=OPTIMUM)


def test_same_bits_for_any_number_of_threads_and_kind_of_source(tmp_path):
    y = draws(10, 300_000, [-3, 0, 4]).astype(np.float32)
    np.save(tmp_path / "y.npy", y)
    np.save(tmp_path / "a.npy", y[:1000])
    np.save(tmp_path / "b.npy", y[1000:])
    strided = np.stack([y, y], axis=1)[:, 0]
    model = cavity.UnitMixture(3, learn=ALL)
    posts = [model.fit(y, n_threads=n) for n in (1, 2, 3)]
    posts += [model.fit(tmp_path / "y.npy", n_threads=2), model.fit([tmp_path / "a.npy", tmp_path / "b.npy"])]
    posts += [model.fit(strided), model.fit(np.load(tmp_path / "y.npy", mmap_mode="r"))]
    for post in posts[1:]:
        assert post.elbo == posts[0].elbo
        np.testing.assert_array_equal(post.mean, posts[0].mean)
        np.testing.assert_array_equal(post.counts, posts[0].counts)


def test_values_do_not_depend_on_the_size_of_the_blocks(monkeypatch):
    y = draws(11, 20_000, [-3, 0, 4])
    model = cavity.UnitMixture(3, learn=ALL)
    post = model.fit(y, tol=1e-15)
    monkeypatch.setattr("cavity.sources.blocks.ROWS_PER_CALL", 777)
    other = model.fit(y, tol=1e-15)
    assert other.elbo == pytest.approx(post.elbo, rel=SOLVES)
    np.testing.assert_allclose(other.mean, post.mean, rtol=EARLY)


def test_duplicated_data_and_ties():
    post = cavity.UnitMixture(3).fit([2.0] * 10)
    assert post.converged
    assert post.counts.sum() == pytest.approx(10)
    many = cavity.UnitMixture(8).fit([1.0, 5.0])  # more components than points
    assert many.converged
    np.testing.assert_allclose(many.responsibilities([1.0, 5.0]).sum(axis=1), 1.0, rtol=ROUNDING)
    single = cavity.UnitMixture(1, prior_variance=1e12).fit([7.0])
    assert single.mean[0] == pytest.approx(7.0)
    apart = cavity.UnitMixture(2).fit([0.0, 0.0, 0.0, 0.0, 9.0])
    assert sorted(apart.mean.round(1)) == [0.0, 8.9]


@pytest.mark.parametrize("y", [[0.0] * 6, [3.0] * 6, [1.0, 1.0, 5.0, 5.0], [1e8, 1e8, 1e8 + 16, 1e8 + 16]])
def test_noise_that_vanishes_is_said(y):
    model = cavity.UnitMixture(len(set(y)), prior_mean=y[0], learn="noise_variance")
    with pytest.raises(ArithmeticError, match="noise_variance has fallen to"):
        model.fit(y)


def test_default_start_finds_small_groups_far_away():
    y, _ = data.load("galaxies")
    post = cavity.UnitMixture(3, prior_mean=20.0, learn=ALL).fit(y)
    np.testing.assert_allclose(post.mean, [9.8, 21.4, 32.8], atol=0.1)


def test_extreme_scales():
    for scale in (1e-100, 1e140):
        y = scale * draws(12, 100, [-5, 5])
        model = cavity.UnitMixture(2, prior_variance=100 * scale**2, noise_variance=scale**2)
        assert model.fit(y).mean / scale == pytest.approx([-5, 5], abs=0.3)
    far = cavity.UnitMixture(2, prior_variance=1e16).fit([-1e7, 1e7, 1e7 + 1])
    assert far.converged
    assert np.isfinite(far.elbo)


def test_a_prior_far_surer_than_the_data_keeps_its_digits():
    y = np.array([1.0, 2.0, 3.0])
    post = cavity.UnitMixture(2, prior_variance=1e-12).fit(y)
    np.testing.assert_allclose(post.mean, 1e-12 * post.counts * 2.0, rtol=AT_REST)
    assert post.elbo == pytest.approx(np.sum(-0.5 * y**2) - 1.5 * np.log(2 * np.pi), abs=INTEGRAL)


def test_points_beyond_float64_are_refused_and_far_ones_are_not():
    post = cavity.UnitMixture(2).fit([-3.0, -2.9, 3.0, 3.1])
    np.testing.assert_array_equal(post.responsibilities([-1e6, 1e6]), [[1.0, 0.0], [0.0, 1.0]])
    with pytest.raises(OverflowError, match=r"y\[1\] = 1e\+300 is so far from every component"):
        post.responsibilities([0.0, 1e300])
    with pytest.raises(OverflowError, match="log_density: values leave the range of float64"):
        post.log_density([0.0, 1e300])


def test_a_stream_longer_than_said_is_said():
    with pytest.warns(cavity.NumericalWarning, match="the stream held 6 points"):
        cavity.UnitMixture(2).fit_stochastic(iter([[1.0, 2.0, 3.0]] * 2), n_samples=2)


def test_weights_that_were_learnt_to_be_zero_can_be_updated_and_saved(tmp_path):
    post = cavity.UnitMixture(2, learn="weights").fit(draws(19, 100, [0]), initial_means=[0, 1e6])
    assert post.weights.tolist() == [1.0, 0.0]
    both = post.update(draws(20, 100, [0]))
    assert both.counts.tolist() == [200.0, 0.0]
    both.save(tmp_path / "post.npz")
    assert cavity.load(tmp_path / "post.npz").model == both.model


def test_weights_of_any_size_are_normalised_once():
    assert cavity.UnitMixture(2, weights=[1e308, 1e308]).weights == (0.5, 0.5)
    assert cavity.UnitMixture(2, weights=[5e-324, 5e-324]).weights == (0.5, 0.5)
    rng = np.random.default_rng(0)
    for _ in range(200):
        model = cavity.UnitMixture(7, weights=rng.gamma(0.3, size=7))
        assert cavity.UnitMixture(7, weights=model.weights) == model


def test_equal_initial_means_are_set_apart():
    y = draws(21, 200, [-4, 4])
    post = cavity.UnitMixture(2).fit(y, initial_means=[1.0, 1.0])
    assert post.mean == pytest.approx([-4, 4], abs=0.3)


def test_learn_has_one_order():
    assert cavity.UnitMixture(2, learn=ALL[::-1]) == cavity.UnitMixture(2, learn=ALL)
    assert cavity.UnitMixture(2, learn=["weights", "weights"]).learn == ("weights",)


def test_starts_are_compared_by_their_elbo():
    y = draws(13, 400, [-12, -10, 0, 9, 14])
    one = cavity.UnitMixture(5).fit(y, initial_means=[-11, 0, 0.1, 0.2, 11])
    several = cavity.UnitMixture(5).fit(y, initial_means=[-11, 0, 0.1, 0.2, 11], n_init=8, rng=0)
    assert several.elbo > one.elbo + 1
    second = cavity.UnitMixture(5).fit(y, initial_means=[-11, 0, 0.1, 0.2, 11], n_init=8, rng=0)
    assert second.elbo == several.elbo


def test_update_is_exact_for_one_component_and_close_for_clear_ones():
    y = draws(14, 400, [-6, 0, 6])
    one = cavity.UnitMixture(1).fit(y)
    both = cavity.UnitMixture(1).fit(y[:100]).update(y[100:])
    assert both.mean == pytest.approx(one.mean, rel=SOLVES)
    three = cavity.UnitMixture(3).fit(y)
    both = cavity.UnitMixture(3).fit(y[:200]).update(y[200:], n_threads=2)
    np.testing.assert_allclose(both.mean, three.mean, atol=0.01)
    np.testing.assert_allclose(both.variance, three.variance, rtol=0.01)
    np.testing.assert_allclose(both.counts, three.counts, rtol=0.01)
    assert both.n_samples == three.n_samples == 400


def test_predictive_density_integrates_to_one_and_samples_follow_it():
    post = cavity.UnitMixture(3, learn=("weights",)).fit(draws(15, 100, [-3, 0, 4]))
    total = integrate.quad(lambda t: np.exp(post.log_density([t])[0]), -30, 30, limit=200)[0]
    assert total == pytest.approx(1.0, abs=AT_REST)
    sample = post.sample(40_000, 0)
    below = integrate.quad(lambda t: np.exp(post.log_density([t])[0]), -30, 1.0, limit=200)[0]
    assert np.mean(sample < 1.0) == pytest.approx(below, abs=4 * 0.5 / 200)
    assert post.predict([-3.0, 4.0]).tolist() == [0, 2]


def test_stochastic_fit_finds_the_optimum_in_a_pass(tmp_path):
    y = draws(16, 100_000, [-4, 0, 5])
    model = cavity.UnitMixture(3)
    exact = model.fit(y)
    post = model.fit_stochastic(y, batch_size=1000)
    np.testing.assert_allclose(post.mean, exact.mean, atol=0.06)
    assert not post.converged
    assert exact.elbo - 200 < post.elbo < exact.elbo
    learnt = cavity.UnitMixture(3, noise_variance=3.0, learn=ALL).fit_stochastic(y, batch_size=1000, n_epochs=3)
    assert learnt.noise_variance == pytest.approx(1.0, rel=0.05)
    stream = (y[i : i + 1000] for i in range(0, len(y), 1000))
    streamed = model.fit_stochastic(stream, n_samples=len(y), initial_means=[-3, 0.5, 4])
    other = model.fit_stochastic(y, batch_size=1000, initial_means=[-3, 0.5, 4])
    np.testing.assert_array_equal(streamed.mean, other.mean)
    assert streamed.elbo is None  # the data are gone: said, not guessed
    assert "not known: no pass over all data at the end" in repr(streamed)
    streamed.save(tmp_path / "streamed.npz")
    restored = cavity.load(tmp_path / "streamed.npz")
    assert (restored.elbo, restored.contraction, restored.predicted_gap) == (None, None, np.inf)
    pictures = pytest.importorskip("cavity.plot.posterior_figures")
    figure = pictures.make_figure(streamed, y[:1000], trace=True)
    assert "ELBO not known" in figure.axes[-1].get_title()


@pytest.mark.parametrize(
    ("batch_size", "n", "n_epochs"),
    [
        (20, 20_000, 2),
        pytest.param(1, 2000, 8, marks=pytest.mark.long),
        pytest.param(4, 4000, 8, marks=pytest.mark.long),
        *(pytest.param(size, 20_000, 2, marks=pytest.mark.long) for size in (1, 4)),
    ],
)
def test_stochastic_settings_are_unbiased_for_small_batches(batch_size, n, n_epochs):
    y = draws(18, n, [0, 4, 8])
    model = cavity.UnitMixture(3, prior_mean=4.0, learn=ALL)
    exact, post = model.fit(y), model.fit_stochastic(y, batch_size=batch_size, n_epochs=n_epochs)
    assert post.noise_variance == pytest.approx(exact.noise_variance, rel=0.05)
    assert post.prior_variance == pytest.approx(exact.prior_variance, rel=0.05)
    np.testing.assert_allclose(post.weights, exact.weights, atol=0.02)
    assert post.elbo == pytest.approx(exact.elbo, rel=EXPANSION)


def test_stochastic_average_is_exact_where_nothing_is_latent():
    y = draws(17, 1000, [2.0])
    exact = cavity.UnitMixture(1).fit(y)
    post = cavity.UnitMixture(1).fit_stochastic(y, batch_size=100, delay=0, forgetting=1)
    assert post.mean == pytest.approx(exact.mean, rel=SOLVES)
    assert post.elbo == pytest.approx(exact.elbo, rel=SUMS)


def test_callback_stops_and_save_keeps_every_bit(tmp_path):
    y, _ = data.load("galaxies")
    with pytest.warns(cavity.ConvergenceWarning, match="stopped by callback"):
        stopped = cavity.UnitMixture(6, prior_mean=20.0).fit(y, callback=writing([], stop=3))
    assert stopped.n_iter == 3
    post = cavity.UnitMixture(6, prior_mean=20.0, learn="weights").fit(y)
    for item in (stopped, post, post.update(y)):
        item.save(tmp_path / "post.npz")
        back = cavity.load(tmp_path / "post.npz")
        assert repr(back) == repr(item)
        assert back.model == item.model
        np.testing.assert_array_equal(back.responsibilities(y), item.responsibilities(y))
        np.testing.assert_array_equal(back.trace["elbo"], item.trace["elbo"])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: cavity.UnitMixture(0), "n_components must be at least 1, got 0"),
        (lambda: cavity.UnitMixture(2.0), "n_components must be an integer"),
        (lambda: cavity.UnitMixture(2, prior_variance=0.0), "prior_variance must be positive"),
        (lambda: cavity.UnitMixture(2, noise_variance=-1.0), "noise_variance must be in"),
        (lambda: cavity.UnitMixture(2, weights=[0.5, 0.5, 0.0]), "weights must be 2 positive numbers"),
        (lambda: cavity.UnitMixture(2, weights=[1, 5e-324]), "weights must be at least"),
        (lambda: cavity.UnitMixture(2, learn="noise_variance").fit([0.0, 1e-200]), "y must have a range above"),
        (lambda: cavity.UnitMixture(2, learn="sigma"), "learn must be one of"),
        (lambda: cavity.UnitMixture(2, learn=None), "learn must be a tuple of names"),
        (lambda: cavity.UnitMixture(2).fit([1.0, 2.0], initial_means=3.0), "2 number"),
        (lambda: cavity.UnitMixture(2).fit_stochastic([1.0, 2.0], n_samples=3), "n_samples is for an iterator"),
        (lambda: cavity.UnitMixture(2, prior_variance=[1, 2], learn="prior_variance"), "one variance for all"),
        (lambda: cavity.UnitMixture(2).fit([1.0, np.nan]), r"y must be finite, got y\[1\] = nan"),
        (lambda: cavity.UnitMixture(2).fit([]), "y must not be empty"),
        (lambda: cavity.UnitMixture(2).fit([[1.0, 2.0]]), "y must have 1 dimension"),
        (lambda: cavity.UnitMixture(2).fit(iter([1.0, 2.0])), "one-shot iterator"),
        (lambda: cavity.UnitMixture(2).fit([1e200, 2.0]), "rescale the data"),
        (lambda: cavity.UnitMixture(2).fit([1.0, 2.0], initial_means=[1e200, 0.0]), "rescale the data"),
        (lambda: cavity.UnitMixture(2, noise_variance=1e-299).fit([1.0, 9.0]), "noise_variance must be above"),
        (lambda: cavity.UnitMixture(2, noise_variance=1e-308), "noise_variance must be in"),
        (lambda: cavity.UnitMixture(2, prior_mean=1e10, prior_variance=1e-290).fit([1.0]), "prior_variance must be"),
        (lambda: cavity.UnitMixture(2).fit([1.0, 2.0], initial_means=[1.0]), "initial_means must be"),
        (lambda: cavity.UnitMixture(2).fit([1.0, 2.0], n_init=2), "needs rng"),
        (lambda: cavity.UnitMixture(2).fit([1.0, 2.0], accelerate="fast"), "accelerate must be one of"),
        (lambda: cavity.UnitMixture(2).fit([1.0, 2.0], max_iter=0), "max_iter must be at least 1"),
        (lambda: cavity.UnitMixture(2).fit([1.0, 2.0], tol=-1), "tol must be in"),
        (lambda: cavity.UnitMixture(2).fit_stochastic(iter([[1.0]])), "give n_samples"),
        (lambda: cavity.UnitMixture(2).fit_stochastic([1.0], forgetting=0.5), "forgetting must be in"),
        (lambda: cavity.UnitMixture(2).fit_stochastic(iter([[1.0], [np.inf]]), n_samples=2), "minibatch 1 of y"),
    ],
)
def test_bad_input_is_named(make, message):
    with pytest.raises((ValueError, TypeError), match=message):
        make()


@pytest.mark.parametrize("value", [0.0, 3.0, 1e150])
def test_constant_data_have_no_noise_to_learn(value):
    """Rounding of large data is a large number, which is no news to anybody."""
    model = cavity.UnitMixture(2, prior_variance=1e300, noise_variance=1e298, learn=["noise_variance"])
    with pytest.raises(
        ArithmeticError, match="noise_variance has fallen to zero but for rounding: the data have no more"
    ):
        model.fit(np.full(10, value))


def test_a_prior_far_wider_than_the_noise():
    """precision times prior variance leaves float64, the ELBO does not."""
    y, s, v = np.array([0.1, 0.5]), 1e-10, 1e300
    posterior = cavity.UnitMixture(1, prior_variance=v, noise_variance=s).fit(y)
    variance = 1 / (1 / v + 2 / s)
    evidence = -np.log(2 * np.pi) - np.log(s) - 0.5 * (np.log(v) - np.log(variance)) - 0.5 * np.sum((y - 0.3) ** 2) / s
    assert posterior.elbo == pytest.approx(evidence, rel=SUMS)


@pytest.mark.parametrize("fit", ["fit", "fit_stochastic"])
def test_data_in_other_units_than_the_noise_are_told(fit):
    """Three groups of sd 1000 and a noise variance of 1; one that is learnt has the units of the data."""
    rng = np.random.default_rng(0)
    y = rng.permutation(np.concatenate([rng.normal(centre, 1.0, 60) for centre in (-9.0, 0.0, 12.0)]))
    model = cavity.UnitMixture(3)
    getattr(model, fit)(y)
    with pytest.warns(cavity.SettingsWarning, match=r"1\d\d of 180 points lie more than 6 standard .*learn="):
        getattr(model, fit)(1000.0 * y)
    learning = cavity.UnitMixture(3, prior_variance=1e8, noise_variance=1e6, learn="noise_variance")
    assert 5e5 < getattr(learning, fit)(1000.0 * y).noise_variance < 2e6


def test_too_few_components_are_no_matter_of_units():
    """Numbers of components are compared by their ELBOs: a tenth of the galaxies is far from the only component."""
    velocities, _ = cavity.data.load("galaxies")
    assert cavity.UnitMixture(1, prior_mean=20.0).fit(velocities).converged


def test_extrapolations_to_a_variance_without_bound_are_no_division_by_zero():
    """One point and a prior of variance 1e300: an extrapolated natural parameter of the noise variance is 0."""
    model = cavity.UnitMixture(2, learn="noise_variance", prior_variance=1e300)
    with pytest.warns(cavity.ConvergenceWarning):
        model.fit([5.0])
    sweeps = UnitMixtureSweeps(1, ("prior_variance", "noise_variance"))
    state = build_state(model, np.zeros(2), 1)
    for last in ([0.0, -1.0], [-1.0, 0.0], [-1.0, -1e-320]):
        assert sweeps.at(np.array([0.0, 0.0, 1.0, 1.0, *last]), state) is None
    assert sweeps.at(np.array([0.0, 0.0, 1.0, 1.0, -1.0, -0.25]), state).noise_variance == 2.0
