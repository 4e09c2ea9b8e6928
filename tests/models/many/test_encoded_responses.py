"""Kernels read the same of responses side by side as of each alone."""

import numpy as np
import pytest
from support.tolerances import SUMS

from cavity import likelihoods
from cavity.likelihoods.base import encode_observations, encode_responses, kernel_settings
from cavity.likelihoods.parameters import FreeParameters

RNG = np.random.default_rng(2)
COUNTS = RNG.poisson(4.0, size=(3, 50)).astype(float)
COUNTS[:, :2] = 0.0, 1e6


@pytest.mark.parametrize(
    ("likelihood", "names", "y"),
    [
        (likelihoods.NegativeBinomial(2.0), ("dispersion",), COUNTS),
        (likelihoods.NegativeBinomial(2.0), (), COUNTS),
        (likelihoods.Poisson(), (), COUNTS),
        (likelihoods.Gaussian(0.5), ("noise_variance",), COUNTS),
        (likelihoods.Gamma(2.0), ("shape",), COUNTS + 0.5),
        (likelihoods.ZeroInflatedNegativeBinomial(2.0, 0.3), ("dispersion", "zero_probability"), COUNTS),
    ],
)
def test_responses_are_encoded_as_each_alone(likelihood, names, y):
    free = FreeParameters(likelihood, names)
    vectors = free.pack(likelihood) + RNG.normal(size=(3, free.size))
    encoded = encode_responses(likelihood, y, free, vectors)
    for parameters, numbers, extra, vector, response in zip(*encoded, vectors, y, strict=True):
        single = free.unpack(vector, likelihood)
        np.testing.assert_allclose(parameters, kernel_settings(single)[1], rtol=SUMS)
        expected = encode_observations(single, response)
        np.testing.assert_array_equal(numbers, expected[0])
        np.testing.assert_allclose(extra, expected[1], rtol=SUMS, atol=SUMS)
