"""Text files as rows: what comes out is what numpy writes; errors name file, line and value; memory does not grow."""

import gzip
import io
import os
import pickle
import sys
import time
from itertools import repeat

import numpy as np
import pytest

import cavity
from cavity.sources import text_reader, text_rows
from cavity.sources.text_reader import TextReader
from cavity.sources.text_rows import open_text, read_batches


@pytest.fixture(params=["pyarrow", "python"])
def parser(request, monkeypatch):
    """Both ways to parse."""
    if request.param == "python":
        monkeypatch.setitem(sys.modules, "pyarrow", None)
    else:
        pytest.importorskip("pyarrow")


def table(n=3000, seed=0):
    """Numbers, with gaps, and labels."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3)) * 10.0 ** rng.integers(-300, 300, (n, 1))
    X[rng.random((n, 3)) < 0.1] = np.nan
    X[:, 0] = np.nan_to_num(X[:, 0])
    return X, np.array(["no", "yes, it is", "ä"])[rng.integers(0, 3, n)]


def written(X, labels, separator=",", decimal=".", end="\n"):
    """The table as text; what is missing in several spellings."""
    gaps = ("", "NA", "nan", "NaN", "null", "n/a")
    lines = [separator.join(["a", "b", "c", "kind"])]
    for i, (row, label) in enumerate(zip(X.tolist(), labels, strict=True)):
        cells = [gaps[i % 6] if v != v else repr(v).replace(".", decimal) for v in row]
        lines.append(separator.join([*cells, f'"{label}"']))
    return end.join([*lines, ""])


def rows(part, index):
    out = np.empty((part.shape[0], len(index)))
    part.select_columns(index).fill(out, 0)
    return out


def line(part, row):
    """The line of a row."""
    return int(part.describe_row(row).split()[1])


def values(part, j):
    """A column, text or numbers."""
    labels = part.labels(j)
    return rows(part, [j])[:, 0] if labels is None else labels


@pytest.mark.sample(3)
@pytest.mark.parametrize("written_as", [(",", ".", "\n"), (";", ",", "\r\n"), ("\t", ".", "\r"), ("|", ",", "\n")])
def test_every_bit_of_every_number(tmp_path, monkeypatch, parser, written_as):
    monkeypatch.setattr(text_reader, "FIRST_PIECE_BYTES", 1000)
    monkeypatch.setattr(text_reader, "PIECE_BYTES", 10_000)
    X, labels = table()
    content = written(X, labels, *written_as)
    (tmp_path / "x.csv").write_text(content, encoding="utf-8", newline="")
    (tmp_path / "x.tsv.gz").write_bytes(gzip.compress(content.encode("utf-8-sig")))
    (tmp_path / "x.txt").write_text(content, encoding="utf-16", newline="")
    (tmp_path / "latin.csv").write_text(content, encoding="latin-1", newline="")
    parts = [open_text(tmp_path / name) for name in ("x.csv", "x.tsv.gz", "x.txt")]
    parts.append(open_text(tmp_path / "latin.csv", encoding="latin-1"))
    parts.append(open_text(io.BytesIO(content.encode())))
    for part in parts:
        assert part.columns == ("a", "b", "c", "kind")
        assert part.text == (False, False, False, True)
        np.testing.assert_array_equal(rows(part, [2, 0]), X[:, [2, 0]])
        np.testing.assert_array_equal(values(part, 1), X[:, 1])
        assert part.labels(3).tolist() == labels.tolist()
        assert [line(part, i) for i in (0, 1, 2999)] == [2, 3, 3001]


@pytest.mark.parametrize("stored", [0, 1 << 26])
def test_rows_on_disk_are_those_in_memory(tmp_path, monkeypatch, stored):
    monkeypatch.setattr(text_rows, "MAX_BYTES_IN_MEMORY", stored)
    X, labels = table()
    (tmp_path / "x.csv").write_text(written(X, labels), encoding="utf-8")
    part = open_text(str(tmp_path / "x.csv"))
    assert part.in_memory == (stored > 0)
    out = np.empty((100, 1))
    part.select_columns([0]).fill(out, 700)
    np.testing.assert_array_equal(out, X[700:800, :1])
    restored = pickle.loads(pickle.dumps(part.select_columns([2, 1])))
    np.testing.assert_array_equal(rows(restored, [0, 1]), X[:, [2, 1]])
    (tmp_path / "x.csv").write_text("a\n1\n")
    with pytest.raises(ValueError, match="x.csv has changed while it was in use"):
        pickle.loads(pickle.dumps(part))
    with pytest.raises(TypeError, match="can be read once only"):
        pickle.dumps(open_text(io.BytesIO(b"a\n1\n")))


def test_lines_are_those_of_the_file(tmp_path, parser):
    (tmp_path / "x.csv").write_text('\n# title\n\n"a","b"\n1,"x\ny"\n\n2,z\n , \n3,"x\ny"\n'.replace("# title\n", ""))
    part = open_text(tmp_path / "x.csv")
    assert values(part, 1).tolist() == ["x\ny", "z", "x\ny"]
    assert [line(part, i) for i in range(3)] == [5, 7, 10]
    assert part.describe_value("nan", 1, 0) == f"nan in line 7 of {tmp_path / 'x.csv'}, column 'a'"


@pytest.mark.long
def test_many_columns(tmp_path):
    names = [f"c{j}" for j in range(20_000)]  # of which each is not compared with each
    for path in (tmp_path / "a.csv", tmp_path / "b.csv"):
        path.write_text(",".join(names) + "\n" + ",".join("1" for _ in names) + "\n")
        names.reverse()
    begun = time.perf_counter()
    assert cavity.source([tmp_path / "a.csv", tmp_path / "b.csv"]).shape == (2, 20_000)
    assert time.perf_counter() - begun < 5.0


def test_columns_without_names(tmp_path):
    (tmp_path / "x.csv").write_text(",a\n1,2\n")
    part = open_text(tmp_path / "x.csv")
    assert (part.columns, part.unnamed) == (("1", "a"), ("1",))
    (tmp_path / "x.csv").write_text("1,2\n3,4\n")
    assert open_text(tmp_path / "x.csv").shape == (2, 2)


LONG = "1,2\n" * 40_000
BAD = {
    "": "the file holds no rows",
    "\n\n": "the file holds no rows",
    "a,b\n": "the file holds a header and no rows",
    "a,b\n1\n": "line 2: 1 fields where the first line has 2",
    "a,b\n" + LONG + "1,2,3\n": "line 40002: 3 fields where the first line has 2",
    "a,b\n" + LONG + "1,x\n": "line 40002: column 'b' is 'x', not a finite number",
    "a;b\n1;2,5\n" + "1;2,5\n" * 200 + "3.5;1\n": "column 'a' is '3.5', not a finite number; decimal='.' takes",
    "a;b\n" + "1;2\n" * 200 + "3,5;1\n": "line 202: column 'a' is '3,5', not a finite number; decimal=',' takes",
    "a,b\n1,2\n1_000,3\n": "line 3: column 'a' is '1_000', not a finite number$",
    'a,b\n1,2\n"1,5",3\n': "line 3: column 'a' is '1,5', not a finite number$",
    "a,b\n1,\0\n": "line 2: not readable as CSV",
    'a,b\n"' + "x" * 200_000 + '",1\n': "not readable as CSV",
    "a,a\n1,2\n": "two columns are called 'a'",
    "1,x\n2,3\n": "the first line holds both numbers",
}


@pytest.mark.long_cases("pyarrow-4", "python-5")
@pytest.mark.parametrize("content", BAD, ids=range(len(BAD)))
def test_what_is_wrong_is_named_with_its_line(tmp_path, parser, content):
    path = tmp_path / "x.csv"
    path.write_text(content)
    with pytest.raises((ValueError, TypeError), match=BAD[content]) as text:
        open_text(path).check_numbers("X")
    assert str(path) in str(text.value)


def test_bytes_that_are_no_text(tmp_path):
    path = tmp_path / "x.csv"
    path.write_bytes(b"a,b\n1,2\n\xe4,3\n")
    with pytest.raises(ValueError, match="x.csv, line 3: not readable as utf-8 .*0xe4.*give encoding='cp1252'"):
        open_text(path)
    with pytest.raises(ValueError, match="there is no encoding 'utf-9'"):
        open_text(path, encoding="utf-9")
    path.write_bytes(gzip.compress(b"a\n1\n")[:-9])
    with pytest.raises(ValueError, match="x.csv: not a whole gzip file"):
        open_text(path)
    with pytest.raises(FileNotFoundError):
        open_text(tmp_path / "none.csv")


def test_text_of_too_many_values(tmp_path, monkeypatch, parser):
    monkeypatch.setattr(text_reader, "MAX_TEXT_VALUES", 100)
    (tmp_path / "x.csv").write_text("id,x\n" + "".join(f"r{i},{i}\n" for i in range(300)))
    part = open_text(tmp_path / "x.csv")
    assert values(part, 1).tolist() == list(range(300))
    with pytest.raises(ValueError, match="column 'id' holds more than .* different texts"):
        part.labels(0)


@pytest.mark.parametrize(("size", "skip"), [(7, 0), (20, 31), (None, 5), (1000, 84)])
def test_batches(tmp_path, parser, size, skip):
    (tmp_path / "x.csv").write_text("a,kind\n" + "".join(f"{i},{'xy'[i % 2]}\n\n" for i in range(85)))
    parts = list(read_batches(TextReader(tmp_path / "x.csv"), repeat(size), skip))
    assert np.concatenate([values(part, 0) for part in parts]).tolist() == list(range(skip, 85))
    assert "".join(value for part in parts for value in values(part, 1)) == ("xy" * 43)[skip:85]
    assert [line(part, 0) for part in parts] == list(range(2 + 2 * skip, 172, 2 * size if size else 1000))
    assert all(part.shape[0] == size for part in parts[:-1])


class Trickle(io.RawIOBase):
    """A pipe that brings a few bytes at a time."""

    def __init__(self, content):
        self.content = content

    def readable(self):
        return True

    def readinto(self, buffer):
        count = min(7, len(buffer), len(self.content))
        buffer[:count], self.content = self.content[:count], self.content[count:]
        return count


def test_what_separates_is_found_from_several_lines(monkeypatch):
    """However little comes at first, and however wide rows are."""
    content = b"a;b\n1;2\n" + b"3,5;4,25\n" * 20
    part = open_text(io.BufferedReader(Trickle(content)))
    assert part.columns == ("a", "b")
    np.testing.assert_array_equal(rows(part, [0, 1]), [[1.0, 2.0], *[[3.5, 4.25]] * 20])
    monkeypatch.setattr(text_reader, "FIRST_PIECE_BYTES", 4)
    part = open_text(io.BytesIO(content))
    np.testing.assert_array_equal(rows(part, [1])[:2], [[2.0], [4.25]])


def test_what_separates_may_be_said(tmp_path):
    for name in ("a", "b"):
        (tmp_path / f"{name}.csv").write_text("x;y,z\n1;2,5\n")
    with pytest.raises(ValueError, match="give separator=',', for example"):
        cavity.source(tmp_path / "a.csv")
    result = cavity.source(str(tmp_path / "*.csv"), separator=";", decimal=",")
    assert result.names == ("x", "y,z")
    assert result.rows().tolist() == [[1.0, 2.5]] * 2
    np.save(tmp_path / "c.npy", np.ones(3))
    for other in (np.ones(3), tmp_path / "c.npy"):
        with pytest.raises(ValueError, match="separator, decimal and encoding are for text files, got"):
            cavity.source(other, decimal=",")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are not forked here")
def test_a_forked_process_reads_the_same_scratch_file(tmp_path, monkeypatch):
    """Both read at the same time; the place in an open file is theirs together."""
    monkeypatch.setattr(text_rows, "MAX_BYTES_IN_MEMORY", 0)
    expected = np.arange(40_000.0).reshape(-1, 2)
    np.savetxt(tmp_path / "x.csv", expected, delimiter=",", header="a,b", comments="", fmt="%g")
    rows = cavity.source(tmp_path / "x.csv")

    def wrong():
        starts = np.random.default_rng(os.getpid()).integers(0, len(expected) - 500, 300).tolist()
        return sum(not np.array_equal(rows.rows(i, i + 500), expected[i : i + 500]) for i in starts)

    child = os.fork()
    if child == 0:
        status = 1
        try:
            status = int(wrong() > 0)
        finally:
            os._exit(status)
    result = wrong()
    assert (result, os.waitpid(child, 0)[1]) == (0, 0)


def test_columns_that_show_their_kind_late(tmp_path, parser):
    """Gaps in the whole first piece, and a number among text far below it."""
    n = 40_000
    (tmp_path / "x.csv").write_text("a,gaps,kind\n" + "1,,x\n" * n + "2,5,x\n3,,7\n")
    part = open_text(tmp_path / "x.csv")
    assert values(part, 1)[-3:].tolist() == pytest.approx([np.nan, 5.0, np.nan], nan_ok=True)
    assert [line(part, i) for i in (0, n, n + 1)] == [2, n + 2, n + 3]
    with pytest.raises(ValueError, match="line 2: column 'kind' is 'x', not a finite number"):
        part.check_numbers("X")


@pytest.mark.usefixtures("parser")
@pytest.mark.parametrize("separator", [",", ";"])
def test_commas_between_thousands(tmp_path, monkeypatch, separator):
    monkeypatch.setattr(text_reader, "FIRST_PIECE_BYTES", 1 << 9)  # both ways split the text after the first piece
    expected, path = np.arange(400) + 0.5, tmp_path / "x.csv"
    expected[[300, 350]] = 1234.0, -2345678.5
    cells = [f'"{value:,}"' if value in (1234.0, -2345678.5) else repr(float(value)) for value in expected]
    path.write_text("\n".join([f"a{separator}b", *(f"{cell}{separator}1" for cell in cells)]).replace("34.0", "34"))
    np.testing.assert_array_equal(cavity.source(path, ["a"]).rows()[:, 0], expected)


@pytest.mark.usefixtures("parser")
def test_a_comma_of_decimals_or_thousands_is_refused_where_it_stands(tmp_path, monkeypatch):
    monkeypatch.setattr(text_reader, "FIRST_PIECE_BYTES", 1 << 9)
    path = tmp_path / "x.csv"
    path.write_text("\n".join(["a;b", *["NA;1"] * 300, "1,234;1", "2,345;1"]))
    with pytest.raises(ValueError, match=r"x.csv, line 302, column 'a': 1,234 may be a number with a decimal comma"):
        open_text(path)
    rows = [cavity.source(path, ["a"], decimal=decimal).rows()[300:, 0] for decimal in ".,"]
    np.testing.assert_array_equal(rows, [[1234.0, 2345.0], [1.234, 2.345]])
