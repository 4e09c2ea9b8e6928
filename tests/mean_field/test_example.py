"""The worked example of a model of one's own, as the page on mean field has it, against its closed form."""

import doctest
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from scipy import stats
from support.tolerances import AT_REST, OPTIMUM, ROOT_EPS, SLOPES, SUMS

import cavity
from cavity import mean_field

PAGE = Path(__file__).parents[2] / "docs" / "mean_field.rst"
NEEDED = ("import", "from", "def expected_log_prior", "class UnivariateGaussian", "def exact")


@cache
def example():
    """Return the names that the page defines for its example."""
    names = {}
    for part in doctest.DocTestParser().get_examples(PAGE.read_text(encoding="utf-8")):
        if part.source.startswith(NEEDED):
            exec(part.source, names)
    return names


def model(*args, **settings):
    return example()["UnivariateGaussian"](*args, **settings)


def test_it_satisfies_the_equations_of_the_book():
    x = np.random.default_rng(0).normal(3.0, 2.0, 25)
    post = mean_field.fit(model(x, m=1.0, c=0.5, a=2.0, b=3.0), tol=1e-15)
    mean, precision = post["mean"], post["precision"]
    assert mean.mean == pytest.approx((0.5 * 1.0 + x.sum()) / (0.5 + 25), rel=SUMS)  # (10.26)
    assert mean.variance == pytest.approx(1 / ((0.5 + 25) * precision.mean), rel=ROOT_EPS)  # (10.27)
    assert precision.shape == pytest.approx(2.0 + 26 / 2)  # (10.29)
    squares = np.sum((x - mean.mean) ** 2) + 25 * mean.variance + 0.5 * ((mean.mean - 1.0) ** 2 + mean.variance)
    assert precision.rate == pytest.approx(3.0 + 0.5 * squares, rel=ROOT_EPS)  # (10.30)


def test_log_evidence_is_elbo_plus_kl():
    x = np.array([0.5, 1.5, 1.0, 2.2])
    one = model(x, m=0.3, c=1.0, a=2.0, b=1.0)
    post, (_, log_evidence) = mean_field.fit(one, tol=1e-15), example()["exact"](one)
    # by quadrature over log tau and u = (mu - 1) sqrt(tau), in which everything falls off fast
    t, u = np.meshgrid(np.linspace(-12.0, 6.0, 501), np.linspace(-14.0, 14.0, 401), indexing="ij")
    tau, mu = np.exp(t), 1.0 + u * np.exp(-0.5 * t)
    cell = np.exp(0.5 * t) * (t[1, 0] - t[0, 0]) * (u[0, 1] - u[0, 0])  # dmu dtau
    joint = stats.norm(0.3, tau**-0.5).logpdf(mu) + stats.gamma(2.0, scale=1.0).logpdf(tau)
    joint = joint + sum(stats.norm(item, tau**-0.5).logpdf(mu) for item in x)
    assert log_evidence == pytest.approx(np.log(np.sum(np.exp(joint) * cell)), abs=AT_REST)
    log_q = stats.norm(post["mean"].mean, post["mean"].variance ** 0.5).logpdf(mu)
    log_q = log_q + stats.gamma(post["precision"].shape, scale=1.0 / post["precision"].rate).logpdf(tau)
    kl = np.sum(np.exp(log_q) * (log_q - joint + log_evidence) * cell)
    assert kl > 0.01
    assert post.elbo + kl == pytest.approx(log_evidence, abs=AT_REST)


def test_it_has_the_numbers_of_the_shipped_model_of_earlier_versions():
    """Those of the docstring of `UnivariateGaussian` in 0.2.0."""
    one = model([0.5, 1.5, 1.0, 2.2], c=1.0, a=1.0, b=1.0)
    post, (_, log_evidence) = mean_field.fit(one, tol=1e-14), example()["exact"](one)
    assert (round(post["mean"].mean, 6), round(post["precision"].mean, 6)) == (1.04, 1.216545)
    assert (round(post.elbo, 6), round(log_evidence - post.elbo, 6)) == (-6.576125, 0.081007)


def test_laws():
    x = np.random.default_rng(1).normal(size=30)
    settings = dict(c=0.1, a=1.5, b=0.7)
    post = mean_field.fit(model(x, m=0.2, **settings))
    assert post.converged
    assert 0 <= post.contraction < 0.2  # 1/34 near the optimum
    moved = mean_field.fit(model(x + 1e8, m=0.2 + 1e8, **settings))
    assert moved["precision"].mean == pytest.approx(post["precision"].mean, rel=OPTIMUM)
    assert moved.elbo == pytest.approx(post.elbo, abs=SLOPES)
    for few in ([5.0, 5.0], [2.0]):
        one = model(few)
        assert mean_field.fit(one).elbo <= example()["exact"](one)[1]


def test_a_posterior_of_the_example_is_saved_and_read(tmp_path):
    post = mean_field.fit(model([1.0, 2.0, 4.0]))
    post.save(tmp_path / "post.npz")
    assert repr(cavity.load(tmp_path / "post.npz")) == repr(post)
