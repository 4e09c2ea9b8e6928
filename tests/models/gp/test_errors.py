"""Bad input to Gaussian processes: a sentence that names the argument, what was expected and what came, before work."""

import time

import numpy as np
import pytest
from support.bad_fits import BAD_FITS
from support.gaussian_processes import covariance, problem
from support.tolerances import ROUNDING, SOLVES

import cavity
from cavity import GaussianProcess, covariances, likelihoods

BAD = [
    *BAD_FITS,
    (dict(y=np.ma.masked_less([0, 1, 1], 1)), TypeError, "y must not be a masked array"),
    (dict(X=[[1.0], [np.inf], [2.0]]), ValueError, r"X must be finite, got X\[1, 0\] = inf"),
    (dict(X=[["a"], ["b"], ["c"]]), TypeError, "X must hold real numbers"),
    (dict(X=None), TypeError, r"X must be an array or data frame of numbers, got NoneType; a formula, as in"),
    (dict(y=[[1.0, 2.0]] * 3), ValueError, "pairs are bounds of `Interval` .* not observations of Probit"),
    (dict(X=np.ones((3, 1)) * 1j), TypeError, "X must hold real numbers"),
    (dict(offset=[1.0, np.nan, 0.0]), ValueError, "offset must be finite"),
    (dict(sample_weight=[1, 1]), ValueError, "sample_weight must have one entry per row of X"),
    (dict(noise_variance=[1, 1, 1]), ValueError, "noise_variance needs the likelihood Gaussian"),
    (dict(learn="noise"), (ValueError, TypeError), "learn must be.*'noise'"),
    (dict(learn=None), TypeError, "learn must be.*None"),
    (dict(n_starts=0), ValueError, "n_starts must be at least 1"),
    (dict(n_starts=1.5), TypeError, "n_starts must be an integer"),
    (dict(n_threads=1.5), TypeError, "n_threads must be an integer"),
]


@pytest.mark.parametrize(("change", "error", "message"), BAD)
def test_bad_data_and_options(change, error, message):
    arguments = dict(X=[[1.0], [2.0], [-1.0]], y=[0, 1, 1]) | change
    with pytest.raises(error, match=message):
        GaussianProcess(covariances.RBF(), likelihoods.Probit()).fit(
            arguments.pop("X"), arguments.pop("y"), **arguments
        )


def test_bad_observations():
    X = np.ones((2, 1))
    for likelihood, y, message in (
        (likelihoods.Poisson(), [1, -1], "whole numbers, not negative; got -1.0 in row 1"),
        (likelihoods.NegativeBinomial(), [0.5, 1], "got 0.5 in row 0"),
        (likelihoods.OrderedProbit([0.0]), [0, 2], "y must be at most 1 for 1 thresholds, got 2 in row 1"),
        (likelihoods.Gaussian(), [[1.0], [2.0]], "y must"),
        (likelihoods.Interval(), [[1.0, 0.0], [0.0, 1.0]], "lower < upper bounds"),
    ):
        with pytest.raises(ValueError, match=message):
            GaussianProcess(covariances.RBF(), likelihood).fit(X, y)


@pytest.mark.parametrize(
    ("noise", "message"),
    [
        ([1.0], "noise_variance must have one entry per row of X, that is 3, got 1"),
        ([1.0, 0.0, 1.0], "noise_variance must be positive"),
        ([1.0, -1.0, 1.0], "noise_variance must be positive"),
        ([1.0, np.nan, 1.0], "noise_variance must be finite"),
    ],
)
def test_bad_noise(noise, message):
    with pytest.raises(ValueError, match=message):
        GaussianProcess(covariances.RBF()).fit([[1.0], [2.0], [3.0]], [1.0, 2.0, 0.0], noise_variance=noise)


