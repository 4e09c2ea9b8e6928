"""The engine of mean-field models on maps whose eigenvalues and optimum are known."""

from fractions import Fraction

import numpy as np
import pytest
from support.events import writing
from support.tolerances import EXPANSION, LAST_BIT, OPTIMUM, SUMS

from cavity import NumericalWarning
from cavity.distributions import Gamma, MultivariateGaussian
from cavity.distributions.factors import join_coordinates, step_towards
from cavity.jobs.job import Job
from cavity.mean_field import engine
from cavity.mean_field.acceleration import MAX_DIFFERENCES, SweepHistory
from cavity.mean_field.options import AscentOptions

RATES = np.array([0.98, 0.9, 0.7, 0.3, 0.0])


class Linear:
    """Errors e -> A e, the ELBO -<e, G (1 - A) e>/2 under the metric G; A and G have the same eigenvectors."""

    n_samples, n_rows = 1, None

    def __init__(self, rates=RATES, seed=0, lowest=-np.inf):
        rng = np.random.default_rng(seed)
        basis = np.linalg.qr(rng.normal(size=(len(rates), len(rates))))[0]
        metric = rng.uniform(0.5, 5.0, len(rates))
        self.map = basis * rates @ basis.T
        self.metric = basis * metric @ basis.T
        self._hessian = basis * (metric * (1 - rates)) @ basis.T
        self.basis = basis
        self.best = np.full(len(rates), 3.0)
        self.start = self.best + basis @ np.ones(len(rates))
        self.lowest = lowest  # of the domain
        self.visited = []

    def gap(self, state):
        error = state - self.best
        return 0.5 * error @ self._hessian @ error

    def sweep(self, state):
        self.visited.append(state)
        return self.best + self.map @ (state - self.best), 7.0 - self.gap(state)

    def coordinates(self, state):
        return state, self.metric @ state

    def at(self, natural, state):
        return natural if np.all(natural > self.lowest) else None


def run(model, start=None, **options):
    options = {"accelerate": False, "max_iter": 5000, "tol": 1e-10} | options
    return engine.ascend(model, model.start if start is None else start, AscentOptions(**options))


@pytest.mark.parametrize("accelerate", [False, "anderson", "squarem"])
@pytest.mark.parametrize("seed", range(3))
def test_contraction_and_gap_are_the_true_ones(accelerate, seed):
    model = Linear(seed=seed)
    done = run(model, accelerate=accelerate)
    assert done.converged
    assert done.status == "converged"
    assert done.n_iter == len(model.visited) == len(done.trace["elbo"])
    assert done.contraction == pytest.approx(0.98, rel=EXPANSION)
    assert model.gap(done.state) <= done.predicted_gap * (1 + 1e-3)
    assert done.predicted_gap <= 1e-10
    assert done.elbo == 7.0 - model.gap(done.state)
    np.testing.assert_array_equal(done.image, model.sweep(done.state)[0])
    assert np.all(np.diff(done.trace["elbo"]) >= 0)


@pytest.mark.parametrize(("rates", "passes"), [((0.5, 0.2), 2), ((0.98, 0.2), 9)])
def test_that_little_is_left_has_to_be_seen_again(rates, passes):
    """In one more plain sweep, in eight where errors shrink slowly."""
    done = run(Linear(rates=np.array(rates)), tol=1e-9)
    gaps = done.trace["change"] / (1.0 - rates[0])
    assert done.converged
    assert np.sum(gaps <= 1e-9) == passes


def test_predicted_gap_is_the_true_one_on_the_slow_direction():
    model = Linear()
    done = run(model, tol=1e-6)
    assert done.n_iter > 100  # the fast directions are gone
    assert done.predicted_gap == pytest.approx(model.gap(done.state), rel=OPTIMUM)


@pytest.mark.sample(2)
@pytest.mark.parametrize(("accelerate", "most"), [("anderson", 20), ("squarem", 120)])
def test_accelerators_take_far_fewer_passes(accelerate, most):
    rates = np.array([0.999, 0.99, 0.5, 0.1, 0.0])
    plain = run(Linear(rates), max_iter=20_000)
    fast = run(Linear(rates), accelerate=accelerate)
    assert plain.n_iter > 5000
    assert fast.n_iter <= most
    assert fast.converged


