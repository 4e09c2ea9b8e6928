"""Sources of blocks: the same bits from every kind of data, constant memory, the merge, summaries, refusals."""

import io
import itertools
import math
import os
import pickle
import re
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from reference import blocks as reference
from support.passes import map_blocks, reduce_blocks
from support.tolerances import OPTIMUM, ROUNDING

import cavity
from cavity.runs import merge as merging
from cavity.runs.executors import Threads
from cavity.runs.merge import merge
from cavity.sources import sources
from cavity.sources.sources import open_source

BLOCK = 64  # rows, in most tests
CUTS = (0, 10, 10, 200, 201, 700, 1000)  # of the rows into files: within blocks, across several, one without rows


def draw(shape=(1000,), seed=0):
    return np.random.default_rng(seed).normal(3.0, 2.0, shape)


def save(folder, array, name="data.npy"):
    np.save(folder / name, array)
    return folder / name


def save_parts(folder, array):
    bounds = enumerate(itertools.pairwise(CUTS))
    return [save(folder, array[start:stop], f"part-{i}.npy") for i, (start, stop) in bounds]


def mapped(folder, array):
    return np.load(save(folder, array, "mapped.npy"), mmap_mode="r")


def unaligned(folder, array):
    raw = np.zeros(array.nbytes + 1, dtype=np.uint8)
    raw[1:] = np.frombuffer(array.tobytes(), dtype=np.uint8)
    return raw[1:].view(array.dtype).reshape(array.shape)


KINDS = {
    "array": lambda folder, y: y,
    "nested list": lambda folder, y: y.tolist(),
    "every other row": lambda folder, y: np.repeat(y, 2, axis=0)[::2],
    "backwards": lambda folder, y: y[::-1].copy()[::-1],
    "by columns": lambda folder, y: np.asfortranarray(y),
    "other bytes first": lambda folder, y: y.astype(">f8"),
    "unaligned": unaligned,
    "memmap": mapped,
    "path": save,
    "text path": lambda folder, y: str(save(folder, y)),
    "file by columns": lambda folder, y: save(folder, np.asfortranarray(y)),
    "file with other bytes first": lambda folder, y: save(folder, y.astype(">f8")),
    "files": save_parts,
    "files by columns": lambda folder, y: tuple(save_parts(folder, np.asfortranarray(y))),
    "files of both orders": lambda folder, y: save_parts(folder, y)[:3] + save_parts(folder, y.astype(">f8"))[3:],
}


def statistics(block):
    """What depends on every number and on the blocks: sums of order one and two."""
    wide = block.reshape(len(block), -1)
    return np.tanh(wide).sum(axis=0), wide.T @ wide


def bits(parts):
    return [np.asarray(part).tobytes() for part in parts]


# ------------------------------------------------------------------------------------- the same bits from all sources


@pytest.mark.parametrize("shape", [(1000,), (1000, 1), (1000, 3)])
@pytest.mark.parametrize("kind", KINDS)
def test_every_source_gives_the_same_bits(tmp_path, kind, shape):
    y = draw(shape)
    with Threads(1) as threads:
        plain = open_source(y, "y", ndim=(1, 2), block_rows=BLOCK)
        expected, extremes = bits(reduce_blocks(plain, statistics, threads)), bits(plain.summary(threads))
    source = open_source(KINDS[kind](tmp_path, y), "y", ndim=(1, 2), block_rows=BLOCK)
    assert (source.shape, source.n_rows, source.n_features) == (shape, 1000, math.prod(shape[1:]))
    blocks = [source.read(index).copy() for index in range(source.block_count)]
    assert [len(block) for block in blocks] == 15 * [64] + [40]
    np.testing.assert_array_equal(np.concatenate(blocks), y)
    for n_threads in (1, 2, 3):
        with Threads(n_threads) as threads:
            assert bits(reduce_blocks(source, statistics, threads)) == expected
            assert bits(source.summary(threads)) == extremes


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("index", [(2, 0), (1,), (0, 1, 2)])
def test_some_columns_of_any_source(tmp_path, kind, index):
    array = draw((1000, 3))
    source = open_source(KINDS[kind](tmp_path, array), "X", ndim=(2,)).columns(index)
    second = open_source(source, "X", ndim=(2,), block_rows=BLOCK)
    expected = open_source(np.ascontiguousarray(array[:, index]), "X", ndim=(2,), block_rows=BLOCK)
    assert second.shape == expected.shape == (1000, len(index))
    for i in range(expected.block_count):
        assert second.read(i).tobytes() == expected.read(i).tobytes()
        assert second.read(i).flags.c_contiguous


