"""Random effects as terms: which columns and levels, names, new rows, and what is refused."""

import numpy as np
import pytest

import cavity
from cavity.models.mixed.terms import RandomEffects, make_terms, read_new_terms
from cavity.terms.levels import NEW_LEVEL

X = np.array([[1.0, 0.5], [1.0, 2.0], [1.0, -1.0], [1.0, 2.0], [1.0, 4.0]])
NAMES = ("one", "days")
GROUPS = {"g": ["a", "b", "a", "c", "b"], "h": [1, 1, 2, 2, 2]}


def test_intercepts():
    for effects in ("g", ["g"], RandomEffects("g"), [RandomEffects(["g"])]):
        (term,) = make_terms(effects, X, NAMES, GROUPS)
        assert (term.name, term.group, term.columns, term.shape) == ("g", "g", ("intercept",), (3, 1))
        assert term.codes.tolist() == [0, 1, 0, 2, 1]
        assert term.Z.tolist() == [[1.0]] * 5
        assert term.without_rows().codes.shape == (0,)
        assert term.without_rows().levels is term.levels


@pytest.mark.parametrize("slopes", ["days", 1, ["days"], (1,)])
def test_slopes_by_name_or_number(slopes):
    (both,) = make_terms(RandomEffects("g", slopes), X, NAMES, GROUPS)
    assert (both.name, both.columns, both.shape) == ("1 + days | g", ("intercept", "days"), (3, 2))
    np.testing.assert_array_equal(both.Z, X)
    apart = make_terms(RandomEffects("g", slopes, correlated=False), X, NAMES, GROUPS)
    assert [item.name for item in apart] == ["g", "days | g"]
    assert apart[0].levels is apart[1].levels
    (single,) = make_terms(RandomEffects("g", slopes, intercept=False), X, NAMES, GROUPS)
    assert (single.name, single.Z.ravel().tolist()) == ("days | g", X[:, 1].tolist())


def test_crossed_and_nested_groups():
    terms = make_terms(["g", "h", RandomEffects(("g", "h"))], X, None, GROUPS)
    assert [term.name for term in terms] == ["g", "h", "g:h"]
    assert [len(item.levels) for item in terms] == [3, 2, 5]
    assert make_terms(RandomEffects("g", 1), X, None, GROUPS)[0].columns == ("intercept", "x2")
    assert make_terms([], X, NAMES, None) == []


def test_one_level_and_one_row_a_level_are_allowed():
    one, item = make_terms(["g", "h"], X, NAMES, {"g": [7] * 5, "h": range(5)})
    assert (one.shape, item.shape) == ((1, 1), (5, 1))


def test_new_rows():
    terms = make_terms([RandomEffects("g", "days"), "h"], X, NAMES, GROUPS)
    new = np.array([[1.0, 9.0], [1.0, 8.0]])
    (codes, Z), (other, ones) = read_new_terms(terms, new, {"h": [2, 1], "g": ["c", "a"]})
    assert (codes.tolist(), other.tolist()) == ([2, 0], [1, 0])
    assert (Z.tolist(), ones.tolist()) == (new.tolist(), [[1.0], [1.0]])
    groups = {"g": ["z", "a"], "h": [1, 9]}
    with pytest.raises(ValueError, match="groups must have levels of the fit, got 'z' of 'g' in row 0; levels='new'"):
        read_new_terms(terms, new, groups)
    (codes, _), (other, _) = read_new_terms(terms, new, groups, levels="new")
    assert (codes.tolist(), other.tolist()) == ([NEW_LEVEL, 0], [0, NEW_LEVEL])
    with pytest.raises(ValueError, match="levels must be one of 'known', 'new', 'zero', got 'all'"):
        read_new_terms(terms, new, groups, levels="all")


def test_unknown_combinations_are_named():
    terms = make_terms(RandomEffects(("g", "h")), X, NAMES, GROUPS)
    with pytest.raises(ValueError, match="got 'c:1', 'd:3' of 'g:h' in row 1"):
        read_new_terms(terms, X[:3], {"g": ["c", "c", "d"], "h": [2.0, 1.0, 3.0]})


@pytest.mark.parametrize(
    ("effects", "error", "message"),
    [
        (RandomEffects("g", "one"), ValueError, "slopes must differ between rows, got 'one', which is 1 in every row"),
        (RandomEffects("g", "age"), ValueError, "slopes must be columns of X, got 'age'; there is 'one', 'days'"),
        (RandomEffects("g", 2), ValueError, "slopes must be columns of X, got 2; there is 'one', 'days'"),
        (["g", "g"], ValueError, "effects must have each effect once, got an intercept of 'g' twice"),
        (
            [RandomEffects("g", "days"), RandomEffects("g", 1, intercept=False)],
            ValueError,
            "effects must have each effect once, got a slope of 'days' of 'g' twice",
        ),
        ("k", ValueError, "groups must have the columns of the random effects: 'k' missing; there is 'g', 'h'"),
        (
            3,
            TypeError,
            "effects must be RandomEffects, terms of cavity.terms, names of columns of groups, or several, got 3",
        ),
        ([("g", "h")], TypeError, "effects must be RandomEffects"),
    ],
)
def test_effects_that_do_not_fit(effects, error, message):
    with pytest.raises(error, match=message):
        make_terms(effects, X, NAMES, GROUPS)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"group": ()}, ValueError, "group must name a column of groups, got none"),
        ({"group": ("g", "g")}, ValueError, "group must name each column once, got 'g' twice"),
        ({"group": 1}, TypeError, "group must be the name of a column or several, got 1"),
        ({"group": "g", "slopes": (True,)}, TypeError, "slopes must be the name of a column or several"),
        ({"group": "g", "slopes": 1.5}, TypeError, "slopes must be the name of a column or several, got 1.5"),
        ({"group": "g", "slopes": -1}, ValueError, "slopes must count columns from 0"),
        ({"group": "g", "slopes": ["x", "x"]}, ValueError, "slopes must name each column once, got 'x' twice"),
        ({"group": "g", "intercept": 0}, TypeError, "intercept must be True or False, got 0"),
        ({"group": "g", "correlated": "no"}, TypeError, "correlated must be True or False, got 'no'"),
        ({"group": "g", "intercept": False}, ValueError, "slopes must name a column where intercept=False"),
    ],
)
def test_settings_outside_their_domain(arguments, error, message):
    with pytest.raises(error, match=message):
        RandomEffects(**arguments)


def test_effects_are_equal_by_their_fields():
    assert RandomEffects("g", "x") == RandomEffects(("g",), ["x"])
    assert len({RandomEffects("g"), RandomEffects(["g"]), RandomEffects("g", 1)}) == 2


def test_a_prior_in_other_units_is_named():
    """Where it draws a standard deviation to the end of the range that is searched."""
    rng = np.random.default_rng(0)
    x = rng.uniform(size=100)
    table = {"x": x, "y": np.sin(6.0 * x) + 0.3 * rng.normal(size=100)}
    model = cavity.MixedGLM("y ~ s(x, k=8)", "gaussian", priors={"s(x)": cavity.priors.PC(1e-6)})
    with pytest.warns(cavity.ConvergenceWarning, match=r"the prior of sd\(s\(x\)\) has its mass beyond; give"):
        assert not model.fit(table).converged
