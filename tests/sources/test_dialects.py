"""What separates columns and decimals: found where there is one way to read a table, refused where there are two."""

import pytest

from cavity.sources.dialects import Dialect, detect_dialect

CLEAR = {
    "a,b\n1,2\n": (",", "."),
    "a;b\n1;2\n": (";", "."),
    "a;b\n1,5;2\n": (";", ","),
    "1,5;2,5\n3,5;4,5\n": (";", ","),  # no header: three columns would not hold numbers
    "a;b\n1,234;2,34\n": (";", ","),
    "a\tb\n1.5\t2\n": ("\t", "."),
    "a|b\nx, y|2\n": ("|", "."),
    "a b   c\n1  2 3\n": (" ", "."),
    "body mass\n1\n2\n": (",", "."),  # one column
    "name\nAnn Ek\nBo Li\n": (",", "."),
    'a;b\n"1,5";2\n': (";", ","),
    'name,note\nAnn,"x; y"\n': (",", "."),
    "name;full\nx;Ek, Ann\n": (";", "."),
    "a,y\n1,0\n3;5,1\n": (",", "."),  # a typo, told when the table is read
    "x\n1;5\n": (";", "."),  # never one column
}
UNCLEAR = {
    "a;b,c\n1;2,3\n": "columns may be separated by commas or semicolons; give separator=',', for example",
    "a;b\n1.5;2,5\n": r"decimal commas \(2,5\) and decimal points \(1.5\); give decimal=',' or '.'",
    "a;b\n1,234;2,345\n": "1,234 may be a number with a decimal comma, or one with commas between thousands",
    "a;b\n1,234,567;2\n": "1,234,567 may be a number",
}


@pytest.mark.parametrize("text", CLEAR)
def test_one_way_to_read_it(text):
    dialect = detect_dialect("x.csv", text)
    assert (dialect.separator, dialect.decimal) == CLEAR[text]


@pytest.mark.parametrize("text", UNCLEAR)
def test_more_than_one_way(text):
    with pytest.raises(ValueError, match=f"x.csv: .*{UNCLEAR[text]}"):
        detect_dialect("x.csv", text)


def test_what_is_given_is_not_looked_for():
    assert detect_dialect("x", "a;b,c\n1;2,3\n", ",") == Dialect(",", ".", True)
    assert detect_dialect("x", "a;b\n1,234;2,345\n", decimal=",") == Dialect(";", ",")
    assert detect_dialect("x", "x\n1,5\n", decimal=",").decimal == ","
    assert detect_dialect("x", "a;b\n1,234;2\n", decimal=".") == Dialect(";", ".", True)
    assert detect_dialect("x", "a;b\n1,234.5;2\n") == Dialect(";", ".", True)
    assert detect_dialect("x", "a;b\n1;2\n") == Dialect(";", ".", False)
    for bad in (dict(separator=";;"), dict(separator='"'), dict(decimal=";"), dict(separator=",", decimal=",")):
        with pytest.raises(ValueError, match="must be"):
            detect_dialect("x", "a\n1\n", **bad)


def test_numbers():
    point, comma, thousands = Dialect(","), Dialect(";", ","), Dialect(",", ".", True)
    assert [point.number(cell) for cell in ("1.5", "-1e3", "1,5", "1_0", "x", "")] == [1.5, -1000.0, *[None] * 4]
    assert [comma.number(cell) for cell in ("1,5", "1.5", "2", "1.234,5")] == [1.5, None, 2.0, None]
    cells = "1,234", "-12,345,678.5", "1,2345", "0,123", "1234,567", "1,234,5", "1.5"
    assert [thousands.number(cell) for cell in cells] == [1234.0, -12345678.5, *[None] * 4, 1.5]
