"""The responsibilities kernel: the naive twin, many digits, extremes, laws, bad points, equal bits in all variants."""

from concurrent.futures import ThreadPoolExecutor

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from reference import unit_mixture as reference
from support.tolerances import LAST_BIT, LOSSES, ROUNDING, SOLVES, SUMS

from cavity import _core
from cavity.runs.merge import merge, split_rows

VARIANTS = _core.variants("unit_mixture")
MAIN = _core.best("unit_mixture")


def statistics(y, mean, log_weight, h, squares=True, module=MAIN):
    """N, D, L, Q of the kernel, which must accept all points."""
    out, totals = np.full((len(mean), 2), np.nan), np.full(2, np.nan)
    assert module.statistics(y, mean, log_weight, h, squares, out, totals) == -1
    return out[:, 0], out[:, 1], *totals


def responsibilities(y, mean, log_weight, h, module=MAIN):
    """r and the log normalisers of the kernel, which must accept all points."""
    resp, log_density = np.full((len(y), len(mean)), np.nan), np.full(len(y), np.nan)
    assert module.responsibilities(y, mean, log_weight, h, resp, log_density) == -1
    return resp, log_density


def draw(n, n_components, seed=0, spread=3.0, offset=0.0):
    """Points around means `spread` standard deviations apart, means a little off, log weights of some nats."""
    rng = np.random.default_rng(seed)
    centres = offset + spread * np.arange(n_components)
    y = centres[rng.integers(0, n_components, n)] + rng.normal(size=n)
    return y, centres + rng.normal(size=n_components), -rng.exponential(size=n_components), 0.5


def assert_within_rounding(result, *arguments):
    """Compare N, D, L, Q with the twin's, each to its own bound."""
    names, expected, bounds = "NDLQ", reference.statistics(*arguments), reference.rounding(*arguments)
    for name, value, truth, bound in zip(names, result, expected, bounds, strict=True):
        assert np.all(np.abs(value - truth) <= bound), f"{name}: {np.max(np.abs(value - truth) / bound)} bounds off"


# ---------------------------------------------------------------------------------------------- truth


def test_many_digits():
    """Four points, two components, in 40 digits, term by term; also for the twin."""
    y, mean, log_weight, h = np.array([0.1, 2.3, -0.7, 40.0]), np.array([0.25, 2.0]), np.array([-0.5, -1.5]), 0.6
    with mp.workdps(40):
        totals = {name: mp.mpf(0) for name in ("N0", "N1", "D0", "D1", "L", "Q")}
        for point in map(mp.mpf, y):
            d = [point - mp.mpf(m) for m in mean]
            weight = [mp.exp(mp.mpf(c) - mp.mpf(h) * item**2) for c, item in zip(log_weight, d, strict=True)]
            totals["L"] += mp.log(sum(weight))
            for k in range(2):
                r = weight[k] / sum(weight)
                totals[f"N{k}"] += r
                totals[f"D{k}"] += r * d[k]
                totals["Q"] += r * d[k] ** 2
        truth = [float(value) for value in totals.values()]
    for counts, moments, *rest in (statistics(y, mean, log_weight, h), reference.statistics(y, mean, log_weight, h)):
        np.testing.assert_allclose(np.array([*counts, *moments, *rest], dtype=float), truth, rtol=2e-14)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize(
    ("n", "n_components"),
    [(1, 1), (7, 2), (8, 3), (31, 10), (32, 10), (33, 1), (100, 12), (8191, 4), (8192, 5), (8193, 10), (20_001, 3)],
)
def test_statistics_equal_the_naive_twin(variant, n, n_components):
    arguments = draw(n, n_components, seed=n)
    result = statistics(*arguments, module=_core.load("unit_mixture", variant))
    assert_within_rounding(result, *arguments)
    expected = reference.statistics(*arguments)
    np.testing.assert_allclose(result[0], expected[0].astype(float), rtol=SUMS)
    assert result[2:] == pytest.approx([float(x) for x in expected[2:]], rel=SUMS)