def test_bad_models():
    for arguments, error, message in (
        (
            (covariances.RBF,),
            TypeError,
            "covariance must be an instance of cavity.covariances.Covariance.*forget the brackets",
        ),
        ((1.0,), TypeError, "covariance must be an instance of cavity.covariances.Covariance, got 1.0"),
        ((covariances.RBF(), likelihoods.Probit), TypeError, "likelihood must be an instance.*forget the brackets"),
        (
            (covariances.RBF(), covariances.RBF()),
            TypeError,
            "likelihood must be an instance of cavity.likelihoods.Likelihood",
        ),
        ((covariances.RBF(), likelihoods.Probit(), "(1 | group)"), ValueError, "mean must have columns of X"),
        ((covariances.RBF(), likelihoods.Probit(), np.nan), ValueError, "mean must be finite"),
        ((covariances.RBF(), likelihoods.Probit(), np.zeros((2, 2))), ValueError, "mean must have"),
    ):
        with pytest.raises(error, match=message):
            GaussianProcess(*arguments)
    with pytest.raises(ValueError, match="mean must be a number or have 1 \\+ 1 coefficients for 1 columns, got 3"):
        GaussianProcess(covariances.RBF(), mean=[1.0, 2.0, 3.0]).fit([[1.0], [2.0]], [0.0, 1.0])


@pytest.mark.parametrize("kind", ["RBF", "Matern12", "Matern32", "Matern52", "RationalQuadratic", "Periodic"])
@pytest.mark.parametrize("value", [0.0, -1.0, np.nan, np.inf])
def test_parameters_that_are_not_positive(kind, value):
    for name in ("variance", "lengthscale"):
        with pytest.raises(ValueError, match=name):
            getattr(covariances, kind)(**{name: value})
    with pytest.raises(ValueError, match="lengthscale"):
        getattr(covariances, kind)(lengthscale=[1.0, value])


def test_covariances_that_do_not_match_the_columns():
    likelihood, X, y = problem("Probit")
    for kernel in (
        covariances.RBF(lengthscale=[1.0, 2.0, 3.0]),
        covariances.Matern32(columns=(0, 2)),
        covariances.RBF() + covariances.Linear(variance=[1.0, 1.0, 1.0]),
        covariances.RBF() * covariances.Periodic(period=[1.0, 2.0, 3.0]),
    ):
        with pytest.raises(ValueError, match="column"):
            GaussianProcess(kernel, likelihood).fit(X, y)
    posterior = GaussianProcess(covariance()[0], likelihood).fit(X, y, learn=False)
    for call in (posterior.predict, posterior.predict_covariance, posterior.predict_proba):
        with pytest.raises(ValueError, match="X must have 2 columns like the data of the fit, got 3"):
            call(np.ones((4, 3)))
    with pytest.raises(ValueError, match="X must have 2 columns"):
        posterior.sample(np.ones((4, 1)), 1, 0)
    with pytest.raises(ValueError, match="X must have 2 columns"):
        posterior.log_density(np.ones((4, 1)), np.ones(4))
    with pytest.raises(ValueError, match="X must have 2 columns like the data of the fit, got 1"):
        posterior.update(np.ones((4, 1)), np.ones(4))
    shared = GaussianProcess(covariances.RBF(), likelihood).fit(
        X, y, learn=False
    )  # one lengthscale for any number of columns
    with pytest.raises(ValueError, match="X must have 2 columns like the data of the fit, got 3"):
        shared.update(np.ones((4, 3)), np.ones(4))


