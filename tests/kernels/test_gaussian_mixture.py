"""The Gaussian mixture kernel: the naive twin, many digits, extremes, laws, bad rows, equal bits in all variants."""

from concurrent.futures import ThreadPoolExecutor

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from reference import gaussian_mixture_kernel as reference
from support.tolerances import INTEGRAL, LOSSES, ROUNDING, SOLVES, SUMS

from cavity import _core
from cavity.runs.merge import merge, split_rows

VARIANTS = _core.variants("gaussian_mixture")
MAIN = _core.best("gaussian_mixture")
NO_WEIGHT, NO_GAIN = np.empty(0), np.empty((0, 0))
KINDS = ("full", "diagonal", "seen")


def draw(kind, n, n_features, n_components, seed=0, spread=2.0, offset=0.0):
    """Return (rows, origin, scale, mean, shape, height): points around means some standard deviations apart."""
    rng = np.random.default_rng(seed)
    origin, scale = offset + rng.normal(size=n_features), 2.0 ** rng.integers(-2, 3, n_features)
    centres = spread * rng.normal(size=(n_components, n_features))
    z = centres[rng.integers(0, n_components, n)] + rng.normal(size=(n, n_features))
    mean = centres + 0.3 * rng.normal(size=centres.shape)
    if kind == "full":
        shape = np.eye(n_features) + 0.5 * rng.normal(size=(n_components, n_features, n_features)) / np.sqrt(n_features)
        shape[:, *np.triu_indices(n_features, 1)] = np.nan  # never read
    else:
        shape = rng.gamma(2.0, size=mean.shape)
    rows = origin + z / scale
    if kind == "seen":
        rows[rng.random(rows.shape) < 0.3] = np.nan
    return rows, origin, scale, mean, shape, -rng.exponential(size=n_components)


def gain_of(kind, mean):
    """Return log normalisers of the coordinates, some of them positive."""
    return np.sin(np.arange(mean.size, dtype=float)).reshape(mean.shape) if kind == "seen" else NO_GAIN


