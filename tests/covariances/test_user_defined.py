"""Covariances of users: against compiled twins, alone and composed, learnt in both processes; what is refused."""

import copy
import pickle
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest
from scipy import stats
from support.tolerances import EARLY, EXPANSION, OPTIMUM, ROOT_EPS, ROUNDING, SUMS

import cavity
from cavity import likelihoods
from cavity.covariances import RBF, Constant, Covariance, Linear, LogNormal, Periodic, White
from cavity.covariances.base import compute_gram


def squares(X, Z, lengthscale):
    return (np.subtract.outer(X.T, Z.T).diagonal(axis1=0, axis2=2) / lengthscale) ** 2  # (n, m, D)


@dataclass(frozen=True)
class Smooth(Covariance):
    """RBF without derivatives."""

    variance: float = 1.0
    lengthscale: float = 1.0

    def gram(self, X, Z):
        return self.variance * np.exp(-0.5 * squares(X, Z, self.lengthscale).sum(axis=2))


@dataclass(frozen=True, eq=False)
class SmoothByColumn(Covariance):
    """RBF with derivatives and variances."""

    lengthscale: np.ndarray
    variance: float = 1.0
    power: int = 2
    name: str = "a setting"

    def gram(self, X, Z):
        return self.variance * np.exp(-0.5 * squares(X, Z, self.lengthscale).sum(axis=2))

    def diagonal(self, X):
        return np.full(len(X), self.variance)

    def gradients(self, X, Z):
        k = self.gram(X, Z)
        return {"variance": k, "lengthscale": np.moveaxis(k[..., None] * squares(X, Z, self.lengthscale), 2, 0)}


ONE, MANY = Smooth(1.3, 0.7), SmoothByColumn(np.array([0.5, 2.0]), 1.3)
TWIN, TWIN_OF_MANY = RBF(1.3, 0.7), RBF(1.3, [0.5, 2.0])
PAIRS = {
    "alone": (ONE, TWIN),
    "with derivatives": (MANY, TWIN_OF_MANY),
    "number": (2.5 * ONE, 2.5 * TWIN),
    "sum": (ONE + Linear(0.4) * White(0.1) + Constant(0.3), TWIN + Linear(0.4) * White(0.1) + Constant(0.3)),
    "nested": (
        (MANY + Linear(0.3)) * Periodic(1.1) * RBF() + White(0.2) + ONE,
        (TWIN_OF_MANY + Linear(0.3)) * Periodic(1.1) * RBF() + White(0.2) + TWIN,
    ),
}


def rows(n=300, seed=0):
    return np.random.default_rng(seed).normal(size=(n, 2))


@pytest.mark.parametrize("name", PAIRS)
def test_matrices_and_gradients_are_those_of_the_twin(name):
    own, twin = PAIRS[name]
    X, Z, rng = rows(), rows(20, 1), np.random.default_rng(2)
    W, V = rng.normal(size=(300, 300)), rng.normal(size=(300, 20))
    W = W + W.T
    gram = compute_gram(own, X)
    assert np.array_equal(gram, gram.T)
    np.testing.assert_allclose(gram, twin.gram(X), rtol=SUMS, atol=ROUNDING)
    np.testing.assert_allclose(own.cross(X, Z), twin.cross(X, Z), rtol=SUMS, atol=ROUNDING)
    np.testing.assert_allclose(Covariance.diagonal(own, X), twin.diagonal(X), rtol=SUMS)
    for actual, expected in (
        (own.gradient(X, W), twin.gradient(X, W)),
        (own.gradient(X, V, Z), twin.gradient(X, V, Z)),
        (own.diagonal_gradient(X, V[:, 0]), twin.diagonal_gradient(X, V[:, 0])),
    ):
        actual = swapped(actual, own)
        np.testing.assert_allclose(actual, expected, rtol=EARLY, atol=ROOT_EPS * np.max(np.abs(expected)))


def swapped(gradient, covariance):
    """A gradient with the variance of `SmoothByColumn` before its lengthscales."""
    place = [i for i, name in enumerate(covariance.parameter_names) if name.startswith("smooth_by_column")]
    order = np.arange(len(gradient))
    order[place] = [*place[2:], *place[:2]]
    return gradient[order]