def test_thousands_of_components():
    arguments = draw(300, 2500, seed=5, spread=0.02)
    assert_within_rounding(statistics(*arguments), *arguments)


@given(
    n=st.integers(1, 150),
    n_components=st.integers(1, 9),
    seed=st.integers(0, 2**32 - 1),
    spread=st.floats(-8, 7),
    offset=st.floats(-1e9, 1e9),
    scale=st.integers(-300, 300),
    heights=st.floats(-3, 6),
    empty=st.booleans(),
)
def test_statistics_equal_the_naive_twin_anywhere(n, n_components, seed, spread, offset, scale, heights, empty):
    """Spreads of 1e-8 to 1e7 standard deviations, offsets, units of 1e-90 to 1e90, log weights to 1e6 and -inf."""
    rng = np.random.default_rng(seed)
    y, mean, _, h = draw(n, n_components, seed, 10.0**spread, offset)
    log_weight = 10.0**heights * rng.normal(size=n_components)
    if empty and n_components > 1:
        log_weight[rng.integers(n_components)] = -np.inf
    arguments = np.ldexp(y, scale), np.ldexp(mean, scale), log_weight, np.ldexp(h, -2 * scale)
    result = statistics(*arguments)
    assert_within_rounding(result, *arguments)
    assert np.all(result[0][log_weight == -np.inf] == 0)


@pytest.mark.parametrize("spread", [0.01, 3.0, 200.0])
def test_responsibilities_equal_the_naive_twin(spread):
    arguments = draw(1000, 10, seed=3, spread=spread)
    resp, log_density = responsibilities(*arguments)
    r, log_normaliser = reference.responsibilities(*arguments)
    np.testing.assert_allclose(resp, r.astype(float), rtol=2e-13, atol=1e-180)
    np.testing.assert_allclose(log_density, log_normaliser.astype(float), rtol=2e-15, atol=2e-14)
    np.testing.assert_allclose(resp.sum(axis=1), 1, rtol=5e-15)


def test_both_functions_agree():
    y, mean, log_weight, h = draw(5000, 6, seed=8)
    counts, moments, total, squares = statistics(y, mean, log_weight, h)
    resp, log_density = responsibilities(y, mean, log_weight, h)
    d = y[:, None] - mean
    np.testing.assert_allclose(counts, resp.sum(axis=0), rtol=SUMS)
    np.testing.assert_allclose(moments, np.sum(resp * d, axis=0), atol=SUMS * np.sum(resp * abs(d)))
    assert (total, squares) == pytest.approx((log_density.sum(), np.sum(resp * d**2)), rel=SUMS)


# ---------------------------------------------------------------------------------------------- extremes


@pytest.mark.parametrize("distance", [20.0, 23.5, 24.0, 37.5, 37.7, 40.0, 1e3, 1e8, 1e150])
def test_points_far_from_all_components(distance):
    """Both sides of 2^-400, where the shift begins, and of 2^-1022, where exp ends."""
    rng = np.random.default_rng(1)
    y = np.concatenate([rng.normal(size=40), [distance, -distance], rng.normal(size=40)])
    arguments = y, np.array([0.0, 0.5, -0.25]), np.array([0.0, -1.0, -2.0]), 0.5
    result = statistics(*arguments)
    assert np.all(np.isfinite(np.concatenate([result[0], result[1], result[2:]])))
    assert_within_rounding(result, *arguments)
    resp, _ = responsibilities(*arguments)
    np.testing.assert_allclose(resp.sum(axis=1), 1, rtol=5e-15)
    if distance == 1e8:  # the nearest mean takes all; at 1e150 no double tells which one that is
        np.testing.assert_array_equal(resp[40:42], [[0, 1, 0], [0, 0, 1]])


