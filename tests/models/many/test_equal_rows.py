"""Equal rows of many responses of a mixed model are one site, as in a fit of a response alone."""

import numpy as np
import pytest
from support.tolerances import AT_REST, EXPANSION

import cavity
from cavity import likelihoods

RNG = np.random.default_rng(3)
N, G = 48, 4
DONORS, TREATED = np.arange(N) % 6, (np.arange(N) // 6 % 2).astype(float)
F = 1.0 + 0.3 * TREATED[:, None] + RNG.normal(0.0, 0.5, size=(6, G))[DONORS]
MEAN = np.exp(F)
COUNTS = RNG.poisson(RNG.gamma(3.0, MEAN / 3.0)).astype(float)
RESPONSES = {
    "poisson": ("poisson", COUNTS),
    "negative binomial": (likelihoods.NegativeBinomial(3.0), COUNTS),
    "logit": ("logit", (F + RNG.logistic(size=F.shape) > 1.0).astype(float)),
    "gamma": (likelihoods.Gamma(2.0), RNG.gamma(2.0, MEAN / 2.0)),
    "beta": (likelihoods.Beta(5.0), RNG.beta(2.0, 3.0, size=F.shape)),
    "student": (likelihoods.StudentT(4.0, 1.0), F + RNG.standard_t(4.0, size=F.shape)),
    "binomial": ("binomial", RNG.binomial(5, 0.4, size=F.shape).astype(float)),
    "learnt": ("negative-binomial", COUNTS),
}
WEIGHTS = np.where(np.arange(N) % 4 == 0, 2.0, np.where(np.arange(N) % 5 == 0, 0.5, 1.0))
OPTIONS = {
    "rows": {},
    "weights": {"sample_weight": WEIGHTS},
    "offsets": {"offset": 0.5 * RNG.integers(-1, 2, size=(N, G))},
}


@pytest.mark.parametrize("has_gaps", [False, True])
@pytest.mark.parametrize("kind", OPTIONS)
@pytest.mark.parametrize("name", RESPONSES)
def test_equal_rows_are_one_site_as_in_a_fit_alone(name, kind, has_gaps):
    (likelihood, Y), options = RESPONSES[name], OPTIONS[kind]
    Y = Y.copy()
    if has_gaps:
        Y[[3, 9], 1] = Y[7, 2] = np.nan
    trials = {"trials": np.full(N, 5.0)} if name == "binomial" else {}
    model = cavity.MixedGLM("donor", likelihood, intercept=True, effect_covariances={"donor": 0.3})
    rest = {"tol": 1e-12, "missing": "drop" if has_gaps else "raise"}
    many = model.fit_many(TREATED[:, None], Y, groups={"donor": DONORS}, **options, **trials, **rest)
    assert many.converged.all()
    tolerance = EXPANSION if name == "learnt" else AT_REST  # searches end at slopes of 1e-4 nats
    for number in range(G):
        rows = ~np.isnan(Y[:, number])
        own = {key: (v[:, number] if v.ndim == 2 else v)[rows] for key, v in options.items()}
        y = np.column_stack([Y[rows, number], trials["trials"][rows]]) if trials else Y[rows, number]
        alone = model.fit(TREATED[rows, None], y, groups={"donor": DONORS[rows]}, **own, tol=1e-12)
        np.testing.assert_allclose((many.mean[number, :2] - alone.mean) / alone.sd, 0.0, atol=tolerance)
        np.testing.assert_allclose(np.sqrt(np.diagonal(many.covariance(number))[:2]), alone.sd, rtol=tolerance)
        np.testing.assert_allclose(many.log_evidence[number], alone.log_evidence, rtol=tolerance)


@pytest.mark.parametrize("likelihood", ["logit", "poisson", "gaussian"])
@pytest.mark.parametrize("row", [3, N - 1])
def test_rows_without_an_effect_are_refused_as_in_a_fit_alone(likelihood, row):
    slope = TREATED + 1.0
    slope[row] = 0.0
    table = {"slope": slope, "donor": DONORS}
    Y = RESPONSES["logit"][1] if likelihood == "logit" else COUNTS
    with pytest.raises(ValueError, match=f"must have an effect in every row, got 0 in all columns .* row {row}$"):
        cavity.MixedGLM("~ 0 + slope + (0 + slope | donor)", likelihood).fit_many(table, Y)
