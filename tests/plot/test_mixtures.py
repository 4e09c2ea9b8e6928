"""Pictures of mixtures show their components, and whose the points are."""

from dataclasses import replace

import numpy as np
import pytest
from support.mixtures import faithful, groups
from support.tolerances import EXPANSION, INTEGRAL

import cavity

plot = pytest.importorskip("cavity.plot")
mixtures = pytest.importorskip("cavity.plot.mixtures")
picture = pytest.importorskip("cavity.plot.posterior_figures").make_figure


@pytest.fixture(name="faithful", scope="module")
def make_faithful():
    return faithful()


def test_the_ascent_is_shown_if_there_is_one(faithful):
    posterior = cavity.GaussianMixture(2).fit(faithful, init="principal")
    ascent = picture(posterior, faithful, trace=True).axes[-1]
    elbo = posterior.trace["elbo"]
    behind = ascent.lines[0].get_ydata()
    np.testing.assert_array_equal(behind, (elbo[-1] - elbo)[: len(behind)])
    second = replace(posterior, trace={"elbo": elbo[-1:]}, n_iter=1)
    ascent = plot.TraceDisplay.from_posterior(second).ax_
    assert "nothing changed" in ascent.texts[0].get_text()
    assert f"ELBO {second.elbo:.4f}" in ascent.get_title()


@pytest.mark.sample(3)
@pytest.mark.parametrize("covariance", ["full", "tied", "diag", "spherical"])
@pytest.mark.parametrize("columns", ["1", "3,2,1"])
@pytest.mark.parametrize("components", ["1", "2", "9"])
def test_pictures_of_every_kind(covariance, columns, components):
    X = groups()[:, [int(column) - 1 for column in columns.split(",")]]
    posterior = cavity.GaussianMixture(int(components), covariance=covariance).fit(X)
    names = [f"length {column} [mm]" for column in columns.split(",")]
    figure = picture(posterior, X, names=names, title="groups")
    axes = figure.axes[0]
    occupied = np.sum(posterior.counts > 0.5)
    if len(names) == 1:
        total, *parts = (line.get_ydata() for line in axes.lines)
        np.testing.assert_allclose(sum(parts), total, rtol=INTEGRAL)  # components add up to the predictive density
        assert figure.axes[1].get_xlabel() == names[0]
        return
    assert len(axes.texts) == occupied
    assert len(axes.lines) == 2 * occupied
    assert names[0] in axes.get_xlabel() + axes.get_ylabel()


def test_ellipses_and_colours(faithful):
    posterior = cavity.GaussianMixture(2).fit(faithful)
    axes = picture(posterior, faithful, names=["eruptions [min]", "waiting [min]"]).axes[0]
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("eruptions [min]", "waiting [min]")
    for k in range(2):
        inverse = np.linalg.inv(posterior.covariance[k])
        for sd, line in zip((1, 2), axes.lines[2 * k : 2 * k + 2], strict=True):
            apart = line.get_xydata() - posterior.mean[k]
            assert np.einsum("ni,ij,nj->n", apart, inverse, apart) == pytest.approx(sd**2)
        assert axes.texts[k].get_text() == str(k + 1)
        assert axes.texts[k].get_position() == pytest.approx(tuple(posterior.mean[k]))
    points = axes.collections[0]
    colors, share = points.get_facecolors()[:, :3], posterior.responsibilities(faithful)
    ends = [colors[share[:, k].argmax()] for k in range(2)]
    np.testing.assert_allclose(colors, share @ ends, atol=EXPANSION)  # colours mix as responsibilities do


def test_directions_that_discriminate():
    """Of many columns the two axes are uncorrelated within components, and no direction separates them better."""
    X = groups()
    posterior = cavity.GaussianMixture(3).fit(X)
    axes, labels = mixtures._choose_directions(posterior, list("abcd"))
    weights, covariances = posterior.weights, posterior.component_covariances()
    within = np.einsum("k,kij->ij", weights, covariances)
    apart = posterior.mean - weights @ posterior.mean
    between = np.einsum("k,ki,kj->ij", weights, apart, apart)
    assert axes.T @ within @ axes == pytest.approx(np.eye(2), abs=INTEGRAL)

    def separation(directions):
        return np.einsum("id,ij,jd->d", directions, between, directions) / np.einsum(
            "id,ij,jd->d", directions, within, directions
        )

    best = separation(axes)
    tried = np.random.default_rng(0).normal(size=(4, 2000))
    assert separation(tried).max() <= best[0]
    assert best.sum() == pytest.approx(np.trace(np.linalg.solve(within, between)))  # three means lie in a plane
    for label, share in zip(labels, best / best.sum(), strict=True):
        assert label.startswith(f"discriminating direction, {share:.0%} of the separation\n")
    two = cavity.GaussianMixture(2).fit(X[X[:, 1] < 5])
    axes, labels = mixtures._choose_directions(two, list("abcd"))
    assert "largest spread that is left" in labels[1]
    within = np.einsum("k,kij->ij", two.weights, two.component_covariances())
    assert axes[:, 0] @ within @ axes[:, 1] == pytest.approx(0.0, abs=INTEGRAL)


@pytest.mark.parametrize("columns", [1, 2])
def test_no_component_with_half_a_point(columns):
    """Three that share one point are drawn without an ellipse or an interval of any."""
    row = np.ones((1, columns))
    model = cavity.GaussianMixture(3, "diag", mean_prior=np.zeros(columns), covariance_prior=np.ones(columns))
    posterior = replace(model.fit(row), counts=np.full(3, 1.0 / 3.0))
    axes = picture(posterior, row).axes[0]
    assert not axes.texts
    assert np.isfinite([*axes.get_xlim(), *axes.get_ylim()]).all()