def test_a_vector_has_one_column(tmp_path):
    y = draw()
    for data in (y, save(tmp_path, y.astype(np.float32))):
        rows = open_source(data, "y").columns([0])
        assert rows.shape == (1000, 1)
        np.testing.assert_allclose(rows.read(0)[:, 0], y, rtol=OPTIMUM)


def test_a_bad_number_is_named_by_its_own_column(tmp_path):
    array = draw((100, 3))
    array[17, 2] = np.nan
    for data, message in ((array, "X[17, 2] = nan"), (save(tmp_path, array), "nan in row 17, column 2 of")):
        with pytest.raises(ValueError, match=re.escape(message)), Threads(1) as thread:
            open_source(data, "X", ndim=(2,)).columns([2, 0]).summary(thread)
    array[17, 2] = 0.0
    with pytest.raises(ValueError, match="must have 1 dimension"):
        open_source(open_source(array, "X", ndim=(2,)), "y")


@pytest.mark.parametrize("kind", KINDS)
def test_blocks_are_contiguous_aligned_float64_and_read_only(tmp_path, kind):
    source = open_source(KINDS[kind](tmp_path, draw((1000, 3))), "X", ndim=(2,), block_rows=BLOCK)
    for index in (0, 3, 15):
        block = source.read(index)
        assert block.dtype == np.float64
        assert block.flags.c_contiguous
        assert block.flags.aligned
        with pytest.raises(ValueError, match="read-only"):
            block[0, 0] = 1.0


@pytest.mark.parametrize("dtype", ["?", "i1", "u2", ">i4", "i8", "u8", "f2", "f4", ">f4", "g"])
@pytest.mark.parametrize("shape", [(1000,), (1000, 3)])
def test_real_numbers_of_every_type(tmp_path, dtype, shape):
    y = np.abs(100 * draw(shape)).astype(dtype) if dtype in ("u2", "u8") else draw(shape).astype(dtype)
    expected = y.astype(np.float64)
    for order in "CF":
        for data in (np.array(y, order=order), save(tmp_path, np.array(y, order=order)), save_parts(tmp_path, y)):
            source = open_source(data, "y", ndim=(1, 2), block_rows=BLOCK)
            np.testing.assert_array_equal(np.concatenate([source.read(i).copy() for i in range(16)]), expected)


def test_a_list_of_files_may_mix_types(tmp_path):
    parts = [save(tmp_path, np.arange(5).astype(dtype), f"{np.dtype(dtype)}.npy") for dtype in ("i2", "f4", "f8", "?")]
    source = open_source(parts, "y", block_rows=7)
    with Threads(1) as threads:
        result = np.concatenate(list(map_blocks(source, lambda block: block, threads)))
    np.testing.assert_array_equal(result, 3 * [0, 1, 2, 3, 4] + [0, 1, 1, 1, 1])


def test_pandas_columns():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"a": [1.0, 2.0, 4.0], "b": [1, 2, 3], "c": ["x", "y", "z"]})
    with Threads(1) as threads:
        assert open_source(frame["a"], "y").summary(threads)[:2] == (1.0, 4.0)
        assert open_source(frame["b"], "y").summary(threads) == (1.0, 3.0, 2.0)
        assert open_source(frame[["a", "b"]], "X", ndim=(2,)).summary(threads)[1].tolist() == [4.0, 3.0]
    with pytest.raises(TypeError, match="y must hold real numbers, got dtype"):
        open_source(frame["c"], "y")


@pytest.mark.parametrize("order", ["in order", "early ones last"])
@pytest.mark.parametrize("n_threads", [2, 3])
def test_delays_do_not_change_the_bits(n_threads, order):
    y = draw()
    delays = {float(y[start]): 2e-3 * (start == 0 or order == "in order") for start in range(0, 1000, 50)}

    def slow(block):
        time.sleep(delays[block[0]])
        return statistics(block)

    source = open_source(y, "y", block_rows=50)
    with Threads(1) as one, Threads(n_threads) as threads:
        assert bits(reduce_blocks(source, slow, threads)) == bits(reduce_blocks(source, statistics, one))