@pytest.mark.parametrize("exponent", [-1000, -300, 300, 1000])
def test_extreme_noise(exponent):
    """h to both ends of the range: distances over noise kept, or let go to all and nothing."""
    y, mean, log_weight, _ = draw(200, 4, seed=2)
    h = np.ldexp(0.5, exponent)
    if exponent < 0:  # no distance matters
        counts, *_ = statistics(y, mean, log_weight, h)
        prior = np.exp(log_weight) / np.exp(log_weight).sum()
        np.testing.assert_allclose(counts, 200 * prior, rtol=SUMS)
    else:  # the nearest mean takes all
        nearest = np.argmin(abs(y[:, None] - mean), axis=1)
        counts, moments, total, squares = statistics(y, mean, log_weight, h)
        np.testing.assert_array_equal(counts, np.bincount(nearest, minlength=4))
        d = y - mean[nearest]
        np.testing.assert_allclose(moments, np.bincount(nearest, d, minlength=4), rtol=SUMS, atol=SUMS)
        assert squares == pytest.approx(np.sum(d**2), rel=SUMS)
        assert total == pytest.approx(-h * np.sum(d**2), rel=SUMS)


def test_one_component():
    y, mean, log_weight, h = draw(999, 1, seed=4)
    counts, moments, total, squares = statistics(y, mean, log_weight, h)
    assert counts == pytest.approx([999], rel=LAST_BIT)
    assert moments == pytest.approx([np.sum(y - mean)], rel=SOLVES)
    assert squares == pytest.approx(np.sum((y - mean) ** 2), rel=SUMS)
    assert total == pytest.approx(999 * log_weight[0] - h * squares, rel=SUMS)


@pytest.mark.parametrize("n_components", [2, 4, 8])
def test_ties_are_shared_evenly(n_components):
    y = np.random.default_rng(0).normal(size=77)
    resp, log_density = responsibilities(y, np.full(n_components, 0.3), np.zeros(n_components), 0.5)
    np.testing.assert_array_equal(resp, np.repeat(resp[:, :1], n_components, axis=1))
    np.testing.assert_allclose(resp, 1 / n_components, rtol=LAST_BIT)
    np.testing.assert_allclose(log_density, np.log(n_components) - 0.5 * (y - 0.3) ** 2, rtol=SUMS, atol=ROUNDING)


def test_components_without_weight_change_nothing():
    """-inf is the same as not being there, to the bit where the others keep their order."""
    y, mean, log_weight, h = draw(5000, 3, seed=6)
    counts, moments, *totals = statistics(y, mean, log_weight, h)
    with_empty = statistics(y, np.append(mean, 1.0), np.append(log_weight, -np.inf), h)
    assert (with_empty[0][3], with_empty[1][3]) == (0.0, 0.0)
    np.testing.assert_array_equal(with_empty[0][:3], counts)
    np.testing.assert_array_equal(with_empty[1][:3], moments)
    assert with_empty[2:] == tuple(totals)


# ---------------------------------------------------------------------------------------------- laws


@given(shift=st.integers(-(2**30), 2**30), exponent=st.integers(-200, 200), seed=st.integers(0, 1000))
def test_translation_and_units(shift, exponent, seed):
    """Where moving and scaling are exact (multiples of 2^-20, powers of two), so are their effects."""
    y, mean, log_weight, h = draw(300, 4, seed)
    y, mean = np.round(y * 2**20) / 2**20, np.round(mean * 2**20) / 2**20
    counts, moments, total, squares = statistics(y, mean, log_weight, h)
    moved = statistics(
        np.ldexp(y + shift, exponent), np.ldexp(mean + shift, exponent), log_weight, np.ldexp(h, -2 * exponent)
    )
    np.testing.assert_array_equal(moved[0], counts)
    np.testing.assert_array_equal(moved[1], np.ldexp(moments, exponent))
    assert moved[2:] == (total, np.ldexp(squares, 2 * exponent))