def call(kind, rows, origin, scale, mean, shape, height, weight=NO_WEIGHT, module=MAIN, gain=None, block_rows=0):
    """Return (status, out, total) of the kernel."""
    n_components, size = mean.shape
    width = {"full": size + size * (size + 1) // 2, "diagonal": 2 * size, "seen": 3 * size}[kind]
    out, totals = np.full((n_components, 1 + width), np.nan), np.full(1, np.nan)
    if kind == "full":
        status = module.full(rows, weight, origin, scale, mean, shape, height, out, totals, block_rows)
    else:
        gain = gain_of(kind, mean) if gain is None else gain
        status = module.diagonal(rows, weight, origin, scale, mean, shape, height, gain, out, totals, block_rows)
    return status, out, totals[0]


def run(*arguments, **options):
    """Return (out, total) of the kernel, which must accept all rows."""
    status, out, total = call(*arguments, **options)
    assert status == -1
    return out, total


def truth(kind, rows, origin, scale, mean, shape, height, weight=None):
    """Return what `run` should, and bounds."""
    weight = np.ones(len(rows)) if weight is None else weight
    if kind == "full":
        weights = reference.full_weights(rows, origin, scale, mean, np.tril(np.nan_to_num(shape)), height)
    else:
        gain = gain_of(kind, mean) if kind == "seen" else None
        weights = reference.diagonal_weights(rows, origin, scale, mean, shape, height, gain)
    result = reference.moments(weights, weight, kind != "full", kind == "seen")
    return tuple((np.concatenate(parts[:-1], axis=1), parts[-1]) for parts in result)


def assert_within_rounding(result, kind, *arguments, weight=None):
    """Compare with the twin, each number to its own bound."""
    assert_within(result, *truth(kind, *arguments, weight=weight))


def assert_within(result, expected, bounds):
    """Compare out and total, each number to its own bound."""
    for name, value, correct, bound in zip(("out", "total"), result, expected, bounds, strict=True):
        assert np.all(np.abs(value - correct) <= bound), f"{name}: {np.max(np.abs(value - correct) / bound)} bounds off"


def bits(x):
    """The values as integers, which tell 0.0 from -0.0."""
    return np.ascontiguousarray(x, dtype=float).view(np.int64)


def assert_same_bits(one, other):
    for a, b in zip(one, other, strict=True):
        np.testing.assert_array_equal(bits(a), bits(b))


# ---------------------------------------------------------------------------------------------- truth


def test_many_digits():
    """Three points, two components, two coordinates, in 40 digits, term by term; also for the twin."""
    rows, mean = np.array([[0.1, 2.3], [-0.7, 40.0], [1.5, 1.0]]), np.array([[0.25, 2.0], [1.0, -1.0]])
    factor, height = np.array([[[1.2, 0.0], [-0.4, 0.7]], [[0.9, 0.0], [0.3, 2.0]]]), np.array([-0.5, -1.5])
    weight = np.array([1.0, 0.25, 3.0])
    sums, total = [[mp.mpf(0)] * 6 for _ in range(2)], mp.mpf(0)
    with mp.workdps(40):
        for (a, b), w in zip(rows, weight, strict=True):
            d = [(mp.mpf(a) - mp.mpf(m[0]), mp.mpf(b) - mp.mpf(m[1])) for m in mean]
            rho = []
            for (u, v), F, c in zip(d, factor, height, strict=True):
                first, second = mp.mpf(F[0, 0]) * u, mp.mpf(F[1, 0]) * u + mp.mpf(F[1, 1]) * v
                rho.append(mp.exp(mp.mpf(c) - (first**2 + second**2) / 2))
            total += mp.mpf(w) * mp.log(sum(rho))
            for k, (u, v) in enumerate(d):
                r = mp.mpf(w) * rho[k] / sum(rho)
                terms = (1, u, v, u * u, u * v, v * v)
                sums[k] = [s + r * term for s, term in zip(sums[k], terms, strict=True)]
    arguments = rows, np.zeros(2), np.ones(2), mean, factor, height
    for out, value in (run("full", *arguments, weight=weight), truth("full", *arguments, weight=weight)[0]):
        np.testing.assert_allclose(np.array(out, dtype=float), np.array(sums, dtype=float), rtol=SUMS)
        assert float(value) == pytest.approx(float(total), rel=ROUNDING)


SIZES = [(1, 1, 1), (1, 7, 300), (2, 2, 127), (2, 8, 8193), (3, 33, 128), (5, 2, 129), (8, 7, 500), (8, 2, 1)]
SIZES += [(9, 2, 63), (9, 33, 64), (12, 3, 65), (17, 7, 129), (33, 2, 200), (66, 2, 70), (2, 1000, 33), (130, 2, 20)]


@pytest.mark.sample(5)
@pytest.mark.parametrize(("size", "n_components", "n"), SIZES)
@pytest.mark.parametrize("kind", KINDS)
def test_moments_equal_the_naive_twin(kind, size, n_components, n):
    arguments = draw(kind, n, size, n_components, seed=n + size)
    weight = np.random.default_rng(n).gamma(1.0, size=n)
    for item in (NO_WEIGHT, weight):
        expected = truth(kind, *arguments, weight=item if len(item) else None)
        for variant in VARIANTS:
            result = run(kind, *arguments, weight=item, module=_core.load("gaussian_mixture", variant))
            assert_within(result, *expected)


@pytest.mark.parametrize("kind", KINDS)
def test_the_bounds_are_tight_enough_to_tell(kind):
    """They would notice an error of 1e-11 of the numbers at hand."""
    (out, total), (out_bound, total_bound) = truth(kind, *draw(kind, 500, 5, 3))
    assert np.all(out_bound < 1e-11 * np.maximum(np.abs(out), 1.0))
    assert total_bound < 1e-11 * abs(total)


@given(
    kind=st.sampled_from(KINDS),
    n=st.integers(1, 150),
    size=st.integers(1, 9),
    n_components=st.integers(1, 9),
    seed=st.integers(0, 2**32 - 1),
    spread=st.floats(-4, 5),
    offset=st.floats(-1e8, 1e8),
    heights=st.floats(-3, 5),
    empty=st.booleans(),
)
def test_moments_equal_the_naive_twin_anywhere(kind, n, size, n_components, seed, spread, offset, heights, empty):
    """Spreads of 1e-4 to 1e5 standard deviations, offsets, log weights to 1e5 and -inf, some rows without weight."""
    rng = np.random.default_rng(seed)
    *arguments, _ = draw(kind, n, size, n_components, seed, 10.0**spread, offset)
    height = 10.0**heights * rng.normal(size=n_components)
    if empty and n_components > 1:
        height[rng.integers(n_components)] = -np.inf
    weight = rng.gamma(1.0, size=n) * (rng.random(n) < 0.8)
    result = run(kind, *arguments, height, weight=weight)
    assert_within_rounding(result, kind, *arguments, height, weight=weight)
    assert np.all(result[0][height == -np.inf] == 0)


def test_hundreds_of_coordinates():
    """One component: all moments are plain sums."""
    rows, origin, scale, mean, shape, height = draw("full", 40, 512, 1)
    out, total = run("full", rows, origin, scale, mean, shape, height)
    d = (rows - origin) * scale - mean[0]
    left, right = np.tril_indices(512)
    assert out[0, 0] == 40
    np.testing.assert_allclose(out[0, 1:513], d.sum(axis=0), atol=LOSSES)
    np.testing.assert_allclose(out[0, 513:], (d.T @ d)[left, right], atol=INTEGRAL)
    q = np.sum((d @ np.tril(np.nan_to_num(shape[0])).T) ** 2)
    assert total == pytest.approx(40 * height[0] - q / 2, rel=SOLVES)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize(("size", "n_components", "n"), [(1, 1, 1), (3, 7, 129), (8, 3, 127), (17, 2, 65), (33, 5, 64)])
def test_distances_equal_the_naive_twin(size, n_components, n, variant):
    module, out = _core.load("gaussian_mixture", variant), np.full((n, n_components), np.nan)
    *arguments, factor, _ = draw("full", n, size, n_components, offset=1e6)
    assert module.distances(*arguments, factor, out) == -1
    q, error = reference.squares(*reference.differences(*arguments)[:2], np.nan_to_num(factor))
    assert np.all(np.abs(out - q) <= 2 * error)
    *arguments, precision, height = draw("seen", n, size, n_components, offset=1e6)
    assert module.distances_diagonal(*arguments, precision, out) == -1
    weights = reference.diagonal_weights(*arguments, precision, 0 * height)
    assert np.all(np.abs(out + 2 * weights.log_rho) <= 4 * weights.log_rho_error)


# ---------------------------------------------------------------------------------------------- extremes


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("distance", [26.0, 37.7, 40.0, 450.0, 1e8, 1e150])
def test_points_far_from_all_components(kind, distance):
    """All weights underflow but for the shift by the largest; at 1e150 no double tells which component is nearest."""
    rows, origin, scale, mean, shape, height = draw(kind, 81, 3, 3, seed=1)
    rows[40] = origin + distance * np.array([1.0, -1.0, 0.5])
    arguments = rows, origin, scale, mean, shape, height
    out, total = run(kind, *arguments)
    assert np.all(np.isfinite(out))
    assert np.isfinite(total)
    if distance < 1e100:
        assert_within_rounding((out, total), kind, *arguments)
    assert out[:, 0].sum() == pytest.approx(81, rel=ROUNDING)


def test_moments_keep_their_digits_far_from_the_origin():
    """Points and means around 1e8 in z: sums of d are as exact as for points around 0."""
    rows, origin, scale, mean, shape, height = draw("full", 500, 4, 3, seed=3)
    rows, mean = np.round(rows * 2**20) / 2**20, np.round(mean * 2**20) / 2**20
    near = run("full", rows, np.zeros(4), np.ones(4), mean, shape, height)
    far = run("full", rows + 2.0**27, np.zeros(4), np.ones(4), mean + 2.0**27, shape, height)
    assert_same_bits(near, far)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n_components", [2, 4, 8])
def test_ties_are_shared_evenly(kind, n_components):
    rows, origin, scale, mean, shape, height = draw(kind, 77, 5, 1)
    one, total = run(kind, rows, origin, scale, mean, shape, height)
    repeated = (np.repeat(x, n_components, axis=0) for x in (mean, shape, height))
    gain = np.repeat(gain_of(kind, mean), n_components, axis=0)
    out, tied = run(kind, rows, origin, scale, *repeated, gain=gain)
    np.testing.assert_array_equal(out, np.repeat(out[:1], n_components, axis=0))
    np.testing.assert_array_equal(out[0], one[0] / n_components)  # a power of two
    assert tied == pytest.approx(total + 77 * np.log(n_components), rel=ROUNDING)


@pytest.mark.parametrize("kind", KINDS)
def test_components_without_weight_change_nothing(kind):
    *arguments, height = draw(kind, 300, 3, 4, seed=6)
    some = [x[:3] if i >= 3 else x for i, x in enumerate(arguments)]
    out, total = run(kind, *some, height[:3])
    with_empty, same = run(kind, *arguments, np.append(height[:3], -np.inf))
    np.testing.assert_array_equal(with_empty[3], 0)
    assert_same_bits((with_empty[:3], same), (out, total))


def test_one_component_takes_all():
    rows, origin, scale, mean, shape, height = draw("diagonal", 999, 3, 1, seed=4)
    out, total = run("diagonal", rows, origin, scale, mean, shape, height)
    d = (rows - origin) * scale - mean
    assert out[0, 0] == 999
    np.testing.assert_allclose(out[0, 1:], np.concatenate([d.sum(axis=0), (d**2).sum(axis=0)]), rtol=SOLVES)
    assert total == pytest.approx(999 * height[0] - np.sum(shape * d**2) / 2, rel=SUMS)


# ---------------------------------------------------------------------------------------------- missing entries


def test_a_row_of_which_nothing_is_seen_has_the_weights_of_the_components():
    _, origin, scale, mean, shape, height = draw("seen", 1, 3, 4)
    out, total = run("seen", np.full((7, 3), np.nan), origin, scale, mean, shape, height)
    share = np.exp(height) / np.exp(height).sum()
    np.testing.assert_allclose(out[:, 0], 7 * share, rtol=ROUNDING)
    np.testing.assert_array_equal(out[:, 1:], 0)
    assert total == pytest.approx(7 * np.log(np.exp(height).sum()), rel=ROUNDING)


def test_nothing_missing_is_the_same_as_no_gain():
    *arguments, height = draw("diagonal", 300, 6, 3)
    out, total = run("diagonal", *arguments, height)
    same, same_total = run("seen", *arguments, height, gain=np.zeros((3, 6)))
    assert_same_bits((out, total), (same[:, :13], same_total))
    np.testing.assert_array_equal(same[:, 13:], np.repeat(out[:, :1], 6, axis=1))


def test_a_column_of_which_nothing_is_seen_is_as_good_as_away():
    rows, origin, scale, mean, shape, height = draw("seen", 200, 4, 3)
    rows[:, 2] = np.nan
    rest, gain = [0, 1, 3], gain_of("seen", mean)
    out, total = run("seen", rows, origin, scale, mean, shape, height)
    less = (np.ascontiguousarray(x[..., rest]) for x in (rows, origin, scale, mean, shape))
    without, same = run("seen", *less, height, gain=np.ascontiguousarray(gain[:, rest]))
    np.testing.assert_array_equal(out[:, [3, 7, 11]], 0)
    assert_same_bits((np.delete(out, [3, 7, 11], axis=1), total), (without, same))


# ---------------------------------------------------------------------------------------------- laws


@given(exponent=st.integers(-200, 200), seed=st.integers(0, 1000), kind=st.sampled_from(KINDS))
def test_units(exponent, seed, kind):
    """Rows in other units with a scale to match lead to the same bits."""
    rows, origin, scale, *rest = draw(kind, 150, 4, 3, seed)
    moved = np.ldexp(rows, exponent), np.ldexp(origin, exponent), np.ldexp(scale, -exponent)
    assert_same_bits(run(kind, rows, origin, scale, *rest), run(kind, *moved, *rest))


@pytest.mark.parametrize("kind", KINDS)
def test_whole_weights_are_repetitions(kind):
    rows, *rest = draw(kind, 200, 5, 3)
    weight = np.random.default_rng(2).integers(0, 4, 200)
    repeated = np.repeat(rows, weight, axis=0), *rest
    assert_within_rounding(run(kind, rows, *rest, weight=weight.astype(float)), kind, *repeated)


@pytest.mark.parametrize("kind", KINDS)
def test_unit_weights_change_no_moment(kind):
    arguments = draw(kind, 300, 5, 3)
    out, total = run(kind, *arguments)
    weighted, same = run(kind, *arguments, weight=np.ones(300))
    np.testing.assert_array_equal(weighted, out)
    assert same == pytest.approx(total, rel=ROUNDING)


@pytest.mark.parametrize("kind", KINDS)
def test_rows_of_weight_zero_change_no_moment(kind):
    arguments = draw(kind, 300, 5, 3)
    weight = np.where(np.arange(300) < 256, 0.7, 0.0)
    full = run(kind, *arguments, weight=weight)
    start = run(kind, arguments[0][:256], *arguments[1:], weight=weight[:256])
    np.testing.assert_array_equal(full[0], start[0])
    assert full[1] == start[1]


@pytest.mark.parametrize("kind", ["full", "diagonal"])
def test_order_of_components(kind):
    rows, origin, scale, mean, shape, height = draw(kind, 500, 4, 7)
    order = np.random.default_rng(0).permutation(7)
    permuted = run(kind, rows, origin, scale, mean[order], shape[order], height[order])
    inverse = np.argsort(order)
    assert_within_rounding((permuted[0][inverse], permuted[1]), kind, rows, origin, scale, mean, shape, height)


def test_a_constant_in_the_heights_only_adds():
    *arguments, height = draw("full", 300, 3, 5)
    out, total = run("full", *arguments, height)
    raised, more = run("full", *arguments, height + 512.0)
    np.testing.assert_allclose(raised[:, 0], out[:, 0], rtol=LOSSES)
    assert more - 512.0 * 300 == pytest.approx(total, abs=300 * SOLVES)


# ---------------------------------------------------------------------------------------------- bits


def hard_cases():
    """Rows near and far, unevenly weighted, of every size modulo the widths and with every number of coordinates."""
    for n, size in (
        (1, 1),
        (5, 2),
        (8, 3),
        (31, 4),
        (64, 5),
        (130, 6),
        (129, 7),
        (200, 8),
        (70, 9),
        (67, 18),
        (65, 35),
    ):
        for kind in KINDS:
            *arguments, height = draw(kind, n, size, 4, seed=n)
            yield kind, *arguments, height
            yield kind, *arguments[:3], arguments[3] * 20, arguments[4], height * 500
            arguments[0][n // 2] = [1e3, -60.0, 1e140][n % 3]
            yield kind, *arguments, np.append(height[:-1], -np.inf)


@pytest.mark.parametrize("variant", VARIANTS[1:])
def test_variants_return_the_same_bits(variant):
    one, other = _core.load("gaussian_mixture", _core.BASELINE_VARIANT), _core.load("gaussian_mixture", variant)
    for case in hard_cases():
        weight = np.random.default_rng(0).random(len(case[1]))
        assert_same_bits(run(*case, module=one), run(*case, module=other))
        assert_same_bits(run(*case, weight=weight, module=one), run(*case, weight=weight, module=other))


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("size", [2, 7, 8, 13])
def test_alignment_threads_and_read_only_arrays_change_no_bit(variant, size):
    module = _core.load("gaussian_mixture", variant)
    rows, *rest = draw("full", 9000, size, 3)
    expected = run("full", rows, *rest, module=module)
    copies = [np.empty(rows.size + 8)[shift : shift + rows.size].reshape(rows.shape) for shift in range(4)]
    for copy in copies:
        copy[:] = rows
    for array in (*copies, *rest):
        array.flags.writeable = False
    with ThreadPoolExecutor(2) as pool:
        for result in pool.map(lambda copy: run("full", copy, *rest, module=module), copies):
            assert_same_bits(result, expected)


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_row_does_not_depend_on_its_neighbours(variant):
    """Neither its distances nor, seen through sums over one row, its responsibilities."""
    module = _core.load("gaussian_mixture", variant)
    for kind, rows, *rest, height in hard_cases():
        function = module.distances if kind == "full" else module.distances_diagonal
        together = np.empty((len(rows), 4))
        assert function(rows, *rest, together) == -1
        for i in range(0, len(rows), 7):
            single = np.empty((1, 4))
            assert function(rows[i : i + 1], *rest, single) == -1
            assert_same_bits(single, together[i : i + 1])
        weight = np.zeros(len(rows))
        weight[-1] = 1.0
        in_company = run(kind, rows, *rest, height, weight=weight, module=module)
        single = run(kind, rows[-1:], *rest, height, weight=np.ones(1), module=module)
        np.testing.assert_array_equal(in_company[0], single[0])  # 0.0 and -0.0 are the same here
        assert in_company[1] == single[1]


# ---------------------------------------------------------------------------------------------- bad rows


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("kind", KINDS)
def test_the_first_row_without_weight_is_named(kind, variant):
    for index in (0, 6, 64, 99):
        for bad in (np.nan, -np.nan, np.inf, -np.inf, 1e200):
            module = _core.load("gaussian_mixture", variant)
            rows, *rest, height = draw("full" if kind == "full" else "diagonal", 100, 9, 3)
            rows[[index, 99], index % 9] = bad
            expected = -1 if kind == "seen" and np.isnan(bad) else index
            assert call(kind, rows, *rest, height, module=module)[0] == expected
            assert call(kind, rows, *rest, height, weight=np.zeros(100), module=module)[0] == expected
            if kind != "diagonal":
                function = module.distances if kind == "full" else module.distances_diagonal
                assert function(rows, *rest, np.empty((100, 3))) == expected


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("kind", ["full", "seen"])
def test_distances_of_rows_after_a_bad_one(kind, variant):
    """They are what they are without it; its own are infinite."""
    module = _core.load("gaussian_mixture", variant)
    function = module.distances if kind == "full" else module.distances_diagonal
    rows, *rest, _ = draw(kind, 130, 2, 3)
    good, out = np.full((130, 3), np.nan), np.full((130, 3), np.nan)
    assert function(rows, *rest, good) == -1
    rows[5] = 1e200
    assert function(rows, *rest, out) == 5
    assert_same_bits(np.delete(out, 5, axis=0), np.delete(good, 5, axis=0))
    assert np.isposinf(out[5]).all()


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("kind", KINDS)
def test_any_row_may_be_the_only_bad_one(kind, variant):
    """In every lane, and in the last row of groups of every size."""
    module = _core.load("gaussian_mixture", variant)
    rows, *rest, height = draw("full" if kind == "full" else "diagonal", 130, 2, 2)
    for n, index in [(130, i) for i in range(130)] + [(n, n - 1) for n in range(1, 130)]:
        spoilt = rows[:n].copy()
        spoilt[index, index % 2] = np.inf
        assert call(kind, spoilt, *rest, height, module=module)[0] == index
        if kind != "diagonal":
            function = module.distances if kind == "full" else module.distances_diagonal
            assert function(spoilt, *rest, np.empty((n, 2))) == index


def test_a_bad_row_in_a_later_chunk():
    rows, *rest = draw("full", 20_000, 2, 2)
    rows[[17_001, 17_002, 19_000]] = np.nan
    assert call("full", rows, *rest)[0] == 17_001


def test_a_row_out_of_reach_of_some_components_only():
    """Their distances overflow, in the full model through inf - inf: they have no share in the row."""
    rows, origin, scale = np.array([[1.0, 2.0], [3.0, 4.0]]), np.zeros(2), np.ones(2)
    factor = np.array([[[1e200, 0.0], [-1e300, 1e300]], [[1.0, 0.0], [0.5, 1.0]]])
    mean = np.array([[1e150, 1e150], [1.0, 1.0]])
    out, total = run("full", rows, origin, scale, mean, factor, np.zeros(2))
    np.testing.assert_array_equal(out[0], 0)
    one, same = run("full", rows, origin, scale, mean[1:], factor[1:], np.zeros(1))
    assert_same_bits((out[1:], total), (one, same))
    distances = np.empty((2, 2))
    assert MAIN.distances(rows, origin, scale, mean, factor, distances) == -1
    np.testing.assert_array_equal(distances[:, 0], np.inf)


# ---------------------------------------------------------------------------------------------- blocks


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("kind", KINDS)
def test_blocks_are_added_up_along_the_tree(variant, kind):
    """The same bits as one block after the other, merged; a bad row is counted from the first of all."""
    for n in (1, 64, 65, 5 * 64, 7 * 64 + 3, 16 * 64):
        rows, *place = draw(kind, n, 3, 2, seed=n)
        weight = np.random.default_rng(n).gamma(1.0, size=n)
        module = _core.load("gaussian_mixture", variant)
        for item in (NO_WEIGHT, weight):
            parts = (run(kind, rows[a:b], *place, weight=item[a:b], module=module) for a, b in split_rows(n, 64))
            assert_same_bits(run(kind, rows, *place, weight=item, module=module, block_rows=64), merge(parts))
        rows[n - 1] = np.inf
        assert call(kind, rows, *place, module=module, block_rows=64)[0] == n - 1
