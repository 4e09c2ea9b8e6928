"""Labels of any kind as numbers of classes: what stands for what, what is refused and how it is said."""

import numpy as np
import pytest

import cavity
from cavity.base.labels import encode_labels, encode_new_labels, infer_target_kind
from cavity.likelihoods import Gaussian, Likelihood, Logit, OrderedProbit, Probit, Step

pd = pytest.importorskip("pandas")
pl = pytest.importorskip("polars")
pa = pytest.importorskip("pyarrow")


class Own(Likelihood):
    """A binary likelihood of the user's own, of labels 0 and 1."""

    n_classes = 2

    def log_p(self, y, f):
        return -np.logaddexp(0.0, (1.0 - 2.0 * y) * f)


TEXT = ["yes", "no", "no", "yes"]
BINARY = {
    "list": TEXT,
    "array": np.array(TEXT),
    "objects": np.array(TEXT, dtype=object),
    "pandas": pd.Series(TEXT, index=[7, 7, 3, 1]),
    "nullable": pd.Series(TEXT, dtype="string"),
    "categorical": pd.Series(TEXT, dtype="category"),
    "no series": pd.Categorical(TEXT),
    "unused categories": pd.Categorical(TEXT, categories=["dunno", "no", "yes"]),
    "pandas arrow": pd.Series(TEXT, dtype=pd.ArrowDtype(pa.string())),
    "polars": pl.Series(TEXT),
    "polars categorical": pl.Series(TEXT, dtype=pl.Categorical),
    "polars enum": pl.Series(TEXT, dtype=pl.Enum(["no", "yes"])),
    "arrow": pa.array(TEXT),
    "dictionary": pa.array(TEXT).dictionary_encode(),
    "chunks": pa.chunked_array(
        [pa.array(["yes", "no"]).dictionary_encode(), pa.array(["no", "yes"]).dictionary_encode()]
    ),
}


@pytest.mark.parametrize("kind", BINARY)
def test_texts_and_categories_are_two_classes(kind):
    y, classes = encode_labels(BINARY[kind], Probit())
    assert y.tolist() == [1.0, 0.0, 0.0, 1.0]
    assert classes == ("no", "yes")
    assert encode_new_labels(BINARY[kind], Probit(), classes).tolist() == y.tolist()
    assert infer_target_kind(BINARY[kind]) == "binary"


@pytest.mark.parametrize("likelihood", [Probit(), Logit(), Step(), Own()], ids=lambda each: type(each).__name__)
def test_the_order_of_classes(likelihood):
    for y, classes, codes in (
        ([2, 5, 2], (2, 5), [0, 1, 0]),
        ([-1.5, 0.25, 0.25], (-1.5, 0.25), [0, 1, 1]),
        (np.array([10, 9, 10], dtype=np.uint8), (9, 10), [1, 0, 1]),
        (pd.Series([1, 2, 1], dtype="Int64"), (1, 2), [0, 1, 0]),
        (pd.Categorical(["lo", "hi", "lo"], categories=["lo", "hi"]), ("lo", "hi"), [0, 1, 0]),
        (pd.Categorical(["lo", "lo"], categories=["lo", "hi"]), ("lo", "hi"), [0, 0]),
        (pa.array(["b", "a"]).dictionary_encode(), ("a", "b"), [1, 0]),
    ):
        result, stored = encode_labels(y, likelihood)
        assert (result.tolist(), stored) == (codes, classes)
        assert all(type(item) in (int, float, str) for item in stored)


def test_codes_stay_what_they_are():
    for y in (
        [0, 1, 1],
        [-1, 1, 1],
        [True, False],
        [True, True],
        [1, 1],
        np.array([0.0, 1.0]),
        pd.Series([True, False], dtype="boolean"),
        pd.Series([True, False], dtype=object),
    ):
        result, classes = encode_labels(y, Probit())
        assert classes == ((False, True) if isinstance(y[0], bool | np.bool) else None)
        np.testing.assert_array_equal(result, np.asarray(y, dtype=float))
    y = np.array([0.0, 1.0])
    assert encode_labels(y, Probit())[0] is y
    assert encode_labels(y, Gaussian()) == (y, None) or encode_labels(y, Gaussian())[0] is y
    np.testing.assert_array_equal(encode_labels(np.array([True, False], dtype=object), Probit())[0], [1, 0])
    np.testing.assert_array_equal(encode_labels([0, 2, 1], OrderedProbit([0.0, 1.0]))[0], [0, 2, 1])
    np.testing.assert_array_equal(
        encode_new_labels([0, 1], Probit(), ("no", "yes")), [0, 1]
    )  # numbers of known classes


