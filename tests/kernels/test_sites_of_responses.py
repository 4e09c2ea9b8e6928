"""Sites of many responses by one call: those of each response alone, to the last bit."""

import numpy as np
import pytest

from cavity import _core, likelihoods
from cavity.likelihoods.base import encode_observations, kernel_settings

N, A = 70, 9  # more than a queue of sites, and no whole number of lanes
RNG = np.random.default_rng(0)
COUNTS, LABELS = RNG.poisson(3.0, size=(A, N)).astype(float), np.where(RNG.random((A, N)) < 0.5, 1.0, -1.0)
REAL, SCALES = RNG.normal(size=(A, N)), np.exp(RNG.normal(size=A))
RESPONSES = {
    "probit": ([likelihoods.Probit()] * A, LABELS),
    "logit": ([likelihoods.Logit()] * A, LABELS),
    "poisson": ([likelihoods.Poisson()] * A, COUNTS),
    "negative binomial": ([likelihoods.NegativeBinomial(r) for r in SCALES], COUNTS),
    "zero-inflated": ([likelihoods.ZeroInflatedPoisson(p) for p in 0.9 * RNG.random(A)], COUNTS),
    "gaussian": ([likelihoods.Gaussian(v) for v in SCALES], REAL),
    "student": ([likelihoods.StudentT(2.0 + v, v) for v in SCALES], REAL),
    "gamma": ([likelihoods.Gamma(v) for v in SCALES], np.exp(REAL)),
}


@pytest.mark.parametrize("powers", [1.0, 0.7, "by row"])
@pytest.mark.parametrize("variant", _core.variants("sites"))
@pytest.mark.parametrize("name", RESPONSES)
def test_each_response_has_its_own_bits(name, variant, powers):
    several, y = RESPONSES[name]
    power = RNG.uniform(0.3, 1.0, size=N) if powers == "by row" else np.array([powers])
    mean, variance = RNG.normal(0.5, 2.0, size=(A, N)), np.exp(RNG.normal(0.0, 2.0, size=(A, N)))
    kernel, sites = _core.load("sites", variant), np.empty((3, A, N))
    kind, parameters = several[0]._kind, np.array([kernel_settings(likelihood)[1] for likelihood in several])
    encoded = [encode_observations(likelihood, item) for likelihood, item in zip(several, y, strict=True)]
    numbers, extra = (np.array(part) for part in zip(*encoded, strict=True))
    kernel.evaluate_responses(kind, parameters, power, numbers, extra, mean, variance, *sites)
    for a in range(A):
        single = np.empty((3, N))
        kernel.evaluate(kind, parameters[a], power, *encoded[a], mean[a], variance[a], True, *single)
        assert sites[:, a].tobytes() == single.tobytes()
    nothing = np.empty((0, N))
    kernel.evaluate_responses(kind, parameters[:0], power, *[nothing] * 4, *[nothing] * 3)