def test_bad_new_rows():
    likelihood, X, y = problem("Probit")
    posterior = GaussianProcess(covariance()[0], likelihood).fit(X, y, learn=False)
    for call, message in (
        (lambda: posterior.predict([[1.0, np.nan]]), r"X must be finite, got X\[0, 1\] = nan"),
        (lambda: posterior.predict([1.0, 2.0]), "X must have 2 dimension"),
        (lambda: posterior.predict(X, offset=[1.0]), "offset must have one entry per row of X"),
        (lambda: posterior.update(X[:2], [0, 2]), "two classes"),
        (lambda: posterior.update(X[:2], [0]), "y must have one entry per row of X, that is 2"),
        (lambda: posterior.update(X[:2], [0, 1], noise_variance=[1.0, 1.0]), "noise_variance"),
        (
            lambda: posterior.predict(X, noise=True),
            "noise=True needs observations that are numbers, Probit has classes",
        ),
        (lambda: posterior.log_density(X, y[:3]), "y must have one entry per row of X, that is 12"),
    ):
        with pytest.raises(ValueError, match=message):
            call()
    with pytest.raises(TypeError, match="rng"):
        posterior.sample(X, 1, None)
    with pytest.raises(TypeError, match="noise must be True or False"):
        posterior.predict(X, noise=1)
    truth = GaussianProcess(covariances.RBF()).fit(X, y, noise_variance=np.ones(12), learn=False)
    with pytest.raises(ValueError, match="noise_variance"):
        truth.update(X[:2], y[:2])
    with pytest.raises(ValueError, match="noise=True has no meaning"):
        truth.predict(X, noise=True)


@pytest.mark.parametrize("likelihood", [likelihoods.Gaussian(), likelihoods.Probit()])
def test_more_rows_than_memory_are_refused_at_once(likelihood):
    n = 2_000_000
    X, y = np.zeros((n, 1)), np.zeros(n)
    start = time.perf_counter()
    with pytest.raises(MemoryError, match=f"{16 * n * n} bytes"):  # two N x N matrices
        GaussianProcess(covariances.RBF(), likelihood).fit(X, y)
    assert time.perf_counter() - start < 5.0


def test_memory_is_looked_up_before_it_is_taken(monkeypatch):
    likelihood, X, y = problem("Probit")
    posterior = GaussianProcess(covariance()[0], likelihood).fit(X, y, learn=False)
    monkeypatch.setattr(cavity.base.arrays, "_memory", lambda: 16 * 12 * 12 - 1)
    with pytest.raises(MemoryError, match="2304 bytes"):
        GaussianProcess(covariance()[0], likelihood).fit(X, y)
    with pytest.raises(MemoryError, match="bytes"):
        posterior.predict_covariance(np.zeros((100, 2)))
    with pytest.raises(MemoryError, match="bytes"):
        posterior.update(X, y)


def test_own_likelihoods_that_misbehave_are_named():
    class NaN(likelihoods.Likelihood):
        def log_tilted(self, y, mean, variance):
            return np.full(len(mean), np.nan), mean, mean

    class Short(likelihoods.Likelihood):
        def log_tilted(self, y, mean, variance):
            return mean[:0], mean, mean

    class Wide(likelihoods.Likelihood):
        def log_p(self, y, f):
            return np.zeros(3)

    class Empty(likelihoods.Likelihood):
        pass

    for likelihood, error, message in (
        (NaN(), ValueError, "NaN.log_tilted must give finite values.*row 0 gave log_z = nan"),
        (Short(), ValueError, r"Short.log_tilted must return three arrays of shape \(1,\), got shapes \(0,\)"),
        (Wide(), ValueError, "Wide.log_p|shape"),
        (Empty(), NotImplementedError, "Empty must define log_p"),
    ):
        with pytest.raises(error, match=message):
            GaussianProcess(covariances.RBF(), likelihood).fit(
                [[1.0], [2.0]], [1.0, 0.0], schedule="parallel", learn=False
            )


def test_what_leaves_the_range_of_float64_is_a_sentence():
    """Huge inputs are legitimate where the covariance is: far away is far away."""
    y = np.array([1.0, -1.0, 0.5])
    posterior = GaussianProcess(covariances.RBF()).fit([[0.0], [1e300], [-1e300]], y, learn=False)
    np.testing.assert_allclose(posterior.mean, y / 2, rtol=ROUNDING)
    with pytest.raises(OverflowError, match="range of float64"):
        GaussianProcess(covariances.Linear()).fit([[0.0], [1e300], [-1e300]], y, learn=False)
    with pytest.raises(OverflowError, match="range of float64"):
        GaussianProcess(covariances.RBF()).fit([[0.0], [1.0], [2.0]], 1e300 * y, learn=False)