def test_bits_do_not_depend_on_the_number_of_threads():
    own, X, W = PAIRS["nested"][0], rows(700), np.ones((700, 700))
    for call in (
        lambda n: compute_gram(own, X, n_threads=n),
        lambda n: own.cross(X, X[:300], n_threads=n),
        lambda n: own.gradient(X, W, n_threads=n),
    ):
        assert np.array_equal(call(1), call(3))


def test_parameters_have_names_bounds_and_priors():
    @dataclass(frozen=True)
    class OfTwoParts(Covariance):
        variance: float = 2.0
        shape: float = 1.0
        degree: int = 3
        bounds: ClassVar = {"shape": (0.5, 4.0)}
        priors: ClassVar = {"variance": LogNormal(1.0, 0.5)}

        def gram(self, X, Z):
            return self.variance * np.ones((len(X), len(Z)))

    own = OfTwoParts() + RBF()
    assert own.parameter_names[:2] == ("of_two_parts.variance", "of_two_parts.shape")
    assert own.parameters["of_two_parts.shape"] == 1.0
    np.testing.assert_allclose(own.log_bounds[1], np.log([0.5, 4.0]))
    value, slope = own.log_prior()
    assert value == pytest.approx(stats.lognorm(0.5).logpdf(2.0))
    assert slope[0] == pytest.approx(-np.log(2.0) / 0.25 - 1.0)
    fixed = own.fix("of_two_parts.variance")
    assert fixed.parameter_names == ("of_two_parts.shape", "rbf.variance", "rbf.lengthscale")
    assert fixed.with_log_parameters([0.1, 0.0, 0.0]).parts[0].fixed == ("variance",)
    assert fixed.free() == own
    assert own.with_log_parameters(own.log_parameters) == own
    assert own != fixed
    assert (OfTwoParts() * OfTwoParts(3.0)).parameter_names[2] == "of_two_parts_2.variance"
    assert copy.deepcopy(MANY) == MANY != SmoothByColumn(np.array([0.5, 2.1]), 1.3)
    assert pickle.loads(pickle.dumps(ONE.fix("smooth.variance"))).parameter_names == ("smooth.lengthscale",)


@pytest.mark.parametrize("likelihood", [likelihoods.Gaussian(0.1), likelihoods.Probit()])
def test_processes_are_those_of_the_twin(likelihood):
    X = rows(120)
    f = np.sin(2.0 * X[:, 0]) + 0.3 * np.random.default_rng(3).normal(size=120)
    y = f if isinstance(likelihood, likelihoods.Gaussian) else f > 0
    own, twin = Constant(0.5) * ONE + Linear(0.1), Constant(0.5) * TWIN + Linear(0.1)
    results = []
    for covariance in (own, twin):
        batch = cavity.GaussianProcess(covariance, likelihood).fit(X[:100], y[:100], learn=False)
        batch = batch.update(X[100:], y[100:])
        stream = cavity.StreamingGP(covariance, likelihood, n_inducing=20).fit(X[:100], y[:100], learn=False)
        stream.update(X[100:119], y[100:119])
        stream.update(X[119:], y[119:])
        results.append(
            (batch.log_evidence, *batch.predict(X[:9]), *batch.predict_covariance(X[:3]), *stream.predict(X[:9]))
        )
        assert np.all(np.isfinite(batch.sample(X[:3], 2, 0)))
    for mine, other in zip(*results, strict=True):
        np.testing.assert_allclose(mine, other, rtol=OPTIMUM, atol=EARLY)


def test_parameters_are_learnt_to_where_the_twin_has_them():
    X = rows(80)
    y = np.sin(2.0 * X[:, 0]) + 0.1 * np.random.default_rng(3).normal(size=80)
    posterior = [
        cavity.GaussianProcess(covariance, likelihoods.Gaussian(0.01)).fit(X, y, learn="covariance")
        for covariance in (Smooth() + White(0.01, fixed="variance"), RBF() + White(0.01, fixed="variance"))
    ]
    assert posterior[0].log_evidence == pytest.approx(posterior[1].log_evidence, abs=OPTIMUM)
    np.testing.assert_allclose(*(np.exp(p.model.covariance.log_parameters) for p in posterior), rtol=EXPANSION)
    streams = [cavity.StreamingGP(k, likelihoods.Gaussian(0.01), inducing=X[:15]).fit(X, y) for k in (Smooth(), RBF())]
    np.testing.assert_allclose(*(np.exp(s.model.covariance.log_parameters) for s in streams), rtol=EXPANSION)