def test_kernels_may_return_the_block(tmp_path):
    """It lies in a buffer that is used again at once, and yet the results are those of each block."""
    y = draw()
    source = open_source(save(tmp_path, y), "y", block_rows=BLOCK)
    for n_threads in (1, 2):
        with Threads(n_threads) as threads:
            pairs = list(map_blocks(source, lambda block: (block[1:], block.sum()), threads))
        np.testing.assert_array_equal(np.concatenate([pair[0] for pair in pairs]), np.delete(y, range(0, 1000, BLOCK)))


def test_arrays_are_not_copied_and_files_use_one_buffer(tmp_path):
    y = draw()
    source = open_source(y, "y", block_rows=BLOCK)
    assert all(np.shares_memory(source.read(index), y) for index in range(source.block_count))
    assert y.flags.writeable
    for data in (save(tmp_path, y), y.astype(np.float32), y[::-1]):
        source = open_source(data, "y", block_rows=BLOCK)
        first = source.read(0)
        assert all(np.shares_memory(source.read(index), first) for index in range(source.block_count))


@pytest.mark.parametrize("kind", ["array", "file by columns", "files"])
@pytest.mark.parametrize("size", [1, 6, 15, 64, 999, 1000, 5000])
def test_samples_are_rows_at_equal_distances(tmp_path, kind, size):
    X = draw((1000, 2))
    sample = open_source(KINDS[kind](tmp_path, X), "X", ndim=(2,), block_rows=BLOCK).sample(size)
    assert len(sample) <= size
    assert len(sample) > size // 2 or len(sample) == 1000
    np.testing.assert_array_equal(sample, X[:: math.ceil(1000 / size)])
    assert not np.shares_memory(sample, X)


def test_blocks_of_wide_rows_are_bounded():
    widths = [1, 2, 7, 8, 9, 100, 1000, 100_000]
    sizes = [sources.rows_per_block(width) for width in widths]
    assert sizes[0] == sizes[3] == merging.ROWS_PER_CALL == 1 << 17  # the kernels' chunks of partial sums fit in
    assert all(size & (size - 1) == 0 for size in sizes)
    assert all(size * width <= 1 << 20 or size == 1 << 10 for size, width in zip(sizes, widths, strict=True))
    assert sizes == sorted(sizes, reverse=True)
    source = open_source(np.zeros((3000, 1000)), "X", ndim=(2,))
    assert [source.span(index) for index in range(source.block_count)] == [(0, 1024), (1024, 2048), (2048, 3000)]


# ------------------------------------------------------------------------------------------------------------ merging


@pytest.mark.parametrize("count", [*range(1, 70), 1000, 1024, 1025])
def test_merge_is_the_pairwise_tree(count):
    def show(left, right):
        return f"({left}{right})"

    names = [f"<{i}>" for i in range(count)]
    assert merge(iter(names), show) == reference.tree(names, show)


def test_merge_adds_tuples_and_arrays():
    parts = [(np.array([i, 1.0]), i, np.full((2, 2), i * i)) for i in range(5)]
    total = merge(parts)
    assert total[0].tolist() == [10.0, 5.0]
    assert total[1] == 10
    assert total[2].tolist() == [[30, 30], [30, 30]]
    assert parts[0][0].tolist() == [0.0, 1.0]  # as it was
    with pytest.raises(ValueError, match="nothing to merge"):
        merge([])
    with pytest.raises(ValueError, match="zip"):
        merge([(1, 2), (1, 2, 3)])


def test_merge_is_accurate_and_holds_few_parts():
    class Part:
        alive = most = 0

        def __init__(self, value):
            self.value = value
            Part.alive += 1
            Part.most = max(Part.most, Part.alive)

        def __del__(self):
            Part.alive -= 1

    values = draw((100_000,)) + 1e6
    total = merge(map(Part, values), lambda a, b: Part(a.value + b.value)).value
    assert Part.most <= math.log2(100_000) + 3
    assert abs(total - math.fsum(values)) <= 17 * np.finfo(float).eps * total  # a rounding per level of the tree


# ---------------------------------------------------------------------------------------------------------- summaries