def test_reflection_and_order_of_components():
    y, mean, log_weight, h = draw(3000, 7, seed=9)
    counts, moments, total, squares = statistics(y, mean, log_weight, h)
    mirrored = statistics(-y, -mean, log_weight, h)
    np.testing.assert_array_equal(mirrored[0], counts)
    np.testing.assert_array_equal(mirrored[1], -moments)
    assert mirrored[2:] == (total, squares)
    order = np.random.default_rng(0).permutation(7)
    permuted = statistics(y, mean[order], log_weight[order], h)
    np.testing.assert_allclose(permuted[0], counts[order], rtol=SUMS)
    np.testing.assert_allclose(permuted[1], moments[order], rtol=SOLVES, atol=LOSSES)
    assert permuted[2:] == pytest.approx((total, squares), rel=SUMS)


def test_a_constant_in_the_log_weights_only_adds():
    y, mean, log_weight, h = draw(3000, 5, seed=10)
    counts, _, total, _ = statistics(y, mean, log_weight, h)
    raised = statistics(y, mean, log_weight + 512.0, h)
    np.testing.assert_allclose(raised[0], counts, rtol=SOLVES)
    assert raised[2] - 512.0 * 3000 == pytest.approx(total, abs=3000 * SOLVES)


def test_squares_are_left_out_on_demand():
    arguments = draw(5000, 5, seed=11)
    with_squares, without = statistics(*arguments), statistics(*arguments, squares=False)
    assert with_squares[3] > 0
    assert without[3] == 0
    for a, b in zip(with_squares[:3], without[:3], strict=True):
        np.testing.assert_array_equal(a, b)


# ---------------------------------------------------------------------------------------------- bits