BAD = [
    ([1.0, 2.0, 3.0], "two classes, got 3 different values: 1.0, 2.0, 3.0; counts and real numbers want another"),
    (["a", "b", "c"], "two classes, got 3 different values: 'a', 'b', 'c'"),
    (["a", "a"], "two classes, got 'a' in every row; where later rows hold the other one, give a categorical of both"),
    ([3, 3], "two classes, got 3.* in every row"),
    (["a", None, "b"], "a label in every row, got None in row 1"),
    ([np.nan, 1.0, 3.0], "a label in every row, got nan in row 0"),
    (pd.Series(["a", pd.NA, "b"], dtype="string"), "a label in every row, got <NA> in row 1"),
    (pd.Series([pd.Timestamp(0), pd.NaT]), "a label in every row, got NaT in row 1"),
    (pd.Categorical(["a", None, "b"]), "a label in every row, got nan in row 1"),
    (pl.Series(["a", None, "b"]), "a label in every row, got None in row 1"),
    (["a", 1], "labels that can be sorted, got 'a', 1"),
    ([["a"], ["b"]], r"one label a row, got \['a'\] in row 0"),
]


@pytest.mark.parametrize(("y", "message"), BAD)
def test_what_is_refused(y, message):
    with pytest.raises((ValueError, TypeError), match=f"y must hold {message}"):
        encode_labels(y, Probit())


def test_later_labels_are_those_of_the_fit():
    with pytest.raises(ValueError, match="y must hold the classes 'no', 'yes', got 'maybe' in row 1"):
        encode_new_labels(["no", "maybe"], Probit(), ("no", "yes"))
    with pytest.raises(ValueError, match="y must hold the classes 2, 5, got 1 in row 1"):
        encode_new_labels([2, 1], Probit(), (2, 5))
    with pytest.raises(ValueError, match="numbers of the classes as in the fit, got 'no' in row 0"):
        encode_new_labels(["no", "yes"], Probit(), None)


GRADES = ["lo", "hi", "mid", "lo"]
ORDERED = {
    "pandas": pd.Categorical(GRADES, categories=["lo", "mid", "hi"], ordered=True),
    "unused": pd.Categorical(GRADES, categories=["lo", "mid", "hi", "top"], ordered=True),
    "polars": pl.Series(GRADES, dtype=pl.Enum(["lo", "mid", "hi"])),
    "arrow": pa.DictionaryArray.from_arrays([0, 2, 1, 0], ["lo", "mid", "hi"], ordered=True),
}


@pytest.mark.parametrize("kind", ORDERED)
@pytest.mark.parametrize("likelihood", [OrderedProbit([-1.0, 1.0]), OrderedProbit()], ids=["given", "open"])
def test_ordered_categories(kind, likelihood):
    y, classes = encode_labels(ORDERED[kind], likelihood)
    assert (y.tolist(), classes) == ([0.0, 2.0, 1.0, 0.0], ("lo", "mid", "hi"))
    assert infer_target_kind(ORDERED[kind]) == "ordered"


def test_an_order_is_needed():
    for y in (GRADES, pd.Categorical(GRADES), pl.Series(GRADES, dtype=pl.Categorical)):
        with pytest.raises(ValueError, match="ordered classes, got .*ordered=True.*Enum"):
            encode_labels(y, OrderedProbit([-1.0, 1.0]))
        assert infer_target_kind(y) == "classes"
    assert encode_labels(ORDERED["unused"], OrderedProbit([-1.0, 0.0, 1.0]))[1] == ("lo", "mid", "hi", "top")
    with pytest.raises(ValueError, match="the 5 classes of the likelihood, got 'lo', 'mid', 'hi'"):
        encode_labels(ORDERED["unused"], OrderedProbit([-1.0, 0.0, 1.0, 2.0]))
    with pytest.raises(ValueError, match="two classes or more, got 'lo'"):
        encode_labels(pd.Categorical(["lo"], categories=["lo"], ordered=True), OrderedProbit())


def test_kinds_of_targets():
    for y, kind in (
        ([0.5, 1.5, 2.5], "numbers"),
        ([1.0, 1.0], "numbers"),
        ([[1.0, 2.0]], "numbers"),
        ([3, 4, 4], "binary"),
        ([True, False], "binary"),
        ([True, True], "binary"),
        (pd.Series([False, False], dtype="boolean"), "binary"),
        (pd.Categorical(["a"], categories=["a", "b"]), "binary"),
        (pd.Series([1.5, 2.5, None], dtype="Float64"), "numbers"),
    ):
        assert infer_target_kind(y) == kind


