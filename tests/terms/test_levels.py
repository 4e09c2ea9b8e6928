"""Labels of groups as numbers of levels: every kind of column, combinations, new levels, and what is refused."""

import numpy as np
import pytest
from support.tolerances import AT_REST

import cavity
from cavity.models.mixed.group_columns import take_group_columns
from cavity.terms.levels import NEW_LEVEL, Levels

pd = pytest.importorskip("pandas")
pl = pytest.importorskip("polars")
pa = pytest.importorskip("pyarrow")

TEXT = ["b", "a", "b", "c", "a"]
COLUMNS = {
    "list": TEXT,
    "tuple": tuple(TEXT),
    "array": np.array(TEXT),
    "objects": np.array(TEXT, dtype=object),
    "pandas": pd.Series(TEXT, index=[7, 7, 3, 1, 0]),
    "categories that no row has": pd.Categorical(TEXT, categories=["a", "b", "c", "d"]),
    "polars": pl.Series(TEXT),
    "polars categories": pl.Series(TEXT, dtype=pl.Categorical),
    "arrow": pa.chunked_array([TEXT[:2], TEXT[2:]]),
    "dictionary": pa.array(TEXT).dictionary_encode(),
}


@pytest.mark.parametrize("kind", COLUMNS)
def test_texts_are_levels_in_order(kind):
    levels, codes = Levels.of(("g",), {"g": COLUMNS[kind]})
    assert (levels.labels, levels.names, len(levels)) == ((("a", "b", "c"),), ["a", "b", "c"], 3)
    assert codes.tolist() == [1, 0, 1, 2, 0]
    assert levels.codes({"g": COLUMNS[kind]}).tolist() == codes.tolist()
    assert levels.codes({"g": ["c", "e"]}).tolist() == [2, NEW_LEVEL]


@pytest.mark.parametrize("dtype", [np.int64, np.uint8, np.float64, np.float32])
def test_numbers_are_levels_whatever_their_type(dtype):
    levels, codes = Levels.of(("g",), {"g": np.array([10, 9, 100, 9], dtype=dtype)})
    assert levels.labels == ((9, 10, 100),)
    assert codes.tolist() == [1, 0, 2, 0]
    assert levels.codes({"g": [9, 100.0, 11]}).tolist() == [0, 2, NEW_LEVEL]
    assert levels.names == ["9", "10", "100"]


def test_categories_keep_their_order():
    column = pd.Categorical(["low", "high", "low"], categories=["low", "mid", "high"])
    levels, codes = Levels.of(("g",), {"g": column})
    assert (levels.names, codes.tolist()) == (["low", "high"], [0, 1, 0])


def test_combinations_are_those_that_rows_have():
    table = {"school": ["x", "x", "y", "y", "x"], "class": [1, 2, 1, 1, 1]}
    levels, codes = Levels.of(("school", "class"), table)
    assert levels.group == "school:class"
    assert levels.names == ["x:1", "x:2", "y:1"]
    assert codes.tolist() == [0, 1, 2, 2, 0]
    assert levels.codes({"school": ["y", "y", "z", "x"], "class": [1, 2, 1, 2]}).tolist() == [
        2,
        NEW_LEVEL,
        NEW_LEVEL,
        1,
    ]
    assert levels.number(("x", 2)) == 1
    for level in (("y", 2), ("x",), "x:2"):
        with pytest.raises(ValueError, match="no level .* of 'school:class'; there is 'x:1', 'x:2', 'y:1'"):
            levels.number(level)


def test_combinations_are_not_confused_by_their_names():
    levels, codes = Levels.of(("g", "h"), {"g": ["a:b", "a"], "h": ["c", "b:c"]})
    assert levels.names == ["a:b:c", "a:b:c"]
    assert codes.tolist() == [1, 0]


def test_no_new_rows():
    levels, _ = Levels.of(("g",), {"g": TEXT})
    for nothing in ([], np.zeros(0), pd.Series([], dtype=object)):
        assert levels.codes({"g": nothing}).shape == (0,)


@pytest.mark.parametrize(
    ("column", "error", "message"),
    [
        ([1.0, np.nan, 2.0], ValueError, r"groups\['g'\] must have a value in every row, got nan in row 1"),
        (["a", "b", None], ValueError, r"groups\['g'\] must hold a label in every row, got None in row 2"),
        (pd.Series(["a", pd.NA], dtype="string"), ValueError, "must hold a label in every row, got <NA> in row 1"),
        (pl.Series([1, None]), ValueError, "must have a value in every row, got nan in row 1"),
        (pa.array([None, "a"]), ValueError, "must hold a label in every row, got None in row 0"),
        (np.ma.array([1, 2], mask=[0, 1]), TypeError, r"groups\['g'\] must not be a masked array"),
        ([[1, 2], [3, 4]], ValueError, r"groups\['g'\] must hold one label a row, got shape \(2, 2\)"),
        (np.array(["2020-01-01"], dtype="M8[D]"), TypeError, r"groups\['g'\] must hold texts or numbers"),
        (np.array([{}, {}], dtype=object), TypeError, r"groups\['g'\] must hold one label a row, got \{\} in row 0"),
        (np.array(["a", 1], dtype=object), TypeError, r"groups\['g'\] must hold labels that can be sorted"),
    ],
)
def test_labels_that_are_none(column, error, message):
    with pytest.raises(error, match=message):
        Levels.of(("g",), {"g": column})