def hard_cases():
    """Points near, beyond both bounds, unevenly weighted, and of every size modulo the widths."""
    for n in (1, 5, 8, 31, 64, 8200):
        y, mean, log_weight, h = draw(n, 6, seed=n)
        yield y, mean, log_weight, h
        yield y, mean * 20, log_weight * 500, h
        far = y.copy()
        far[:: max(1, n // 3)] = [1e3, -60.0, 24.0, 1e140][n % 4]
        yield far, mean, log_weight, h
        yield y, mean, np.append(log_weight[:-1], -np.inf), h * 1e8


def bits(x):
    """The values as integers, which tell 0.0 from -0.0."""
    return np.ascontiguousarray(x, dtype=float).view(np.int64)


@pytest.mark.parametrize("variant", VARIANTS[1:])
def test_variants_return_the_same_bits(variant):
    one, other = _core.load("unit_mixture", _core.BASELINE_VARIANT), _core.load("unit_mixture", variant)
    for arguments in hard_cases():
        for function in (statistics, responsibilities):
            for a, b in zip(function(*arguments, module=one), function(*arguments, module=other), strict=True):
                np.testing.assert_array_equal(bits(a), bits(b))


@pytest.mark.parametrize("variant", VARIANTS)
def test_alignment_and_threads_change_no_bit(variant):
    module = _core.load("unit_mixture", variant)
    y, mean, log_weight, h = draw(30_000, 4, seed=12)
    expected = statistics(y, mean, log_weight, h, module=module)
    copies = [np.empty(len(y) + 8)[shift : shift + len(y)] for shift in range(4)]
    for copy in copies:
        copy[:] = y
    with ThreadPoolExecutor(2) as pool:
        for result in pool.map(lambda copy: statistics(copy, mean, log_weight, h, module=module), copies):
            for a, b in zip(result, expected, strict=True):
                np.testing.assert_array_equal(bits(a), bits(b))


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_point_does_not_depend_on_its_neighbours(variant):
    """Not even where one of them is so far that its group is done again."""
    module = _core.load("unit_mixture", variant)
    for y, mean, log_weight, h in hard_cases():
        some = slice(0, 40)
        resp, log_density = responsibilities(y[some], mean, log_weight, h, module)
        for i in range(len(y[some])):
            single = responsibilities(y[i : i + 1], mean, log_weight, h, module)
            np.testing.assert_array_equal(bits(single[0][0]), bits(resp[i]))
            np.testing.assert_array_equal(bits(single[1][0]), bits(log_density[i]))


# ---------------------------------------------------------------------------------------------- bad points


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_first_point_without_weight_is_named(variant):
    for index in (0, 6, 40, 99):
        for bad in (np.nan, -np.nan, np.inf, -np.inf, 1e200):
            module = _core.load("unit_mixture", variant)
            y, mean, log_weight, h = draw(100, 3, seed=13)
            y[[index, 99]] = bad
            resp = np.empty((100, 3))
            assert module.statistics(y, mean, log_weight, h, True, np.empty((3, 2)), np.empty(2)) == index
            assert module.responsibilities(y, mean, log_weight, h, resp, np.empty(100)) == index


def test_a_point_without_weight_in_a_later_chunk():
    y, mean, log_weight, h = draw(30_000, 2, seed=14)
    y[[17_001, 17_002, 29_000]] = np.nan
    assert MAIN.statistics(y, mean, log_weight, h, False, np.empty((2, 2)), np.empty(2)) == 17_001


def test_noise_so_small_that_no_weight_is_left():
    y, mean, log_weight, _ = draw(50, 3, seed=15)
    y[20] = 1e5
    assert MAIN.statistics(y, mean, log_weight, 1e300, False, np.empty((3, 2)), np.empty(2)) == 20


# within the reach of cv8_root_exp, which all_near is there to find out, and at many places beyond: it then returns any
# power of two at all, and some pass for right
FAR = np.concatenate([[8.0, -30.0], *(sign * np.geomspace(38.0, 2e4, 12) for sign in (1, -1))])


@pytest.mark.sample(5)
@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("n", range(1, 66))
def test_the_last_points_count(variant, n):
    """Whatever is left over by lanes, vectors and groups: one decisive point in each of the last places."""
    module, mean, log_weight = _core.load("unit_mixture", variant), np.array([-1.0, 1.5]), np.array([-0.3, -1.2])
    y = np.random.default_rng(n).normal(size=n)
    for place in range(max(0, n - 2), n):
        for far in FAR:
            one = y.copy()
            one[place] = far
            assert_within_rounding(statistics(one, mean, log_weight, 0.5, module=module), one, mean, log_weight, 0.5)
            resp, log_density = responsibilities(one, mean, log_weight, 0.5, module=module)
            truth = np.logaddexp.reduce(log_weight - 0.5 * (far - mean) ** 2)
            assert log_density[place] == pytest.approx(truth, rel=SUMS)
            assert resp[place].sum() == pytest.approx(1.0, rel=SUMS)


def test_the_last_point_of_a_chunk_counts():
    """In each place of the last groups of 8193 points."""
    y = np.random.default_rng(1).normal(size=8192 + 40)
    mean, log_weight = np.array([-1.0, 1.5]), np.array([-0.3, -1.2])
    for n in (8191, 8192, 8193, 8199, 8200, 8201, 8225):
        for far in FAR[3::4]:
            one = y[:n].copy()
            one[-1] = far
            assert_within_rounding(statistics(one, mean, log_weight, 0.5), one, mean, log_weight, 0.5)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("n", [1, 64, 65, 5 * 64, 7 * 64 + 3, 16 * 64])
def test_blocks_are_added_up_along_the_tree(variant, n):
    """The same bits as one block after the other, merged; a bad point is counted from the first of all."""
    y, *place = draw(n, 3, seed=n)
    module = _core.load("unit_mixture", variant)

    def sums(y, size=0):
        out, totals = np.empty((3, 2)), np.empty(2)
        return module.statistics(y, *place, True, out, totals, size), out, totals

    status, *result = sums(y, 64)
    assert status == -1
    for one, other in zip(result, merge(tuple(sums(y[a:b])[1:]) for a, b in split_rows(n, 64)), strict=True):
        assert one.tobytes() == other.tobytes()
    y[n - 1] = np.inf
    assert sums(y, 64)[0] == n - 1