FINITE = st.floats(allow_nan=False, allow_infinity=False)
VALUES = st.lists(st.one_of(FINITE, st.floats(-5, 5), st.sampled_from([1.7e308, -1.7e308, 5e-324])), min_size=1)


@given(values=VALUES, block_rows=st.integers(1, 40), width=st.integers(1, 3))
def test_summary_of_any_numbers(values, block_rows, width):
    data = np.repeat(values, 3)[: len(values) // width * width or None]
    data = data if width == 1 else np.resize(data, (max(1, len(data) // width), width))
    with Threads(1) as threads:
        low, high, mean = open_source(data, "y", ndim=(1, 2), block_rows=block_rows).summary(threads)
    columns = data.reshape(len(data), -1).T.tolist()
    assert np.ravel(low).tolist() == [min(column) for column in columns]
    assert np.ravel(high).tolist() == [max(column) for column in columns]
    for result, column in zip(np.ravel(mean), columns, strict=True):
        slack = 1e-13 * max(map(abs, column)) + 1e-323
        assert abs(float(reference.mean(column)) - result) <= slack
        assert min(column) <= result <= max(column)


def test_summary_of_large_columns():
    X = draw((300_000, 3)) * [1.0, 1e-300, 1e305] + [1e6, 0.0, 1e307]
    with Threads(2) as threads:
        low, high, mean = open_source(X, "X", ndim=(2,)).summary(threads)
    for j in range(3):
        assert (low[j], high[j]) == (X[:, j].min(), X[:, j].max())
        scale = 2.0 ** -(400 * (j == 2))
        assert mean[j] * scale == pytest.approx(math.fsum(X[:, j] * scale) / 300_000, rel=ROUNDING)


def test_summary_of_equal_numbers():
    with Threads(1) as threads:
        assert open_source([-2.5], "y").summary(threads) == (-2.5, -2.5, -2.5)
        assert open_source([0.1, 0.1, 0.1], "y").summary(threads) == (0.1, 0.1, 0.1)  # a third of their sum is more
        largest = np.finfo(float).max
        assert open_source(np.full(1000, largest), "y").summary(threads) == (largest, largest, largest)
        assert all(type(value) is float for value in open_source([1, 2], "y").summary(threads))


BAD = {
    "vector": ((1000,), [(517,), (999,)], "y must be finite, got y[517] = {}"),
    "matrix": ((1000, 3), [(517, 2), (518, 0), (900, 1)], "y must be finite, got y[517, 2] = {}"),
}


@pytest.mark.parametrize("value", ["nan", "inf", "-inf"])
@pytest.mark.parametrize("shape", BAD)
def test_the_first_number_that_is_not_finite_is_named(tmp_path, shape, value):
    shape, places, message = BAD[shape]
    y = draw(shape)
    for place in places:
        y[place] = -np.inf if place == places[-1] else float(value)
    column = ", column 2" if len(shape) > 1 else ""
    cases = (
        (y, message),
        (np.asfortranarray(y.astype(np.float32)), message),
        (save(tmp_path, y), f"y must be finite, got {{}} in row 517{column} of {tmp_path / 'data.npy'}"),
        (save_parts(tmp_path, y), f"y must be finite, got {{}} in row 316{column} of {tmp_path / 'part-4.npy'}"),
    )
    for data, expected in cases:
        for n_threads in (1, 2, 3):
            with Threads(n_threads) as threads, pytest.raises(ValueError) as caught:
                open_source(data, "y", ndim=(1, 2), block_rows=BLOCK).summary(threads)
            assert str(caught.value) == expected.format(value)


def test_both_infinities_in_a_block_are_reported_without_warnings():
    with Threads(1) as threads, pytest.raises(ValueError, match=r"y must be finite, got y\[0\] = inf"):
        open_source([np.inf, -np.inf, np.nan], "y").summary(threads)


def test_numbers_beyond_float64_are_infinite():
    y = np.array([1.0, np.finfo(np.longdouble).max])
    if float(np.finfo(np.longdouble).maxexp) <= 1024:
        pytest.skip("long doubles are doubles here")
    with Threads(1) as threads, pytest.raises(ValueError, match=r"y must be finite, got y\[1\] = inf"):
        open_source(y, "y").summary(threads)


def test_words_for_a_row(tmp_path):
    assert open_source(draw(), "y").describe_row(17) == "y[17]"
    paths = save_parts(tmp_path, draw())
    source = open_source(paths, "y")
    places = {0: (0, 0), 9: (0, 9), 10: (2, 0), 199: (2, 189), 200: (3, 0), 201: (4, 0), 999: (5, 299)}
    for row, (part, inside) in places.items():
        assert source.describe_row(row) == f"row {inside} of {paths[part]}"


# ----------------------------------------------------------------------------------------------------------- refusals


def text_file(folder):
    (folder / "notes.dat").write_text("1 2 3")
    return folder / "notes.dat"


def archive(folder):
    np.savez(folder / "data.npz", y=np.zeros(3))
    return folder / "data.npz"


def truncated(folder, size):
    path = save(folder, draw())
    path.write_bytes(path.read_bytes()[:size])
    return path


def damaged(folder, old, new):
    path = save(folder, draw())
    path.write_bytes(path.read_bytes().replace(old, new, 1))
    return path


ONE_SHOT = "the fit needs several passes over the data, but y is a one-shot iterator"
REFUSED = {
    "rows of different lengths": (lambda _: [[1, 2], [3]], ValueError, "y must be an array of real numbers"),
    "generator": (lambda _: (i for i in range(3)), TypeError, ONE_SHOT + r" \(generator\); give an array, a .npy file"),
    "iterator": (lambda _: iter([1.0, 2.0]), TypeError, ONE_SHOT),
    "map": (lambda _: map(float, "123"), TypeError, ONE_SHOT),
    "open file": (lambda _: os.fdopen(os.dup(1), "w"), TypeError, ONE_SHOT),
    "masked": (lambda _: np.ma.masked_equal([1.0, 2.0], 2.0), TypeError, "y must not be a masked array"),
    "objects": (lambda _: np.array([1, "a", None], dtype=object), TypeError, "real numbers, got dtype object"),
    "complex": (lambda _: [1j, 2.0], TypeError, "y must hold real numbers, got dtype complex128"),
    "strings": (lambda _: np.array(["1", "2"]), TypeError, "y must hold real numbers, got dtype <U1"),
    "dates": (lambda _: np.array(["2020-01-01"], dtype="M8[D]"), TypeError, "real numbers, got dtype datetime64"),
    "empty": (lambda _: [], ValueError, r"y must not be empty, got shape \(0,\)"),
    "number": (lambda _: 3.0, ValueError, r"y must have 1 dimension\(s\), got shape \(\)"),
    "matrix": (lambda _: np.zeros((3, 4)), ValueError, r"y must have 1 dimension\(s\), got shape \(3, 4\)"),
    "set": (lambda _: {1.0, 2.0}, TypeError, "y must be an array or data frame of numbers, got set"),
    "missing file": (lambda f: f / "no.npy", FileNotFoundError, "y must be real numbers or the path of a .csv, .npy"),
    "name": (lambda _: ["nowhere", "near"], FileNotFoundError, "there is no file 'nowhere'"),
    "folder": (lambda folder: folder, ValueError, "y: .* is not a file"),
    "text file": (text_file, ValueError, "y: .*notes.dat .* is not of a format that is read; these are: .npy"),
    "archive": (archive, ValueError, "y: .*data.npz is an archive of arrays, .* numpy.load"),
    "empty file": (lambda folder: truncated(folder, 0), ValueError, "data.npy is not a .npy file"),
    "header cut": (lambda folder: truncated(folder, 70), ValueError, "data.npy is not a .npy file"),
    "numbers cut": (lambda f: truncated(f, 8120), ValueError, "data.npy is cut short: .*8000 bytes.* has 7992"),
    "bracket lost": (lambda folder: damaged(folder, b"}", b" "), ValueError, "data.npy is not a .npy file"),
    "minus rows": (lambda folder: damaged(folder, b"(1000", b"(-100"), ValueError, "says shape"),
    "long header": (lambda f: damaged(f, b"v\0", b"\xff\xff"), ValueError, "it says that its header has 65535 bytes"),
    "no number": (lambda f: damaged(f, b"(1000,)", b"(10.0,)"), ValueError, "header says shape \\(10.0,\\)"),
    "no tuple": (lambda f: damaged(f, b"(1000,)", b"[1000,]"), ValueError, "header says shape \\[1000\\]"),
    "other field": (lambda f: damaged(f, b"shape", b"shade"), ValueError, "does not say shape, order and dtype"),
    "no order": (lambda f: damaged(f, b"False", b"0    "), ValueError, "header says fortran_order 0"),
    "no dtype": (lambda f: damaged(f, b"'<f8'", b"'<f3'"), ValueError, "header says dtype '<f3'"),
    "no name": (lambda f: damaged(f, b"'<f8'", b"'f:8'"), ValueError, "header says dtype 'f:8'"),
    "a number": (lambda f: damaged(f, b"'<f8'", b"12345"), ValueError, "header says dtype 12345"),
    "open string": (lambda f: damaged(f, b"'<f8'", b"'<f8 "), ValueError, "its header cannot be read"),
    "bad bytes": (lambda f: damaged(f, b"NUMPY\1\0v\0{", b"NUMPY\3\0v\0\0\0"), ValueError, "codec can.t decode byte"),
    "fields": (lambda f: save(f, np.zeros(3, "f8,i4")), ValueError, r"header says dtype \[.*not one of real numbers"),
    "version": (lambda folder: damaged(folder, b"NUMPY\1", b"NUMPY\4"), ValueError, "data.npy is not a .npy file"),
    "object file": (lambda f: save(f, np.array([1, None])), TypeError, r"y \(.*data.npy\) must .* got dtype object"),
    "complex file": (lambda f: save(f, np.zeros(3, complex)), TypeError, "data.npy.* real numbers, got dtype complex"),
    "matrix file": (lambda f: save(f, np.zeros((3, 4))), ValueError, r"y \(.*data.npy\) must have 1 dimension"),
    "file of nothing": (lambda f: save(f, np.zeros(0)), ValueError, r"y \(.*data.npy\) must not be empty"),
    "paths and numbers": (lambda f: [save(f, draw()), 3.0], TypeError, "only if it holds one, got float too"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused(tmp_path, case):
    make, error, message = REFUSED[case]
    data = make(tmp_path)
    with pytest.raises(error, match=message):
        open_source(data, "y")
    if hasattr(data, "close"):
        data.close()


def test_files_of_different_widths(tmp_path):
    shapes = {"a": (5, 3), "b": (4, 3), "c": (4, 2), "d": (4,)}
    files = {name: save(tmp_path, np.zeros(shape), f"{name}.npy") for name, shape in shapes.items()}
    assert open_source([files["a"], files["b"]], "X", ndim=(1, 2)).shape == (9, 3)
    for other in "cd":
        with pytest.raises(ValueError, match=rf"X must have rows of one width, got shape \(5, 3\) in .*{other}.npy"):
            open_source([files["a"], files[other]], "X", ndim=(1, 2))


def test_long_integers_of_python_2(tmp_path):
    path = damaged(tmp_path, b"(1000,), } ", b"(1000L,), }")
    np.testing.assert_array_equal(open_source(path, "y").read(0), draw())


def test_versions_of_the_format(tmp_path):
    for version in ((1, 0), (2, 0), (3, 0)):
        with open(tmp_path / "y.npy", "wb") as file:
            np.lib.format.write_array(file, draw(), version=version)
            file.write(b"what else the file holds")
        np.testing.assert_array_equal(open_source(tmp_path / "y.npy", "y").read(0), draw())


# ---------------------------------------------------------------------------------------- files in use, and their size


def cut_now(path):
    with open(path, "r+b") as file:
        file.truncate(4000)


def touch(path):
    status = path.stat()
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns + 1_000_000))


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (cut_now, ValueError, "data.npy has changed while it was in use"),
        (touch, ValueError, "data.npy has changed while it was in use"),
        (lambda path: np.save(path, draw((2000,))), ValueError, "data.npy has changed while it was in use"),
        (Path.unlink, FileNotFoundError, "data.npy"),
    ],
)
def test_files_that_change_between_passes(tmp_path, change, error, message):
    path = save(tmp_path, draw())
    source = open_source(path, "y", block_rows=BLOCK)
    with Threads(2) as threads:
        source.summary(threads)
        change(path)
        with pytest.raises(error, match=message):
            source.summary(threads)


def replaced(path, values):
    """Put another file with the same time of modification in the place of a file."""
    status = path.stat()
    np.save(path.with_name("new.npy"), values)
    os.utime(path.with_name("new.npy"), ns=(status.st_atime_ns, status.st_mtime_ns))
    os.replace(path.with_name("new.npy"), path)


def rewritten(path, values):
    """Write other numbers into a file, and set its time of modification back."""
    status = path.stat()
    with open(path, "r+b") as file:
        file.seek(-values.nbytes, os.SEEK_END)
        file.write(values.tobytes())
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


@pytest.mark.skipif(os.name != "posix", reason="needs inodes and times of status changes")
@pytest.mark.parametrize(
    "change", [lambda path: replaced(path, draw() + 1), lambda path: rewritten(path, draw() + 1)], ids=["new", "old"]
)
def test_files_of_the_same_size_and_time(tmp_path, change):
    path = save(tmp_path, draw())
    source = open_source(path, "y", block_rows=BLOCK)
    source.read(0)
    time.sleep(0.02)  # clocks of file systems tick every few milliseconds
    change(path)
    with pytest.raises(ValueError, match="data.npy has changed while it was in use"):
        source.read(1)


@pytest.mark.skipif(os.name != "posix", reason="needs times of status changes")
def test_other_rights_and_names_are_no_change(tmp_path):
    path = save(tmp_path, draw())
    source = open_source(path, "y", block_rows=BLOCK)
    before = path.stat().st_ctime_ns
    time.sleep(0.02)
    os.chmod(path, 0o600)
    os.link(path, tmp_path / "link.npy")
    assert path.stat().st_ctime_ns > before
    np.testing.assert_array_equal(source.rows(), draw())
    np.testing.assert_array_equal(source.rows(3, 250), draw()[3:250])


def test_a_file_cut_between_the_check_and_the_read(tmp_path, monkeypatch):
    path = save(tmp_path, draw())
    source = open_source(path, "y", block_rows=BLOCK)
    stamp = source.parts[0].state.stamp
    cut_now(path)
    monkeypatch.setattr("cavity.sources.files._stamp", lambda file: stamp)
    np.testing.assert_array_equal(source.read(0), draw()[:BLOCK])
    with pytest.raises(ValueError, match="data.npy ends too early: it was cut short while it was in use"):
        source.read(10)


def test_reads_that_bring_less_than_was_asked_for(tmp_path, monkeypatch):
    class Slow(io.FileIO):
        def readinto(self, buffer):
            return super().readinto(memoryview(buffer)[:100])

    sources = [open_source(data, "y", block_rows=BLOCK) for data in save_parts(tmp_path, draw().astype("f4"))[2:4]]
    monkeypatch.setattr("cavity.sources.npy.open", lambda path, mode, buffering: Slow(path, mode), raising=False)
    result = np.concatenate([source.read(i).copy() for source in sources for i in range(source.block_count)])
    np.testing.assert_array_equal(result, draw().astype("f4")[CUTS[2] : CUTS[4]])


def test_relative_paths_survive_a_change_of_folder(tmp_path, monkeypatch):
    save(tmp_path, draw())
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path)
    source = open_source("data.npy", "y")
    monkeypatch.chdir(tmp_path / "other")
    np.testing.assert_array_equal(source.read(0), draw())
    assert source.describe_row(3) == "row 3 of data.npy"


MEMORY = """
import resource, sys
import numpy as np
from cavity.sources import sources
from cavity.runs.executors import Threads
from cavity.runs.merge import BlockTask
from cavity.runs.passes import reduce_runs
def kernel(block, start, broadcast):
    return block.sum()
def work(path, threads):
    source = sources.open_source(path, "y")
    low, high, mean = source.summary(threads)
    return high - low + reduce_runs(BlockTask(kernel), None, [source], threads)
with Threads(2) as threads:
    work(sys.argv[1], threads)  # imports, code, and a file of a block per thread
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    work(sys.argv[2], threads)
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


@pytest.mark.long_cases("f8")
@pytest.mark.skipif(sys.platform != "linux", reason="other units of ru_maxrss")
@pytest.mark.parametrize("dtype", ["f8", "f4"])
def test_memory_does_not_grow_with_a_file(tmp_path, dtype):
    small = save(tmp_path, np.zeros(4 * merging.ROWS_PER_CALL, dtype=dtype), "small.npy")
    large = np.lib.format.open_memmap(tmp_path / "large.npy", mode="w+", dtype=dtype, shape=(10_000_000,))
    del large  # a file of zeros, 80 or 40 MB
    command = [sys.executable, "-c", MEMORY, str(small), str(tmp_path / "large.npy")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert int(done.stdout) < 8 * 1024  # KB: a buffer or two more at the same time, not the file


# ------------------------------------------------------------------------------- rows from anywhere, in other processes


@pytest.mark.parametrize("kind", KINDS)
def test_rows_are_viewed_or_filled_from_anywhere(tmp_path, kind):
    array = draw((1000, 3))
    source = open_source(KINDS[kind](tmp_path, array), "X", ndim=(2,))
    assert source.in_memory == ("file" not in kind and "path" not in kind)
    for start, stop in ((0, 64), (190, 300), (5, 6), (999, 1000), (0, 1000)):
        out = np.empty((stop - start, 3))
        source.fill(out, start)
        np.testing.assert_array_equal(out, array[start:stop])
        view = source.view(start, stop)
        assert (view is not None) == (kind in ("array", "nested list", "memmap"))
        assert view is None or (view.flags.c_contiguous and np.array_equal(view, out))


@pytest.mark.parametrize("kind", KINDS)
def test_sources_pickle(tmp_path, kind):
    array = draw((100, 3))
    source = open_source(KINDS[kind](tmp_path, array), "X", ndim=(2,), block_rows=7)
    source.read(0)
    restored = pickle.loads(pickle.dumps(source))
    assert (restored.name, restored.block_rows, restored.shape) == ("X", 7, source.shape)
    assert bits([restored.rows(), restored.read(3)]) == bits([source.rows(), source.read(3)])


def test_a_source_tells_what_it_is(tmp_path):
    np.save(tmp_path / "a.npy", np.zeros((3, 2)))
    paths = [str(tmp_path / "a.npy")] * 2
    assert repr(cavity.source(paths)) == f"<cavity.Source: 6 x 2, from {paths[0]} and 1 more>"
    assert repr(cavity.source(paths[0]).column(1)) == "<cavity.Source: 3>"
    assert repr(cavity.source([1.0, 2.0])) == "<cavity.Source: 2>"


def test_rows_that_are_not_there_are_refused(tmp_path):
    np.save(tmp_path / "x.npy", np.arange(10.0).reshape(5, 2))
    for rows in (cavity.source(np.zeros((5, 2))), cavity.source(tmp_path / "x.npy")):
        assert rows.rows(5).shape == (0, 2)
        for span in ((-1,), (3, 2), (0, 6), (6,)):
            with pytest.raises(ValueError, match="data has rows from 0 to 5, there are none from"):
                rows.rows(*span)
        with pytest.raises(ValueError, match="size must be at least 1, got 0"):
            rows.sample(0)


def test_columns_by_what_numbers_and_lists_there_are(tmp_path):
    np.save(tmp_path / "x.npy", np.arange(10.0).reshape(5, 2))
    rows = cavity.source(tmp_path / "x.npy")
    assert cavity.source(rows, columns=np.int64(1)).rows().tolist() == [1.0, 3.0, 5.0, 7.0, 9.0]
    assert cavity.source(rows, columns=np.array([1, 0])).rows(4).tolist() == [[9.0, 8.0]]
    for wrong in (True, 2, -1, ["x"]):
        with pytest.raises(ValueError, match="data has no column"):
            cavity.source(rows, columns=[wrong] if wrong is True else wrong)
    with pytest.raises(ValueError, match=r"X must not be empty, got shape \(5, 0\)"):
        sources.open_source(rows.columns([]), "X", ndim=(2,))


def test_what_is_no_table_of_files_is_told(tmp_path):
    np.save(tmp_path / "number.npy", 3.0)
    with pytest.raises(ValueError, match=r"data: .*number\.npy holds a single number"):
        cavity.source(tmp_path / "number.npy")
    with pytest.raises(TypeError, match="X must hold paths of files only if it holds one, got ndarray too"):
        cavity.GaussianMixture(2).fit([tmp_path / "x.npy", np.zeros((5, 2))])
