"""What decides the bits of a fit, and words for what differs."""

from dataclasses import replace

import numpy as np
import pytest

import cavity
from cavity.ep.options import Options
from cavity.jobs.fingerprint import MAX_COMPARED_RUNS, NUMBERS_PER_RUN
from cavity.jobs.fingerprint import compute_fingerprint as fingerprint
from cavity.jobs.fingerprint import describe_differences as differences
from cavity.likelihoods import Likelihood
from cavity.sources.sources import open_source

X = np.random.default_rng(0).normal(size=(1000, 3))


class Own(Likelihood):
    def __init__(self, scale):
        self.scale = scale


def glm(**settings):
    return cavity.GLM(cavity.likelihoods.StudentT(1.0, 4.0), **settings)


MODELS = [  # two models, and how they differ
    (glm(prior_mean=0.0), glm(prior_mean=1.0), "prior_mean was 0.0, is 1.0"),
    (glm(), cavity.GLM(cavity.likelihoods.StudentT(1.0, 5.0)), "likelihood.scale was 4.0, is 5.0"),
    (glm(), cavity.GLM(cavity.likelihoods.Probit()), "likelihood was StudentT, is Probit"),
    (glm(prior_variance=np.ones(20)), glm(prior_variance=np.full(20, 2.0)), "prior_variance has other numbers"),
    (cavity.GLM(Own(1.0)), cavity.GLM(Own(2.0)), "likelihood.scale was 1.0, is 2.0"),
    (cavity.UnitMixture(2), cavity.GaussianMixture(2), "model was UnitMixture, is GaussianMixture"),
]


@pytest.mark.parametrize(("one", "other", "text"), MODELS, ids=[message for *_, message in MODELS])
def test_models(one, other, text):
    result = differences(fingerprint(one, {}), fingerprint(other, {}))
    assert result == [text]
    assert differences(fingerprint(one, {}), fingerprint(one, {})) == []


def test_options():
    def of(seed=1, **values):
        options = Options.checked(**values)
        return fingerprint(glm(), {}, options=options, rng=np.random.default_rng(seed), init="auto")

    assert differences(of(), of(tol=1e-10, damping=0.5)) == ["damping was 1.0, is 0.5", "tol was 1e-08, is 1e-10"]
    assert differences(of(), of(seed=2)) == ["rng was in another state"]
    assert differences(of(), of()) == []


def of(data, **more):
    return fingerprint(glm(), {"X": data, **more})


def test_data(tmp_path):
    assert differences(of(X), of(X[:-1])) == ["X had 1000 rows, has 999"]
    assert differences(of(X), of(X[:, :2])) == ["X had 3 columns, has 2"]
    assert differences(of(X), of(X, y=X[:, 0])) == ["y was not given, is given"]
    other = X.copy()
    other[517, 1] += 1e-12
    assert differences(of(X), of(other)) == ["X has other numbers"]
    assert differences(of(X), of(np.asfortranarray(X))) == []
    np.save(tmp_path / "X.npy", X)
    np.save(tmp_path / "narrow.npy", X.astype(np.float32))
    np.save(tmp_path / "wide.npy", X.astype(np.float32).astype(float))
    files = {name: open_source(tmp_path / f"{name}.npy", "X", ndim=(2,)) for name in ("X", "narrow", "wide")}
    assert differences(of(X), of(files["X"])) == []
    assert differences(of(files["narrow"]), of(files["wide"])) == ["X: its files had other sizes"]
    table = open_source(X, "X", ndim=(2,))
    table.names = ("a", "b", "c")
    named = of(table)
    table.names = ("a", "c", "b")
    assert differences(named, of(table)) == ["names of the columns of X were ['a', 'b', 'c'], are ['a', 'c', 'b']"]


def test_of_many_rows_the_first_the_last_and_some_between_are_compared():
    many = np.zeros(MAX_COMPARED_RUNS * NUMBERS_PER_RUN * 2)
    before = of(many)
    for row in (0, NUMBERS_PER_RUN - 1, NUMBERS_PER_RUN, len(many) - 1):
        many[row] += 1.0
        assert (differences(before, of(many)) == []) == (row == NUMBERS_PER_RUN)
        many[row] = 0.0


def test_sparse_matrices():
    from scipy import sparse

    one = sparse.csr_array(np.eye(4))
    assert differences(of(one), of(sparse.csr_array(np.eye(4)))) == []
    assert differences(of(one), of(2.0 * one)) == ["X has other numbers"]


def test_many_differences_are_counted():
    one = cavity.GaussianMixture(2, covariance="diag", weights="stick_breaking", mean_precision_prior=2.0)
    result = differences(fingerprint(one, {"X": X}), fingerprint(replace(one, n_components=3), {"X": X[:5]}))
    assert result == ["n_components was 2, is 3", "X had 1000 rows, has 5"]
    rng = np.random.default_rng(1)
    result = differences(
        fingerprint(one, {"X": X}, a=1, b=2, c=3, d=None),
        fingerprint(cavity.GaussianMixture(5), {"X": X[:5]}, a=2, b=3, c=4, d=rng),
    )
    assert result[-1] == "and 4 more"
    assert differences(fingerprint(one, {}, d=None), fingerprint(one, {}, d=rng)) == ["d was None, is given"]