def test_rejected_proposals_are_passes_but_not_gone_to():
    class Misled(Linear):
        def at(self, natural, state):
            return self.best + 100.0

    model = Misled()
    seen = []
    done = run(model, accelerate="anderson", tol=1e-6, job=Job.checked(writing(seen)))
    assert done.converged
    far = sum(np.array_equal(state, model.best + 100.0) for state in model.visited)
    assert far > 10
    assert done.n_iter == len(model.visited)
    assert done.n_iter == run(Linear(), tol=1e-6).n_iter + far  # plain sweeps did all the work
    assert [n for n, _ in seen] == list(range(1, done.n_iter + 1))
    assert np.all(np.diff([elbo for _, elbo in seen]) >= 0)
    assert np.isnan(done.trace["contraction"]).sum() >= far


class Broken(Linear):
    """Proposals that the arithmetic cannot take."""

    def __init__(self, failure):
        super().__init__()
        self.failure, self.failures = failure, 0

    def at(self, natural, state):
        return None if natural is None else natural + np.nan

    def sweep(self, state):
        if np.isnan(state).any():
            self.failures += 1
            if isinstance(self.failure, float):
                return state, self.failure
            raise self.failure
        return super().sweep(state)


@pytest.mark.parametrize("failure", [np.nan, np.inf, -np.inf, OverflowError(), ZeroDivisionError(), ValueError()])
def test_proposals_too_far_off_for_the_arithmetic_are_rejected(failure):
    model = Broken(failure)
    done = run(model, accelerate="anderson", tol=1e-6)
    assert done.converged
    assert model.failures > 10
    assert model.gap(done.state) < 1e-6


@pytest.mark.parametrize("accelerate", [False, "anderson", "squarem"])
def test_growing_errors_do_not_converge(accelerate):
    """A saddle point: the ELBO grows for ever in one direction."""
    model = Linear(np.array([1.05, 0.5, 0.0]))
    done = run(model, accelerate=accelerate, max_iter=300 if not accelerate else 40)
    assert done.status == "max_iter reached"
    assert done.contraction == pytest.approx(1.05, abs=EXPANSION)
    assert done.predicted_gap == np.inf
    assert done.elbo > 10.0  # the saddle point has 7


@pytest.mark.parametrize("accelerate", ["anderson", "squarem"])
def test_a_saddle_point_that_an_extrapolation_finds_is_left_again(accelerate):
    model = Linear(np.array([2.0, 0.8, 0.0]))
    start = model.best + model.basis @ [1e-3, 1.0, 1.0]  # most of the ELBO to gain is on the way to the saddle point
    done = run(model, start, accelerate=accelerate, max_iter=40)
    assert not done.converged
    assert done.elbo > 1e3


@pytest.mark.parametrize("accelerate", [False, "anderson"])
def test_a_wrong_update_is_warned_of(accelerate):
    class Wrong(Linear):
        def sweep(self, state):
            image, elbo = super().sweep(state)
            return image, -elbo

    with pytest.warns(NumericalWarning, match="an update is not the optimum of its factor"):
        run(Wrong(), max_iter=5, accelerate=accelerate)


@pytest.mark.parametrize("elbo", [np.nan, np.inf, -np.inf])
def test_an_elbo_that_is_no_number_is_an_error(elbo):
    class Wrong(Linear):
        def sweep(self, state):
            return state, elbo

    with pytest.raises(ArithmeticError, match=f"the ELBO of pass 1 is {elbo}"):
        run(Wrong())


def test_outside_the_domain_plain_sweeps_go_on():
    model = Linear(lowest=np.inf)
    done = run(model, accelerate="anderson", tol=1e-8)
    assert done.n_iter == run(Linear(), tol=1e-8).n_iter == len(model.visited)


def test_callbacks_and_limits():
    seen = []

    def stop(event):
        seen.append((event.n_iter, event.objective))
        return event.n_iter == 3

    done = run(Linear(), job=Job.checked(stop))
    assert done.status == "stopped by callback"
    assert not done.converged
    np.testing.assert_array_equal([elbo for _, elbo in seen], done.trace["elbo"])
    for accelerate in (False, "anderson", "squarem"):
        for n in (1, 2, 3, 5):
            done = run(Linear(), max_iter=n, accelerate=accelerate)
            assert (done.n_iter, done.status) == (n, "max_iter reached")
    assert np.isnan(run(Linear(), max_iter=1).contraction)
    assert run(Linear(), max_iter=1).predicted_gap == np.inf


