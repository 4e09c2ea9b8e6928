"""Tables of results: what they show, in text and in notebooks, and what they hand on."""

import pickle
import sys

import numpy as np
import pytest
from scipy import stats
from support.tolerances import SOLVES

from cavity.base import summary
from cavity.base.summary import Table, format_number


@pytest.mark.parametrize(
    ("value", "sd", "text"),
    [
        (0.267423, 0.114161, "0.267"),
        (-0.0, 0.1, "0.000"),
        (-1e-9, 0.5, "0.000"),
        (1234567.8, 12345.0, "1234568"),
        (12345.0, 12345.0, "12345"),
        (1.0312e-5, 1.56e-6, "1.031e-05"),
        (1.56e-6, 1.56e-6, "1.56e-06"),
        (3e-12, 3.4e-10, "3e-12"),
        (0.0, 3.4e-10, "0"),
        (1.23456e12, 1e9, "1.23456e+12"),
        (1e300, 1e299, "1.000e+300"),
        (2.5, 0.0, "2.5"),
        (2.5, np.nan, "2.5"),
        (1.0, np.inf, "1"),
        (np.inf, 1.0, "inf"),
        (1.0, 1e-300, "1.0000000000000000e+00"),
    ],
)
def test_digits_are_those_the_sd_leaves(value, sd, text):
    assert format_number(value, sd) == text


def some(names=("a", "größe", "日本")):
    columns = {"mean": np.array([1.5, -20.25, 0.0]), "sd": np.array([0.1, 3.0, np.nan]), "P(>0)": [1.0, 0.25, 0.0]}
    return Table("title", names, columns, {"mean": "sd", "sd": "sd", "P(>0)": "probability"}, ("a note",))


def test_rows_are_aligned_whatever_the_alphabet():
    assert repr(some()).splitlines() == [
        "title",
        "           mean     sd   P(>0)",
        "  a       1.500  0.100  >0.999",
        "  größe  -20.25   3.00   0.250",
        "  日本        0         <0.001",
        "  a note",
    ]
    combining = repr(some(("a", "gro\u0308ße", "c"))).splitlines()
    assert combining[3].replace("o\u0308", "ö") == "  größe  -20.25   3.00   0.250"


def test_notebooks_get_the_same_cells_and_nothing_that_is_markup():
    page = Table("<b>", ("x<1",), {"y&z": np.array([1.0])}, below=some())._repr_html_()
    for part in ("&lt;b&gt;", "x&lt;1", "y&amp;z", "<td>-20.25</td>", "<p>a note</p>"):
        assert part in page
    assert page.count("<table>") == page.count("</table>") == 2


def test_frames_have_all_digits():
    frame = some().to_frame()
    assert (list(frame.columns), list(frame.index)) == (["mean", "sd", "P(>0)"], ["a", "größe", "日本"])
    assert frame.loc["größe"].tolist() == [-20.25, 3.0, 0.25]
    assert np.isnan(frame.loc["日本", "sd"])


def test_frames_need_pandas(monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ImportError, match="pip install pandas"):
        some().to_frame()


def test_long_tables_are_cut_in_the_middle():
    n = 1000
    lines = repr(Table("many", tuple(map(str, range(n))), {"x": np.arange(n)})).splitlines()
    assert (len(lines), lines[32].strip()) == (63, "... 940 rows more ...")
    assert lines[-1].split() == ["999", "999"]


def test_intervals_and_signs_are_those_of_the_distributions():
    mean, sd = np.array([1.0, -2.0]), np.array([0.5, 3.0])
    reference = summary.make_gaussian_marginals(("a", "b"), mean, sd)
    truth = stats.norm(mean, sd)
    np.testing.assert_allclose(reference.interval(0.9), np.transpose(truth.interval(0.9)), rtol=SOLVES)
    np.testing.assert_allclose(reference.positive, truth.sf(0), rtol=SOLVES)
    sure = summary.make_gaussian_marginals(("a", "b", "c"), np.array([1.0, 0.0, -1.0]), np.zeros(3))
    assert sure.positive.tolist() == [1.0, 0.0, 0.0]
    for level in (0.0, 1.0, 95, "0.9", np.nan):
        with pytest.raises((ValueError, TypeError), match="level"):
            reference.interval(level)


def test_columns_are_called_after_the_level():
    table = summary.tabulate_marginals("t", summary.make_gaussian_marginals(("a",), np.ones(1), np.ones(1)), 0.99)
    assert list(table.columns) == ["mean", "sd", "0.5%", "99.5%", "P(>0)"]


def test_tables_of_the_same_numbers_are_equal():
    table = Table("t", ("a", "b"), {"x": np.array([1.0, 2.0])})
    assert table == pickle.loads(pickle.dumps(table))
    assert table != Table("t", ("a", "b"), {"x": np.array([1.0, 3.0])})
    assert table != Table("t", ("a", "b"), {"y": np.array([1.0, 2.0])})
