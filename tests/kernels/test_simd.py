"""The portable arithmetic: accuracy against mpmath, special values, equal bits from every variant."""

import operator
import subprocess
import sys
from functools import reduce

import mpmath as mp
import numpy as np
import pytest
from support.examples import count_draws

from cavity import _core
from cavity.base.arrays import add_in_order

pytest.importorskip("cavity._core.simd", reason="wheels leave it out")
RNG = np.random.default_rng(20240607)
SPECIAL = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, 5e-324, 2.2e-308, 1.7976931348623157e308])


def apply(variant, function, x):
    """Run one function of the simd module in the given variant."""
    x = np.ascontiguousarray(x, dtype=float)
    out = np.empty_like(x)
    getattr(_core.load("simd", variant), function)(x, out)
    return out


def exp_arguments():
    """A dense set around every rounding decision, and the whole range."""
    near = np.linspace(-0.36, 0.36, 601)
    wide = RNG.uniform(-744, 709.7, 2000)
    edges = np.log(2) * (np.arange(-1074, 1024, 7) + 0.5)
    return np.concatenate([near, wide, edges, [-745.13, 709.78, 1e-300, -1e-20]])


def log_arguments():
    """All binades, both sides of 1 and of sqrt(2)."""
    return np.concatenate(
        [
            2.0 ** RNG.uniform(-1074, 1023.99, 2000),
            1 + RNG.uniform(-0.3, 0.45, 1500),
            1 + RNG.normal(size=500) * 1e-8,
            [5e-324, 1e-310, 2.2250738585072014e-308, np.nextafter(1, 0), np.nextafter(1, 2), 1.4142135623730951],
        ]
    )


def error_in_ulp(function, x, y):
    """Largest error of y = function(x), in units in the last place of the result."""
    with mp.workdps(40):
        return max(
            float(abs(mp.mpf(float(b)) - function(mp.mpf(float(a)))) / mp.mpf(float(np.spacing(abs(b)))))
            for a, b in zip(x, y, strict=True)
            if b != 0
        )


@pytest.mark.parametrize("variant", _core.variants("simd"))
def test_exp_is_accurate(variant):
    x = exp_arguments()
    assert error_in_ulp(mp.exp, x, apply(variant, "exp", x)) < 1.2


@pytest.mark.parametrize("variant", _core.variants("simd"))
def test_log_is_accurate(variant):
    x = log_arguments()
    assert error_in_ulp(mp.log, x, apply(variant, "log", x)) < 1.1


def root_exp(variant, x, bounded):
    """2^(x/16) in the given variant; x is padded to whole groups of eight."""
    padded = np.pad(x, (0, -len(x) % 8))
    _core.load("simd", variant).root_exp(padded, bounded, padded)
    return padded[: len(x)]


def root_exp_arguments():
    """Every sixteenth with the rounding decisions beside it, small numbers, and the whole range."""
    decisions = np.concatenate([-np.arange(600) + 0.5 + side for side in (-1e-9, 0.0, 1e-9)])
    small, wide = -(10.0 ** RNG.uniform(-300, 0, 300)), -RNG.uniform(0, 16352, 2000)
    x = np.concatenate([decisions, -np.arange(600.0), small, wide])
    return np.append(x[x <= 0], [0.0, -0.0, -16352.0])


@pytest.mark.parametrize("bounded", [False, True])
@pytest.mark.parametrize("variant", _core.variants("simd"))
def test_root_exp_is_accurate(variant, bounded):
    """Below 2^-1016 a product of the last step is subnormal."""
    x = root_exp_arguments()
    for part, bound in ((x[x > -16256], 1.15), (x[x <= -16256], 1.4)):
        assert error_in_ulp(lambda t: mp.mpf(2) ** (t / 16), part, root_exp(variant, part, bounded)) < bound


@pytest.mark.parametrize("variant", _core.variants("simd"))
def test_root_exp_ends_at_zero(variant):
    """Below 2^-1022 it never rises, is little more than 2^-1023 off, and ends."""
    x = np.linspace(-16352, -16400, 4001)
    y = root_exp(variant, x, False)
    assert np.all(np.diff(y) <= 0)
    assert np.max(np.abs(np.ldexp(y, 1023) - np.exp2(x / 16 + 1023))) < 1.03
    np.testing.assert_array_equal(y[x <= -16368], 0)
    np.testing.assert_array_equal(root_exp(variant, [-np.inf, -1e308, 0.0, np.nan], False), [0, 0, 1, np.nan])


def in_eights(variant, function, x):
    """One function that takes whole groups of eight, in the given variant."""
    padded = np.pad(x, (0, -len(x) % 8))
    return apply(variant, function, padded)[: len(x)]


def sin_pi_arguments():
    """Small numbers of both signs, the whole range, its ends."""
    x = np.concatenate(
        [10.0 ** RNG.uniform(-307, -1, 500), RNG.uniform(0, 0.5, 2000), [0.5, 0.25, np.nextafter(0.5, 0)]]
    )
    return np.concatenate([x, -x])


