"""Formulas: the columns, terms and rows they stand for, the same for new rows and from files, and what is refused."""

import sys
from dataclasses import replace

import numpy as np
import pytest
from support.tolerances import ROUNDING

import cavity
from cavity.models.formula.columns import FormulaColumns
from cavity.models.formula.design import Coding, build_design
from cavity.models.formula.notation import FormulaParts
from cavity.models.mixed.row_readers import FormulaRowReader
from cavity.models.mixed.terms import RandomEffects, make_terms, make_terms_of_blocks
from cavity.terms.levels import NEW_LEVEL

pytest.importorskip("formulae")
pd = pytest.importorskip("pandas")
pl = pytest.importorskip("polars")
pa = pytest.importorskip("pyarrow")

RNG = np.random.default_rng(0)
N = 24
COLUMNS = {
    "y": RNG.normal(size=N).round(3).tolist(),
    "n": (RNG.integers(1, 5, N) + 9).tolist(),
    "k": RNG.integers(0, 9, N).tolist(),
    "ok": ["yes" if u else "no" for u in RNG.random(N) < 0.5],
    "x": RNG.normal(size=N).round(3).tolist(),
    "z": RNG.integers(1, 4, N).tolist(),
    "f": [str(item) for item in RNG.permutation(["a", "b", "c"] * (N // 3))],
    "g": [f"g{i // 6}" for i in range(N)],
    "h": [i // 2 % 3 + 1 for i in range(N)],
    "one": [2.5] * N,
    "odd name": RNG.normal(size=N).tolist(),
}
FRAME = pd.DataFrame(COLUMNS)
x, z, f = (FRAME[name].to_numpy() for name in "xzf")
ONES = np.ones(N)


def design(formula, frame, **options):
    """The design of a formula, without rows of files."""
    return build_design(FormulaParts.of(formula), FormulaColumns(frame), **options)


def terms_by_formula(formula, frame=FRAME):
    """The terms of random effects of a formula."""
    one = design(formula, frame)
    return make_terms_of_blocks([(group, names, None, Z) for group, names, Z in one.blocks], one.groups)


def read(one, frame, levels="known"):
    """X, offset and (codes, Z) of each term of new rows, by the design of a fit."""
    terms = make_terms_of_blocks([(group, names, None, Z) for group, names, Z in one.blocks], one.groups)
    reader = FormulaRowReader(tuple(terms), one.names, len(one.names), coding=one.coding)
    dataset, values, _ = reader.read(frame, None, levels, {"offset": None})
    return dataset.X, dataset.column("offset"), values


def dummies(*labels):
    return [(f == label).astype(float) for label in labels]


@pytest.mark.parametrize(
    "frame", [FRAME, COLUMNS, pl.DataFrame(COLUMNS), pa.table(COLUMNS)], ids=lambda a: type(a).__name__
)
def test_frames_of_any_kind(frame):
    one = design("y ~ x * f + (1 + x | g) + (1 | h)", frame)
    np.testing.assert_array_equal(one.y, COLUMNS["y"])
    assert one.names == ("intercept", "x", "f[b]", "f[c]", "x:f[b]", "x:f[c]")
    b, c = dummies("b", "c")
    np.testing.assert_array_equal(one.X, np.column_stack([ONES, x, b, c, x * b, x * c]))
    assert one.offset is None
    expected = make_terms([RandomEffects("g", 1), "h"], one.X, one.names, COLUMNS)
    terms = terms_by_formula("y ~ x * f + (1 + x | g) + (1 | h)", frame)
    assert [value.name for value in terms] == ["1 + x | g", "h"]
    for term, other in zip(terms, expected, strict=True):
        assert (term.name, term.columns, term.levels.labels) == (other.name, other.columns, other.levels.labels)
        np.testing.assert_array_equal(term.codes, other.codes)
        np.testing.assert_array_equal(term.Z, other.Z)


@pytest.mark.parametrize(
    ("text", "names", "columns"),
    [
        ("1", ("intercept",), [ONES]),
        ("0", (), []),
        ("x", ("intercept", "x"), [ONES, x]),
        ("x - 1", ("x",), [x]),
        ("0 + f", ("f[a]", "f[b]", "f[c]"), dummies("a", "b", "c")),
        ("0 + x:f", ("x:f[a]", "x:f[b]", "x:f[c]"), [x * d for d in dummies("a", "b", "c")]),
        ("C(z)", ("intercept", "z[2]", "z[3]"), [ONES, z == 2, z == 3]),
        ("log(n) + np.exp(x)", ("intercept", "log(n)", "np.exp(x)"), [ONES, np.log(FRAME["n"]), np.exp(x)]),
        ("I(x**2) + {x + z}", ("intercept", "I(x ** 2)", "I(x + z)"), [ONES, x**2, x + z]),
        ("`odd name`", ("intercept", "odd name"), [ONES, FRAME["odd name"]]),
        ("center(x)", ("intercept", "center(x)"), [ONES, x - x.mean()]),
    ],
)
def test_fixed_effects(text, names, columns):
    one = design(f"y ~ {text} + (1 | g)", FRAME)
    assert one.names == names
    assert one.X.shape == (N, len(columns))
    np.testing.assert_allclose(one.X.T, np.reshape(columns, (-1, N)), rtol=ROUNDING)


@pytest.mark.parametrize(
    ("text", "names", "columns"),
    [
        ("(1 | g)", ["g"], [[ONES]]),
        ("(x | g)", ["1 + x | g"], [[ONES, x]]),
        ("(0 + x | g)", ["x | g"], [[x]]),
        ("(x || g)", ["g", "x | g"], [[ONES], [x]]),
        ("(0 + x + z || g)", ["x | g", "z | g"], [[x], [z]]),
        ("(1 | g) + (0 + x | g)", ["g", "x | g"], [[ONES], [x]]),
        ("(x * z || g)", ["g", "x | g", "z | g", "x:z | g"], [[ONES], [x], [z], [x * z]]),
        ("(f | g)", ["1 + f[b] + f[c] | g"], [[ONES, *dummies("b", "c")]]),
        ("(0 + f | g)", ["f[a] + f[b] + f[c] | g"], [dummies("a", "b", "c")]),
        ("(f || g)", ["g", "f[a] + f[b] + f[c] | g"], [[ONES], dummies("a", "b", "c")]),
        ("(1 | g/h)", ["g", "g:h"], [[ONES], [ONES]]),
        ("(1 | g/h/f)", ["g", "g:h", "g:h:f"], [[ONES]] * 3),
        ("(0 + x | h:g)", ["x | h:g"], [[x]]),
        ("(`odd name` || g)", ["g", "odd name | g"], [[ONES], [FRAME["odd name"]]]),
        ("(1 | g) + (log(n) | h)", ["g", "1 + log(n) | h"], [[ONES], [ONES, np.log(FRAME["n"])]]),
    ],
)
def test_random_effects(text, names, columns):
    terms = terms_by_formula(f"y ~ z + {text}")
    assert [value.name for value in terms] == names
    for term, expected in zip(terms, columns, strict=True):
        np.testing.assert_array_equal(term.Z, np.column_stack(expected))
    groups = [name.split(" | ")[-1] for name in names]
    for term, group in zip(terms, groups, strict=True):
        labels = [
            ":".join(map(str, entry)) for entry in zip(*(COLUMNS[name] for name in group.split(":")), strict=True)
        ]
        assert [term.levels.names[code] for code in term.codes] == labels


@pytest.mark.parametrize("expression", ["f", "0 + f", "x", "0 + x"])
def test_columns_of_random_effects_are_those_of_formulae(expression):
    """Which gives intercept and slopes as terms of their own."""
    import formulae

    (term,) = terms_by_formula(f"y ~ 1 + ({expression} | g)")
    full = np.zeros((N, *term.shape))
    full[np.arange(N), term.codes] = term.Z
    theirs = formulae.design_matrices(f"y ~ 1 + ({expression} | g)", FRAME).group
    blocks = [theirs[name].toarray().reshape(N, len(term.levels), -1) for name in theirs.terms]
    np.testing.assert_array_equal(full, np.concatenate(blocks, axis=2))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ok", FRAME["ok"]),
        ("`odd name`", FRAME["odd name"]),
        ("log(n)", np.log(FRAME["n"])),
        ("x > 0", x > 0),
        ("p(k, n)", FRAME[["k", "n"]]),
        ("prop(k, 9)", np.column_stack([FRAME["k"], 9 * ONES])),
        ("proportion(k, k + n)", np.column_stack([FRAME["k"], FRAME["k"] + FRAME["n"]])),
        ("cbind(k, n - k)", FRAME[["k", "n"]]),
    ],
)
def test_observations(text, expected):
    one = design(f"{text} ~ x + (1 | g)", FRAME)
    np.testing.assert_array_equal(one.y, expected)
    np.testing.assert_array_equal(one.coding.observations(FormulaColumns(FRAME[:5])), expected[:5])


def test_a_number_is_added_to_the_offsets_of_a_formula():
    frame = FRAME.assign(k=FRAME["k"] + 1)
    posterior = cavity.GLM("k ~ x + offset(log(n))", "poisson").fit(frame)
    np.testing.assert_allclose(
        posterior.predict(frame, offset=0.5)[0], posterior.predict(frame)[0] + 0.5, rtol=ROUNDING
    )


def test_offsets_are_added_up():
    one = design("k ~ offset(n) + x + offset(z) + (1 | g)", FRAME)
    np.testing.assert_array_equal(one.offset, FRAME["n"] + z)
    assert one.names == ("intercept", "x")
    np.testing.assert_allclose(design("k ~ 0 + offset(2) + (1 | g)", FRAME).offset, 2 * ONES)


FORMULAS = [
    "y ~ x * f + (f | g) + (1 | g:h) + offset(log(n))",
    "y ~ C(z) + C(z):x + (x || g/h)",
    "y ~ scale(x) + bs(n, df=4) + (center(x) | g)",
    "y ~ C(x > 0) + f + (1 | h)",
    "y ~ 1 + (1 | g)",
    "y ~ f",
]


@pytest.mark.parametrize("formula", FORMULAS)
def test_new_rows_are_coded_as_those_of_the_fit(formula):
    one, terms = design(formula, FRAME), terms_by_formula(formula)
    coding = one.coding
    stored = replace(one, coding=Coding(coding.formula, coding.numbers, coding.codes, coding.labels))
    for rows in (slice(None), [5], [23, 2, 2, 7]):
        new = FRAME.iloc[rows].reset_index(drop=True)
        X, offset, parts = read(stored, new)
        np.testing.assert_array_equal(X, one.X[rows])
        assert (offset is None) == (one.offset is None)
        if offset is not None:
            np.testing.assert_array_equal(offset, one.offset[rows])
        for (codes, Z), term in zip(parts, terms, strict=True):
            np.testing.assert_array_equal(codes, term.codes[rows])
            np.testing.assert_array_equal(Z, term.Z[rows])


def test_what_is_kept_of_the_rows_is_little_where_it_can_be():
    stored = design("y ~ x * f + (1 | g)", pd.concat([FRAME] * 50, ignore_index=True)).coding
    assert len(stored.numbers["x"]) == len(stored.codes["f"]) <= 4
    assert stored.labels == {"f": ("a", "b", "c")}
    assert len(design("y ~ scale(x) + (1 | g)", FRAME).coding.numbers["x"]) == N


@pytest.mark.parametrize("column", ["C(f)", "f", "x * C(f)", "C(z) + C(f)", "C(f, Treatment('b'))"])
def test_sorted_rows_whose_first_hundreds_are_of_one_level_have_the_columns_of_all(column):
    long = pd.concat([FRAME] * 400, ignore_index=True).sort_values(["f", "z"], ignore_index=True)
    order = np.random.default_rng(1).permutation(len(long))
    in_order, shuffled = (design(f"y ~ {column}", frame) for frame in (long, long.iloc[order]))
    assert in_order.names == shuffled.names
    np.testing.assert_array_equal(in_order.X[order], shuffled.X)


def test_categories_have_the_order_of_the_column():
    frame = FRAME.assign(f=pd.Categorical(FRAME["f"], categories=["c", "d", "a", "b"]))
    one = design("y ~ f + (1 | g)", frame)
    assert one.names == ("intercept", "f[a]", "f[b]")
    X, _, _ = read(one, FRAME)
    np.testing.assert_array_equal(X, one.X)


def test_base_levels_may_first_be_in_late_rows():
    frame = pd.DataFrame({"y": RNG.normal(size=300), "c": ["a"] * 150 + ["b"] * 150, "k": [1] * 150 + [2] * 150})
    for column, base, name in [("c", '"b"', "c[a]"), ("k", "2", "k[1]")]:
        design = build_design(FormulaParts.of(f"y ~ C({column}, Treatment({base}))"), FormulaColumns(frame))
        assert design.names == ("intercept", name)
        np.testing.assert_array_equal(design.X[:, 1], np.arange(300) < 150)


def test_new_levels_of_groups_and_unknown_categories():
    one = design("y ~ f + C(z) + (1 | g)", FRAME)
    new = FRAME[:3].assign(g=["g0", "g9", "g1"])
    with pytest.raises(ValueError, match="groups must have levels of the fit, got 'g9' of 'g' in row 1; levels='new'"):
        read(one, new)
    assert read(one, new, "new")[2][0][0].tolist() == [0, NEW_LEVEL, 1]
    message = "data must have categories of the fit, got 'd' in row 2 of 'f'; there is 'a', 'b', 'c'"
    with pytest.raises(ValueError, match=message):
        read(one, FRAME[:3].assign(f=["a", "b", "d"]))
    with pytest.raises(ValueError, match="data does not fit the formula: .*7"):
        read(one, FRAME[:3].assign(z=[1, 7, 2]))
    with pytest.raises(ValueError, match="data must have the columns of the formula: 'f' missing; there is 'y', 'n'"):
        read(one, FRAME.drop(columns="f"))


@pytest.mark.parametrize(
    ("formula", "message"),
    [
        ("y", "'y': it must have observations before a ~, and effects after it; a formula is like 'y ~"),
        ("~ x", "it must have observations before a ~"),
        ("y ~ x ~ z", "it must have observations before a ~"),
        ("y ~ x + (1 | g", r"\(1 \| g': a \) is missing"),
        ("y ~ x + 1 | g)", "there is a \\) too much"),
        ("y ~ x + 1 | g", "'x \\+ 1 \\| g': random effects stand in parentheses of their own"),
        ("y ~ x * (1 | g)", "random effects stand in parentheses of their own"),
        ("y ~ x - (1 | g)", r"'\(1 \| g\)': random effects cannot be subtracted"),
        ("y ~ x + ( | g)", r"'\( \| g\)': random effects are like"),
        ("y ~ x + (1 | )", r"'\(1 \| \)': random effects are like"),
        ("y ~ x + (1 ||| g)", "random effects are like"),
        ("y ~ x + (1 | C(g))", r"'\(1 \| C\(g\)\)': groups are columns, g, or combinations of them"),
        ("y ~ x + (1 | g + h)", "groups are columns"),
        ("y ~ x + (0 | g)", r"'\(0 \| g\)': random effects are an intercept, or coefficients of columns"),
        ("y ~ x + (offset(x) | g)", "random effects are an intercept, or coefficients of columns"),
        ("y ~ x z + (1 | g)", "'x z': it goes on after its end, at 'z'"),
        ("y ~ x + 3 + (1 | g)", "numbers other than 0 and 1 are no effects, got 3"),
        ("y ~ x % z + (1 | g)", "part that is not understood, 'x % z"),
        ("y ~ x $ z", "Unexpected character: \\$"),
        ("y ~ wave(x) + (1 | g)", "there is no function 'wave', but B, C, I, S, Sum, T"),
        ("y ~ t2(x, z)", r"there is no function 't2': te\(x, z\) is a smooth function of two variables"),
        ("y ~ f:s(x)", r"'f:s\(x\)': s must stand alone between plus signs; there is s\(x\), .* s\(x, by=z\)"),
        ("y ~ x > z", "part that is not understood, 'x > z'"),
        ("y ~ x - f:x**f", "not understood"),
        ("p(k) ~ x", r"'p\(k\)': there are two columns in p, got 1"),
        ("C(f) ~ x", r"'C\(f\)': observations are one column: write y for a column of labels, y == 'b' for one"),
        ("f['b'] ~ x", r"f\['b'\]\": observations are one column"),
        ("poly(x, 2) ~ z", "observations are one column"),
        ("y ~ log(f)", r"'log\(f\)'"),
        ("y ~ offset(f)", "can only be used with numeric variables"),
    ],
)
def test_formulas_that_are_not_understood(formula, message):
    with pytest.raises(ValueError, match=message) as caught:
        design(formula, FRAME)
    assert "formula has a part that is not understood" in str(caught.value)


@pytest.mark.parametrize(
    ("formula", "data", "error", "message"),
    [
        (
            "y ~ age + (1 | g)",
            FRAME,
            ValueError,
            "must have the columns of the formula: 'age' missing; there is 'y', 'n'",
        ),
        ("y ~ log(age)", FRAME, ValueError, "'age' missing"),
        ("y ~ x + (1 | herd)", FRAME, ValueError, "'herd' missing"),
        ("y ~ x + (age | g)", FRAME, ValueError, "'age' missing"),
        ("rate ~ x", FRAME, ValueError, "data must have the columns of the formula: 'rate' missing"),
        ("y ~ (one | g)", FRAME, ValueError, "slopes must differ between rows, got 'one', which is 2.5 in every row"),
        (
            "y ~ (1 | g) + (x | g)",
            FRAME,
            ValueError,
            "effects must have each effect once, got an intercept of 'g' twice",
        ),
        ("y ~ x", FRAME.assign(x=[np.nan, *x[1:]]), ValueError, r"data\['x'\] must have a value in every row, got nan"),
        ("y ~ f", FRAME.assign(f=[*f[:-1], None]), ValueError, r"data\['f'\] must hold a label in every row"),
        ("y ~ (1 | g)", FRAME.assign(g=[None, *f[1:]]), ValueError, r"groups\['g'\] must hold a label in every row"),
        ("y ~ log(x)", FRAME.assign(x=[0.0, *abs(x[1:])]), ValueError, r"X must be finite"),
        ("y ~ x", {"y": [1, 2], "x": [1, 2, 3]}, ValueError, "data must have columns of one length"),
        ("y ~ (1 | g)", {"y": [1, 2], "g": [1, 2, 3]}, ValueError, "data must have columns of one length"),
        ("y ~ x", np.ones((3, 2)), TypeError, "data must be a data frame or a dictionary of columns"),
        ("y ~ x", pl.DataFrame(COLUMNS).lazy(), TypeError, "lazy frame"),
        (3, FRAME, TypeError, "formula must be a string, got 3"),
    ],
)
@pytest.mark.filterwarnings("ignore:divide by zero")
def test_data_that_do_not_fit(formula, data, error, message):
    with pytest.raises(error, match=message):
        terms_by_formula(formula, data)


def test_what_to_install(monkeypatch):
    for name in ["formulae", *(module for module in sys.modules if module.startswith("formulae."))]:
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ImportError, match=r"this needs formulae, .*pip install 'cavity\[formula\]'"):
        design("y ~ x + (1 | g)", FRAME)


def test_files_with_columns_of_text_are_read_as_data_frames(tmp_path):
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("formulae")
    rng, path = np.random.default_rng(0), tmp_path / "rows.csv"
    frame = pandas.DataFrame({"g": [*"abc"] * 10, "x": np.arange(30.0)})
    frame["y"] = frame["x"] + frame["g"].map({"a": 0.0, "b": 1.0, "c": -1.0}) + rng.normal(size=30)
    frame["y"] = frame["y"].round(3)  # read as the same number by every parser
    frame.to_csv(path, index=False)
    model = cavity.MixedGLM("y ~ x + (1 | g)")
    expected = model.fit(frame)  # whose numbers are written with all digits
    for table in (path, str(path), cavity.source(path)):
        posterior = model.fit(table)
        np.testing.assert_array_equal(posterior.mean, expected.mean)
        np.testing.assert_array_equal(posterior.predict(table)[0], expected.predict(frame)[0])


def test_expectations_of_new_levels():
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("formulae")
    rng = np.random.default_rng(1)
    frame = pandas.DataFrame({"g": [*"abc"] * 20, "x": rng.normal(size=60)})
    frame["y"] = np.where(rng.random(60) < 0.5, "no", "yes")
    posterior = cavity.MixedGLM("y ~ x + (1 | g)", "probit", effect_covariances={"g": 0.5}).fit(frame)
    new = frame.assign(g="z")
    with pytest.raises(ValueError, match="levels='new'"):
        posterior.predict_proba(new)
    rows = posterior.rows(new, levels="new")
    np.testing.assert_array_equal(posterior.predict_proba(new, levels="new"), posterior.predict_proba(rows))
    numbers = frame.assign(y=frame["x"] + rng.normal(size=60))
    linear = cavity.MixedGLM("y ~ x + (1 | g)", effect_covariances={"g": 0.5}).fit(numbers)
    new = numbers.assign(g="z")
    np.testing.assert_array_equal(linear.expected(new, levels="new"), linear.predict(new, levels="new")[0])


def test_intercept_false_beside_a_formula():
    pandas = pytest.importorskip("pandas")
    rng = np.random.default_rng(1)
    frame = pandas.DataFrame({"a": rng.normal(size=60), "g": np.arange(60) % 5})
    frame["y"] = frame["a"] + rng.normal(size=5)[frame["g"]] + rng.normal(size=60)
    fits = [cavity.MixedGLM("y ~ 0 + a + (1 | g)", intercept=value).fit(frame) for value in (None, False)]
    assert fits[0].log_evidence == fits[1].log_evidence
    with pytest.raises(ValueError, match="intercept must be None where there is a formula: write '0 \\+' in it"):
        cavity.MixedGLM("y ~ a + (1 | g)", intercept=False).fit(frame)