def test_rows_without_any_variance_are_refused():
    with pytest.raises(ValueError, match="covariance is zero at every row of X"):
        GaussianProcess(covariances.Linear(), likelihoods.Probit()).fit(np.zeros((2, 2)), [1, 0])


def test_data_frames_must_have_the_columns_of_the_fit(tmp_path):
    pandas = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    frame = pandas.DataFrame({"a": rng.normal(size=12), "b": rng.normal(size=12)})
    y = frame["a"] - frame["b"]
    posterior = GaussianProcess(covariances.RBF()).fit(frame, y, learn=False)
    posterior.save(tmp_path / "p.npz")
    for item in (posterior, cavity.load(tmp_path / "p.npz"), posterior.update(frame[:2], y[:2])):
        assert item.columns == ("a", "b")
        assert np.array_equal(item.predict(frame)[0], item.predict(frame.to_numpy())[0])
        assert np.array_equal(item.predict(frame[["b", "a"]])[0], item.predict(frame)[0])
        with pytest.raises(ValueError, match="X must have the columns of the fit: 'b' missing; there is 'a'"):
            item.predict(frame[["a"]])
        with pytest.raises(ValueError, match="columns of the fit"):
            item.update(frame.rename(columns={"b": "c"}), y)


def test_noise_of_its_own_for_every_row_is_nobody_elses():
    X, y = np.linspace(0.0, 1.0, 8)[:, None], np.sin(np.arange(8.0))
    noise = np.full(8, 0.01)
    weights = np.ones(8)
    weights[3] = 0.0
    posterior = GaussianProcess(covariances.RBF(4.0, 0.3)).fit(
        X, y, noise_variance=noise, sample_weight=weights, learn=False
    )
    with pytest.raises(ValueError, match="log_density has no meaning where every row had a noise_variance"):
        posterior.log_density(X, y)
    with pytest.raises(ValueError, match="noise=True has no meaning where every row had a noise_variance"):
        posterior.predict(X, noise=True)
    assert "noise_variance of every row" in repr(posterior)
    # a row of weight zero has the density that its own noise gives it
    rest = weights > 0
    others = GaussianProcess(covariances.RBF(4.0, 0.3)).fit(X[rest], y[rest], noise_variance=noise[rest], learn=False)
    mean, variance = others.predict(X)
    expected = -0.5 * ((y[3] - mean[3]) ** 2 / (variance[3] + 0.01) + np.log(2 * np.pi * (variance[3] + 0.01)))
    assert posterior.loo_log_density[3] == pytest.approx(expected, abs=SOLVES)


def test_covariances_of_ones_own_without_a_matrix_are_refused_in_words():
    class Own(covariances.Covariance):
        pass

    for use in (
        lambda: GaussianProcess(Own()),
        lambda: cavity.StreamingGP(covariances.RBF() + Own()),
        lambda: Own().cross([[1.0]], [[1.0]]),
        lambda: Own().parameters,
    ):
        with pytest.raises(TypeError, match=r"Own must define gram\(X, Z\), the covariances of rows X with rows Z"):
            use()


def test_too_many_rows_are_shown_the_way(monkeypatch, capsys):
    from cavity.cli import main

    monkeypatch.setattr("cavity.base.arrays._memory", lambda: 1e4)
    X = np.linspace(0.0, 1.0, 60)[:, None]
    with pytest.raises(MemoryError, match=r"shape \(60, 60\) needs 57600 bytes.* cavity.StreamingGP, .* streaming-gp"):
        GaussianProcess(covariances.RBF()).fit(X, X[:, 0])
    assert main(["fit", "gp", "motorcycle"]) == 2
    error = capsys.readouterr().err
    assert error.startswith("cavity: error: the fit: the covariance and a work matrix, each of shape (133, 133) needs ")
    assert "cavity fit streaming-gp" in error
