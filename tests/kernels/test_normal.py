"""The standard normal kernels: log Phi, the hazard and 1 - w against published numbers and mpmath, in every variant."""

import mpmath as mp
import numpy as np
import pytest
from support.examples import count_draws

from cavity import _core

EPS = np.finfo(float).eps
VARIANTS = _core.variants("normal")

# t: log Phi(t), h = phi(t)/Phi(t), 1 - w = 1 - h (h + t); mpmath with 60 digits gives the same, see below
GOLDEN = {
    -5.0: (-15.064998393988725736, 5.1865039671258421156, 0.032696434617112225345),
    -10.0: (-53.231285150512470578, 10.098093233962511963, 0.0094453778256562611641),
    -38.0: (-726.5572160188201301, 38.026279466575868988, 6.8965975346625886897e-4),
    -1e3: (None, None, 9.9999400004999948201e-7),
    -1e5: (None, None, 9.999999994e-11),
}


def log_cdf_hazard(variant, z):
    z = np.ascontiguousarray(z, dtype=float)
    out = np.empty_like(z), np.empty_like(z)
    _core.load("normal", variant).log_cdf_hazard(z, *out)
    return out


def curvature(variant, z):
    z = np.ascontiguousarray(z, dtype=float)
    out = np.empty_like(z), np.empty_like(z), np.empty_like(z)
    _core.load("normal", variant).curvature(z, *out)
    return out


def truth(z):
    """(log Phi, h, w, 1 - w, h + z w) from erfc in 60 digits (and more where 1 - w cancels)."""
    with mp.workdps(60):
        z = mp.mpf(float(z))
        cdf = mp.erfc(-z / mp.sqrt(2)) / 2
        log_cdf = mp.log1p(-mp.erfc(z / mp.sqrt(2)) / 2) if z > 0 else mp.log(cdf)
        h = mp.exp(-z * z / 2) / mp.sqrt(2 * mp.pi) / cdf
        w = h * (h + z)
        return log_cdf, h, w, 1 - w, h + z * w


def relative(actual, desired):
    return max(float(abs(mp.mpf(float(a)) / d - 1)) for a, d in zip(actual, desired, strict=True))


@pytest.mark.parametrize("variant", VARIANTS)
def test_published_numbers(variant):
    z = np.array(list(GOLDEN))
    results = (*log_cdf_hazard(variant, z), curvature(variant, z)[1])
    for i, row in enumerate(GOLDEN.values()):
        for result, value, bound in zip(results, row, (2 * EPS, 2 * EPS, 1e-14), strict=True):
            if value is not None:
                assert result[i] == pytest.approx(value, rel=bound)


@pytest.mark.more_draws
def test_log_cdf_and_hazard_to_5_eps():
    z = np.concatenate(
        [np.linspace(-40, 37, count_draws(1500)), np.linspace(-1, 1, 100), [-1e-300, 0.0, 1e-300, -1e-9, 1e-9]]
    )
    z = np.concatenate([z, -np.geomspace(40, 1e5, 60)])
    exact = [truth(item) for item in z]
    log_cdf, hazard = log_cdf_hazard(VARIANTS[-1], z)
    assert relative(log_cdf, [e[0] for e in exact]) < 5 * EPS
    assert relative(hazard, [e[1] for e in exact]) < 5 * EPS


def test_curvature_and_its_complement():
    z = np.concatenate([np.linspace(-40, 37, 400), -np.geomspace(40, 1e5, 60)])
    exact = [truth(item) for item in z]
    w, variance, pull = curvature(VARIANTS[-1], z)
    assert relative(w, [e[2] for e in exact]) < 1e-14
    assert relative(variance, [e[3] for e in exact]) < 1e-14
    assert relative(pull, [e[4] for e in exact]) < 1e-14


def test_limits():
    z = np.array([-np.inf, -1e300, -1e160, 40.0, 1e300, np.inf])
    log_cdf, hazard = log_cdf_hazard(VARIANTS[-1], z)
    assert (log_cdf[:3] < -1e300).all()
    np.testing.assert_array_equal(log_cdf[3:], -hazard[3:])  # phi(z) M(z) and phi(z), both below 1e-347
    assert (np.abs(hazard[3:]) < 1e-300).all()
    np.testing.assert_allclose(hazard[1:3], -z[1:3], rtol=4 * EPS)


@pytest.mark.parametrize("variant", VARIANTS[1:])
def test_variants_return_the_same_bits(variant):
    z = np.concatenate([np.linspace(-50, 45, 3001), -np.geomspace(1, 1e300, 200), [0.0, -0.0]])
    for function in (log_cdf_hazard, curvature):
        for n in (1, 5, 127, 128, 129, len(z)):
            for one, other in zip(function(_core.BASELINE_VARIANT, z[:n]), function(variant, z[:n]), strict=True):
                np.testing.assert_array_equal(one.view(np.int64), other.view(np.int64))
