"""MixedGLM against golden numbers, by columns and by formula."""

import json
from pathlib import Path

import numpy as np
import pandas
import pytest
from support import mixed
from support.tolerances import AT_REST, EARLY, OPTIMUM, PRINTED, SLOPES

import cavity
from cavity import data


def fitted(case, likelihood, by_formula, **settings):
    """The fit of a case, from its columns or from a data frame by its formula."""
    if not by_formula:
        columns = {"X": pandas.DataFrame(case.X, columns=case.names), "y": case.y, "groups": case.groups}
        return cavity.MixedGLM(list(case.effects), likelihood, **settings).fit(**columns)
    pytest.importorskip("formulae")
    name = "cbpp" if "herd" in case.groups else "sleepstudy"
    return cavity.MixedGLM(case.formula, likelihood, **settings).fit(data.table(name, as_frame=True)[0])


@pytest.mark.parametrize("by_formula", [False, True])
def test_cbpp(by_formula):
    case = mixed.cbpp()
    truth, variance = case.known, case.known["fixed_variance"]
    values = fitted(
        case, "binomial", by_formula, prior_variance=variance, effect_covariances={"herd": truth["variance"]}
    )
    assert values.log_evidence == pytest.approx(truth["log_evidence"], abs=AT_REST)
    np.testing.assert_allclose(values.mean, truth["fixed"], atol=EARLY)
    np.testing.assert_allclose(values.sd, truth["fixed_sd"], atol=EARLY)
    learnt = fitted(case, "binomial", by_formula, prior_variance=variance)
    assert learnt.log_evidence == pytest.approx(truth["best_log_evidence"], abs=AT_REST)
    assert float(learnt.model.effect_covariances["herd"][0, 0]) == pytest.approx(truth["best_variance"], abs=OPTIMUM)


@pytest.mark.parametrize("by_formula", [False, True])
def test_sleepstudy_is_reml(by_formula):
    """With a wide prior of the fixed effects, whose constant is taken off; the prior is felt in the fourth digit."""
    case, s2 = mixed.sleepstudy(), 1e10
    truth = case.known
    posterior = fitted(case, "gaussian", by_formula, prior_variance=s2)
    assert posterior.log_evidence + np.log(2 * np.pi * s2) == pytest.approx(truth["reml"], abs=SLOPES)
    learnt = dict(zip(posterior.hyperparameters.names, posterior.hyperparameters.values, strict=True))
    assert [learnt["sd(intercept | Subject)"], learnt["sd(Days | Subject)"]] == pytest.approx(truth["sd"], rel=SLOPES)
    assert learnt["corr(intercept, Days | Subject)"] == pytest.approx(truth["correlation"], abs=SLOPES)
    assert np.sqrt(learnt["noise_variance"]) == pytest.approx(truth["residual_sd"], rel=OPTIMUM)
    np.testing.assert_allclose(posterior.mean, truth["fixed"], rtol=OPTIMUM)
    np.testing.assert_allclose(posterior.sd, truth["fixed_sd"], rtol=SLOPES)
    table = posterior.variance_components()
    assert table.names[-1] == "sd(residual)"
    shown = [*truth["sd"], truth["correlation"], truth["residual_sd"]]
    np.testing.assert_allclose(table.columns["value"], shown, rtol=PRINTED)


def test_intervals_of_components_are_those_of_the_scale_they_are_normal_on():
    """By differences of the evidence itself, in the log of each sd and Fisher's z of the correlation."""
    case = mixed.sleepstudy()
    posterior = fitted(case, "gaussian", False, prior_variance=1e6)
    table = posterior.variance_components(level=0.9)
    first, second, correlation, noise = table.columns["value"]
    centre = np.array([np.log(first), np.log(second), np.arctanh(correlation), np.log(noise)])

    def evidence(z):
        sd, r = np.exp(z[:2]), np.tanh(z[2])
        covariance = np.outer(sd, sd) * [[1.0, r], [r, 1.0]]
        likelihood = cavity.likelihoods.Gaussian(float(np.exp(2.0 * z[3])))
        settings = {"effect_covariances": {posterior.terms[0]: covariance}, "prior_variance": 1e6}
        return fitted(case, likelihood, False, **settings).log_evidence

    step, eye = 0.02, np.eye(4)
    hessian = np.empty((4, 4))
    for i, j in zip(*np.triu_indices(4), strict=True):
        ends = [(a, b, evidence(centre + step * (a * eye[i] + b * eye[j]))) for a in (-1, 1) for b in (-1, 1)]
        hessian[i, j] = hessian[j, i] = sum(a * b * value for a, b, value in ends) / (4.0 * step**2)
    half = 1.6448536269514722 * np.sqrt(np.diag(np.linalg.inv(-hessian)))
    back = (np.exp, np.exp, np.tanh, np.exp)
    for name, side in (("5%", -1), ("95%", 1)):
        expected = [to(z) for to, z in zip(back, centre + side * half, strict=True)]
        np.testing.assert_allclose(table.columns[name], expected, rtol=0.01, atol=0.005)
    slopes = np.array([first, second, 1.0 - correlation**2, noise])
    np.testing.assert_allclose(table.columns["standard error"], half / 1.6448536269514722 * slopes, rtol=0.01)
    assert list(table.to_frame().columns) == ["value", "standard error", "5%", "95%"]
    for message in (repr(table), table._repr_html_()):
        assert "standard error" in message
        assert "sd(residual)" in message
        assert "noise_variance" not in message


GOLDEN = json.loads((Path(__file__).parents[2] / "golden" / "mixed.json").read_text())


@pytest.mark.parametrize("name", mixed.GIVEN)
def test_given_variances(name):
    """Numbers of golden/make_mixed.py, under priors that are wide and whatever the scales of the columns."""
    case, reference = mixed.GIVEN[name](), GOLDEN[name]
    covariances = dict(zip([term.name for term in case.terms], case.known["covariances"], strict=True))
    settings = {"prior_variance": case.known["fixed_variance"], "effect_covariances": covariances}
    posterior = fitted(case, case.likelihood, False, **settings)
    d = len(posterior.mean)
    assert posterior.converged
    assert posterior.n_iter < 20
    assert posterior.log_evidence == pytest.approx(reference["log_evidence"], abs=EARLY)
    np.testing.assert_allclose(posterior.mean, reference["mean"][:d], rtol=OPTIMUM)
    np.testing.assert_allclose(posterior.sd, reference["sd"][:d], rtol=OPTIMUM)
    effects = [moments for term in posterior.terms for moments in zip(*posterior.effect_moments(term), strict=True)]
    np.testing.assert_allclose(np.concatenate([mean for mean, _ in effects]), reference["mean"][d:], atol=EARLY)
    np.testing.assert_allclose(
        np.sqrt(np.concatenate([item for _, item in effects])), reference["sd"][d:], rtol=OPTIMUM
    )
    assert posterior.loo_log_density.sum() == pytest.approx(reference["loo"], abs=OPTIMUM)
    truth = reference["truth"]
    assert 0 < truth["log_evidence"] - posterior.log_evidence < 0.2
    np.testing.assert_allclose(posterior.mean, truth["fixed"], atol=0.05 * max(truth["fixed_sd"]))