@pytest.mark.parametrize("accelerate", [False, "anderson", "squarem"])
def test_zero_tolerance_ends_at_rounding(accelerate):
    model = Linear(np.array([0.9, 0.5]))
    done = run(model, tol=0.0, accelerate=accelerate)
    assert done.converged
    assert done.n_iter < 400
    assert done.predicted_gap < 1e-25
    np.testing.assert_allclose(done.state, model.best, rtol=SUMS)


def test_starting_at_the_optimum():
    model = Linear()
    done = run(model, model.best, tol=0.0)
    assert (done.converged, done.n_iter, done.predicted_gap) == (True, 1, 0.0)


# ---- the history


@pytest.mark.parametrize("n", range(1, MAX_DIFFERENCES + 1))
def test_anderson_is_exact_after_n_plus_one_points(n):
    model = Linear(np.linspace(0.2, 0.95, n), seed=n)
    history, x = SweepHistory(), model.start
    for _ in range(n + 1):
        image, _ = model.sweep(x)
        history.add(model.coordinates(x), model.coordinates(image), in_a_row=True)
        x = image
    np.testing.assert_allclose(history.anderson(), model.best, rtol=OPTIMUM)


def test_squarem_is_the_formula_of_the_paper():
    """x0 = (1, 2), M(x) = (x_1/2, x_2/4): r = (-1/2, -3/2), v = (1/4, 9/8), and S3 with the metric diag(1, 2)."""
    rate, metric = np.array([0.5, 0.25]), np.array([1.0, 2.0])
    history, x = SweepHistory(), np.array([1.0, 2.0])
    assert history.squarem() is None
    for in_a_row in (False, True):
        assert history.squarem() is None
        history.add((x, metric * x), (rate * x, metric * rate * x), in_a_row)
        x = rate * x
    rv = Fraction(-1, 8) + 2 * Fraction(-27, 16)
    vv = Fraction(1, 16) + 2 * Fraction(81, 64)
    a = -rv / vv  # the step length is -a
    expected = [1 - 2 * a / 2 + a**2 / 4, 2 - 2 * a * Fraction(3, 2) + a**2 * Fraction(9, 8)]
    np.testing.assert_allclose(history.squarem(), [float(item) for item in expected], atol=LAST_BIT)
    assert history.squarem() is None  # it wants two sweeps in a row before the next


def test_an_empty_history_proposes_nothing_and_knows_no_rate():
    history = SweepHistory()
    assert history.anderson() is None
    x = np.ones(2)
    history.add((x, x), (x, x), in_a_row=False)
    assert np.isnan(history.contraction())
    history.add((x, x), (x, x), in_a_row=True)
    assert np.isnan(history.contraction())  # no differences
    assert history.anderson() is None
    assert history.squarem() is None


# ---- from factors to vectors and back


def test_factors_come_back_from_their_vector():
    factors = (Gamma([2.0, 3.0], [1.0, 4.0]), None, MultivariateGaussian([1.0, 2.0], np.eye(2)))
    natural, statistics = join_coordinates(factors)
    assert natural.shape == statistics.shape == (10,)
    gamma, nothing, gaussian = step_towards(factors, natural)
    assert nothing is None
    np.testing.assert_array_equal(gamma.rate, [1.0, 4.0])
    np.testing.assert_array_equal(gaussian.mean, [1.0, 2.0])
    assert [part.shape for part in join_coordinates([None, None])] == [(0,), (0,)]
    assert step_towards([None], np.zeros(0)) == (None,)


def test_what_leaves_the_domain_goes_part_of_the_way():
    q = Gamma([2.0, 3.0], [1.0, 4.0])
    (half,) = step_towards([q], q.natural + [0.0, 0.0, 1.5, 1.0])  # a rate of -1/2
    np.testing.assert_allclose(half.rate, [0.25, 3.5])
    (held,) = step_towards([q], q.natural + [0.0, 0.0, 1e6, 1.0])  # too far for that: each on its own
    np.testing.assert_allclose(held.rate, [0.1, 3.0])
    (held,) = step_towards([q], q.natural + [-1e6, 1.0, 0.0, 0.0])
    np.testing.assert_allclose(held.shape, [0.2, 4.0])
    assert step_towards([q], np.full(4, np.nan)) is None
    point = MultivariateGaussian([0.0], [[1.0]])
    assert step_towards([point], np.array([0.0, -1e9])) is None
    assert step_towards([Gamma(1.0, 1.0)], np.array([1e300, -1e-300])) is not None  # its mean overflows