def test_models_speak_in_labels(tmp_path):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 2))
    label = X[:, 0] + rng.normal(size=40) > 0
    text = np.where(label, "ill", "healthy")
    RBF = cavity.covariances.RBF()
    for model, options in (
        (cavity.GLM(Logit(), prior_variance=1.0, intercept=False), {}),
        (cavity.GLM(Own(), prior_variance=1.0, intercept=False), {}),
        (cavity.LogisticRegression(intercept=False), {}),
        (cavity.GaussianProcess(RBF, Probit()), {"learn": False}),
        (cavity.StreamingGP(RBF, Probit()), {"learn": False}),
    ):
        posterior, plain = model.fit(X, text, **options), model.fit(X, label, **options)
        assert (posterior.classes, plain.classes) == (("healthy", "ill"), (False, True))
        np.testing.assert_array_equal(posterior.predict_proba(X), plain.predict_proba(X))
        if posterior.kind != "logistic_regression":
            np.testing.assert_array_equal(posterior.log_density(X, text), plain.log_density(X, label))
            with pytest.raises(ValueError, match="y must hold the classes 'healthy', 'ill', got 'dead' in row 0"):
                posterior.update(X[:1], ["dead"])
            assert posterior.update(X[:3], text[:3]).classes == ("healthy", "ill")
        if not (posterior.kind == "glm" and isinstance(model.likelihood, Own)):
            posterior.save(tmp_path / "p.npz")
            assert cavity.load(tmp_path / "p.npz").classes == ("healthy", "ill")
    draws = plain.sample_y(X, 2, 0)
    assert draws.dtype == bool
    assert plain.update(X[:2], [0, 1]).classes == (False, True)
    posterior = cavity.GLM(Probit(), prior_variance=1.0, intercept=False).fit(
        X, np.where(label, np.datetime64("2020-01-02"), np.datetime64("2020-01-01"))
    )
    with pytest.raises(TypeError, match="classes must be texts or numbers to be saved, got datetime.date"):
        posterior.save(tmp_path / "p.npz")


def test_probabilities_under_the_names_of_classes():
    frame = pd.DataFrame({"x": [-1.0, 0.5, 1.0, -0.5]}, index=[7, 7, 3, 1])
    truth = [False, True, True, False]
    for y, columns in ((TEXT, ["no", "yes"]), ([0, 1, 1, 0], [0, 1]), (truth, [False, True])):
        for model in (
            cavity.GLM(Probit(), prior_variance=1.0, intercept=False),
            cavity.LogisticRegression(intercept=False),
        ):
            posterior = model.fit(frame, y)
            prediction = posterior.predict_proba(frame, as_frame=True)
            assert (prediction.columns.tolist(), prediction.index.tolist()) == (columns, [7, 7, 3, 1])
            assert [isinstance(name, bool) for name in posterior.classes or (0, 1)] == [y is truth] * 2
            np.testing.assert_array_equal(prediction.to_numpy(), posterior.predict_proba(frame))
            assert posterior.predict_proba(frame.to_numpy(), as_frame=True).index.tolist() == [0, 1, 2, 3]


def test_names_are_shown():
    X = np.linspace(-1.0, 1.0, 8)[:, None]
    frame, text = pd.DataFrame({"dose": X[:, 0]}), ["no"] * 3 + ["yes", "no"] + ["yes"] * 3
    message = "'no', 'yes'; larger values favour the last"
    RBF = cavity.covariances.RBF()
    for posterior in (
        cavity.GLM(Probit(), prior_variance=1.0, intercept=True).fit(frame, text),
        cavity.LogisticRegression(intercept=False).fit(frame, text),
        cavity.GaussianProcess(RBF, Probit()).fit(frame, text, learn=False),
        cavity.StreamingGP(RBF, Probit()).fit(frame, text, learn=False),
    ):
        assert message in repr(posterior)
        assert "'dose'" in repr(posterior)
    assert "weights of    'intercept', 'dose'" in repr(cavity.GLM(Probit(), intercept=True).fit(frame, text))
    assert "larger values favour 'yes'" in repr(cavity.LogisticRegression(intercept=False).fit(X, text).summary())
    assert "columns of X  'dose'" in repr(cavity.GaussianMixture(1).fit(frame))
    assert "columns of X  'dose'" in repr(cavity.Clutter().fit(frame))
    assert "classes" not in repr(cavity.LogisticRegression(intercept=False).fit(X, X[:, 0] > 0))