def test_files_are_refused_and_pickles_are_not(tmp_path):
    X, y = rows(20), np.arange(20.0)
    for model in (cavity.GaussianProcess(ONE), cavity.StreamingGP(ONE)):
        posterior = model.fit(X, y, learn=False)
        with pytest.raises(TypeError, match=r"Smooth is a covariance of your own.*pickle\.dump"):
            posterior.save(tmp_path / "own.npz")
        assert not list(tmp_path.iterdir())
        restored = pickle.loads(pickle.dumps(posterior))
        np.testing.assert_array_equal(restored.predict(X)[0], posterior.predict(X)[0])


def own(value, **changes):
    """A covariance whose gram(X, Z) is value(X, Z)."""
    methods = {"gram": lambda self, X, Z: value(X, Z)} | changes
    return dataclass(frozen=True)(type("Mine", (Covariance,), methods))()


@pytest.mark.parametrize(
    ("covariance", "error", "message"),
    [
        (own(lambda X, Z: X @ X.T), ValueError, r"gram\(X, Z\) of Mine must have shape \(4, 2\), got \(4, 4\)"),
        (own(lambda X, Z: X @ Z.T * np.nan), ValueError, r"gram\(X, Z\) of Mine must be finite"),
        (own(lambda X, Z: [["a"] * len(Z)] * len(X)), TypeError, r"gram\(X, Z\) of Mine"),
        (own(lambda X, Z: X[:, :1] + 0.0 * Z[:, 0]), ValueError, r"gram\(X, X\) of Mine must be symmetric"),
        (own(lambda X, Z: -(X @ Z.T)), ValueError, "Mine: k.x, x. is a variance and cannot be negative, got -"),
        (own(lambda X, Z: X @ Z.T, diagonal=lambda self, X: X), ValueError, r"diagonal\(X\) of Mine must have shape"),
        (own(lambda X, Z: X @ Z.T, fixed=("length",)), ValueError, "fixed: Mine has no parameter 'length'"),
        (own(lambda X, Z: X @ Z.T, bounds={"a": 1.0}), ValueError, "bounds: Mine has no parameter 'a'"),
        (type("Mine", (Covariance,), {})(), TypeError, r"Mine must define gram\(X, Z\), the covariances"),
        (Smooth(-1.0), ValueError, "variance of Smooth must be positive, got -1"),
        (Smooth(np.ones(2)), TypeError, r"Smooth holds an array, variance.*eq=False"),
        (own(lambda X, Z: np.exp(700.0 + X @ Z.T)) * RBF(1e10), OverflowError, "leaves the range of float64"),
    ],
)
def test_what_is_no_covariance_is_refused(covariance, error, message):
    X = 1.0 + rows(4) ** 2
    with pytest.raises(error, match=message):
        (
            covariance.cross(X, X[:2]),
            covariance.diagonal(X),
            Covariance.diagonal(covariance, X),
            compute_gram(covariance, X),
        )


def test_gradients_are_checked():
    @dataclass(frozen=True)
    class Forgetful(Smooth):
        def gradients(self, X, Z):
            return {"variance": self.gram(X, Z)}

    with pytest.raises(ValueError, match=r"gradients\(X, Z\) of Forgetful must be a dict with variance, length"):
        Forgetful().gradient(rows(4), np.eye(4))
    with pytest.raises(TypeError, match="Smooth has no derivatives in the rows"):
        (ONE + RBF()).input_gradient(rows(4), np.eye(4))


def test_rows_cannot_be_changed():
    def gram(X, Z):
        X[:] = 0.0

    with pytest.raises(ValueError, match="read-only"):
        own(gram).cross(rows(4), rows(3))