@pytest.mark.parametrize(
    "table",
    [{"g": TEXT, "h": 0}, pd.DataFrame({"h": TEXT, "g": TEXT}), pl.DataFrame({"g": TEXT}), pa.table({"g": TEXT}), TEXT],
)
def test_columns_by_name(table):
    assert [str(column) for column in take_group_columns(table, ["g", "g"], 5)["g"]] == TEXT
    assert take_group_columns(None, [], 5) == {}


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        ({"h": TEXT}, "groups must have the columns of the random effects: 'g' missing; there is 'h'"),
        (pd.DataFrame({"h": TEXT}), "'g' missing; there is 'h'"),
        ({"g": TEXT[:3]}, r"groups\['g'\] must have one label per row of X, that is 5, got 3 of them"),
        ({"g": "herd"}, r"groups\['g'\] must have one label per row of X, that is 5, got 'herd'"),
        (None, r"groups\['g'\] must have one label per row of X, that is 5, got None"),
    ],
)
def test_columns_that_do_not_fit(groups, message):
    with pytest.raises(ValueError, match=message):
        take_group_columns(groups, ["g"], 5)
    with pytest.raises(ValueError, match="groups must have columns with the names 'g', 'h', got list"):
        take_group_columns(TEXT, ["g", "h"], 5)


@pytest.mark.parametrize("by_formula", [True, False])
def test_predictions_without_groups(by_formula):
    """Effects at zero are predictions of the fixed effects; new levels add the prior variance of the effects."""
    table, _ = cavity.data.table("sleepstudy", as_frame=True)
    table = table.assign(one=1.0)
    if by_formula:
        posterior = cavity.GLM("Reaction ~ 0 + one + Days + (Days | Subject)").fit(table)
        rows = [table.drop(columns="Subject")[:5], table[:5]]
    else:
        effects = cavity.RandomEffects("Subject", "Days")
        columns = ["one", "Days"]
        posterior = cavity.MixedGLM([effects], "gaussian").fit(
            table[columns], table["Reaction"], groups=table[["Subject"]]
        )
        rows = [table[columns][:5]]
    X = table[["one", "Days"]][:5].to_numpy()
    mean, variance = X @ posterior.mean, np.einsum("ij,jk,ik->i", X, posterior.covariance, X)
    (covariance,) = posterior.model.effect_covariances.values()
    more = np.einsum("ij,jk,ik->i", X, covariance, X)
    for frame in rows:
        moments = posterior.predict(frame, levels="zero")
        np.testing.assert_allclose(moments, [mean, variance], rtol=AT_REST)
        np.testing.assert_array_equal(posterior.expected(frame, levels="zero"), moments[0])
        assert posterior.quantile(frame, [0.1, 0.9], levels="zero").shape == (5, 2)
        assert posterior.sample_y(frame, 3, 0, levels="zero").shape == (3, 5)
        np.testing.assert_array_equal(posterior.predict(posterior.rows(frame, levels="zero")), moments)
    np.testing.assert_allclose(posterior.predict(rows[0], levels="new"), [mean, variance + more], rtol=AT_REST)
    with pytest.raises(ValueError, match="Subject"):
        posterior.predict(rows[0])
    with pytest.raises(ValueError, match="levels must be one of 'known', 'new', 'zero', got 'all'"):
        posterior.predict(rows[0], levels="all")


def test_rows_with_missing_values_and_without_groups():
    table, _ = cavity.data.table("sleepstudy", as_frame=True)
    posterior = cavity.GLM("Reaction ~ Days + (1 | Subject)").fit(table)
    rows = table[["Days"]][:3].assign(Days=[0.0, np.nan, 2.0])
    mean, _ = posterior.predict(rows, levels="zero", missing="nan")
    np.testing.assert_array_equal(np.isnan(mean), [False, True, False])
    np.testing.assert_allclose(mean[[0, 2]], posterior.mean[0] + posterior.mean[1] * np.array([0.0, 2.0]), rtol=AT_REST)


@pytest.mark.parametrize("term", ["s(x)", "matern32(x)", "rw1(x)"])
def test_predictions_for_no_rows(term):
    table = {"x": np.arange(12.0), "y": np.sin(np.arange(12.0))}
    posterior = cavity.MixedGLM(f"y ~ {term}", cavity.likelihoods.Gaussian(0.1)).fit(table)
    mean, variance = posterior.predict({"x": np.zeros(0)})
    assert mean.shape == variance.shape == (0,)