@pytest.mark.parametrize("variant", _core.variants("simd"))
def test_sin_pi_is_accurate(variant):
    x = sin_pi_arguments()
    y = in_eights(variant, "sin_pi", x)
    assert error_in_ulp(mp.sinpi, x, y) < 1.8
    np.testing.assert_array_equal(y[len(x) // 2 :], -y[: len(x) // 2])
    np.testing.assert_array_equal(in_eights(variant, "sin_pi", [0.5, -0.5, 0.0]), [1, -1, 0])


@pytest.mark.parametrize("variant", _core.variants("simd"))
def test_sqrt_is_correctly_rounded(variant):
    x = np.concatenate([2.0 ** RNG.uniform(-1074, 1024, 2000), [0.0, np.inf, 5e-324]])
    np.testing.assert_array_equal(in_eights(variant, "sqrt", x), np.sqrt(x))


@pytest.mark.more_draws
@pytest.mark.parametrize("variant", _core.variants("simd"))
def test_log_1p_excess_is_accurate(variant):
    rng = np.random.default_rng(3)  # not RNG, whose numbers depend on the tests before
    n = count_draws(1000)
    near = np.linspace(0.4, 0.41, n)  # where the difference loses most digits
    x = np.concatenate([10.0 ** rng.uniform(-150, 308, n), rng.uniform(0, 1, n), near, [np.nextafter(0.4, 0)]])
    y = apply(variant, "log_1p_excess", x)
    with mp.workdps(350):
        correct = [float(mp.log(1 + mp.mpf(u)) - mp.mpf(u) / (1 + mp.mpf(u))) for u in x]
    np.testing.assert_allclose(y, correct, rtol=11 * np.finfo(float).eps)


@pytest.mark.parametrize("variant", _core.variants("simd")[1:])
def test_variants_return_the_same_bits_of_sines_and_logs(variant):
    for function, x in (("sin_pi", sin_pi_arguments()), ("log_1p_excess", 10.0 ** RNG.uniform(-300, 308, 3000))):
        base, other = in_eights(_core.BASELINE_VARIANT, function, x), in_eights(variant, function, x)
        np.testing.assert_array_equal(base.view(np.int64), other.view(np.int64))


@pytest.mark.parametrize("variant", _core.variants("simd"))
def test_special_values(variant):
    np.testing.assert_array_equal(
        apply(variant, "exp", [0.0, -0.0, np.inf, -np.inf, np.nan, 1000.0, -1000.0]),
        [1, 1, np.inf, 0, np.nan, np.inf, 0],
    )
    np.testing.assert_array_equal(
        apply(variant, "log", [0.0, -0.0, np.inf, -1.0, -np.inf, np.nan, 1.0]),
        [-np.inf, -np.inf, np.inf, np.nan, np.nan, np.nan, 0],
    )


@pytest.mark.parametrize("variant", _core.variants("simd")[1:])
def test_variants_return_the_same_bits(variant):
    for function, x in (("exp", exp_arguments()), ("log", log_arguments()), ("exp", SPECIAL), ("log", SPECIAL)):
        for n in (len(x), 1, 3, 7):
            base, other = apply(_core.BASELINE_VARIANT, function, x[:n]), apply(variant, function, x[:n])
            np.testing.assert_array_equal(base.view(np.int64)[~np.isnan(base)], other.view(np.int64)[~np.isnan(base)])
            np.testing.assert_array_equal(np.isnan(base), np.isnan(other))


@pytest.mark.parametrize("variant", _core.variants("simd")[1:])
def test_variants_return_the_same_bits_of_root_exp(variant):
    for x, bounded in ((root_exp_arguments(), True), (-RNG.uniform(0, 16500, 4000), False)):
        base, other = root_exp(_core.BASELINE_VARIANT, x, bounded), root_exp(variant, x, bounded)
        np.testing.assert_array_equal(base.view(np.int64), other.view(np.int64))


@pytest.mark.parametrize("n", [0, 1, 7, 8, 9, 64, 1001])
def test_lane_sums(n):
    x = RNG.normal(size=n) * 10.0 ** RNG.integers(-3, 4, n)
    lanes = [reduce(operator.add, x[lane::8].tolist(), 0.0) for lane in range(8)]  # sum compensates from Python 3.12 on
    (a, b, c, d), (e, f, g, h) = lanes[:4], lanes[4:]
    for variant in _core.variants("simd"):
        module = _core.load("simd", variant)
        assert module.sum(x) == ((a + b) + (c + d)) + ((e + f) + (g + h))
        assert module.sum_squares(x) == module.sum(x * x)


def test_sums_of_the_library_are_those_of_every_python():
    assert add_in_order([1e16, 1.0, -1e16]) == 0.0
    assert add_in_order(iter([])) == 0.0


@pytest.mark.parametrize("variant", _core.variants("simd"))
@pytest.mark.parametrize("offset", [0, 1, 3])
def test_stream_copies(variant, offset):
    x, out = RNG.normal(size=100), np.zeros(110)
    _core.load("simd", variant).stream(x, out[offset : offset + 100])
    np.testing.assert_array_equal(out[offset : offset + 100], x)
    assert np.count_nonzero(out) == 100


def test_best_is_the_last_variant_that_was_built():
    assert _core.best("simd") is _core.load("simd", _core.variants("simd")[-1])
    assert _core.variants("simd")[0] == _core.BASELINE_VARIANT


def test_variants_are_modules_of_their_own():
    """All are compiled from one C source; the one imported first must not stand for the others."""
    code = (
        "import sys; from cavity import _core; every = _core.variants('simd')[::-1]; "
        "modules = [_core.load('simd', variant) for variant in every]; "
        "names = [m.__name__ for m in modules]; print(*names); print(*(m.__file__ for m in modules)); "
        "print(all(sys.modules[n] is m for n, m in zip(names, modules)), len({id(m.exp) for m in modules}))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    names, files, (own, functions) = (line.split() for line in run.stdout.splitlines())
    n = len(_core.variants("simd"))
    assert len(set(names)) == len(set(files)) == int(functions) == n
    assert own == "True"
