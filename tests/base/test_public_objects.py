"""What notebooks show of models and posteriors: settings, how the fit went, the first rows of the summary."""

import re
from dataclasses import dataclass
from html.parser import HTMLParser

import numpy as np
import pytest

import cavity
from cavity import covariances, likelihoods
from cavity.base.public_objects import check_positive, replace_unchecked, set_fields


class Cells(HTMLParser):
    """The text of the cells of tables, and whether all tags are closed."""

    def __init__(self, page):
        super().__init__()
        self.open, self.cells = [], []
        self.feed(page)

    def handle_starttag(self, tag, attributes):
        self.open.append(tag)
        if tag in ("th", "td", "caption", "p"):
            self.cells.append("")

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, text):
        self.cells[-1] += text


def cells(thing):
    parsed = Cells(thing._repr_html_())
    assert parsed.open == []
    return parsed.cells


def test_models_show_their_settings_and_which_were_chosen():
    model = cavity.GLM("probit", intercept=True)
    result = cells(model)
    assert result[0] == "GLM"
    settings = dict(zip(result[1::2], result[2::2], strict=True))
    assert settings == {name: repr(getattr(model, name)) for name in settings}
    bold = re.findall("<b>(.*?)</b>", model._repr_html_())
    assert bold == ["Probit()", "True"]
    process = cavity.GaussianProcess(covariances.RBF(1.0, [1.0, 2.0]))
    assert "RBF(variance=1.0, lengthscale=[1.0, 2.0])" in cells(process)


def test_posteriors_show_how_the_fit_went_and_the_head_of_the_summary():
    X = np.random.default_rng(0).normal(size=(40, 12))
    posterior = cavity.LinearRegression(intercept=False).fit(X, X[:, 0] + 1.0)
    result = cells(posterior)
    assert result[0] == repr(posterior).split("\n")[0]
    for line in repr(posterior).split("\n")[1:]:
        assert line.split()[0] in result
    assert result[-1] == "the first 8 of 12 rows of summary()"
    assert "x8" in result
    assert "x9" not in result


def test_a_value_of_several_lines_is_one_cell():
    posterior = cavity.GLM(likelihoods.Gaussian(0.1), prior_variance=1.0, intercept=False).fit(
        np.eye(8), -np.geomspace(1e-5, 1e5, 8)
    )
    assert "\n                " in repr(posterior)
    result = cells(posterior)
    assert re.fullmatch(r"\[[^\[\]]*\]", result[result.index("mean") + 1])


def test_names_are_escaped():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"<script>alert(1)</script>": [1.0, 2.0, 4.0], "y": [1.0, 2.0, 3.0]})
    page = cavity.LinearRegression(intercept=False).fit(frame, "y")._repr_html_()
    assert "<script" not in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page


@pytest.mark.parametrize(
    "posterior",
    [
        lambda: cavity.Clutter().fit([[0.1, 2.0], [2.3, 1.0]]),
        lambda: cavity.UnitMixture(2).fit([0.1, 2.3, 4.0]),
        lambda: cavity.GaussianMixture(1).fit([[0.1, 2.0], [2.3, 1.0], [2.0, 3.0]]),
        lambda: cavity.FactorizedGaussian([1.0, 2.0], [[2.0, 0.5], [0.5, 1.0]]).fit(),
        lambda: cavity.GaussianProcess(covariances.RBF(1.0)).fit([[1.0], [2.0]], [1.0, 2.0], learn=False),
        lambda: cavity.StreamingGP(covariances.RBF(1.0), likelihoods.Probit()).fit([[1.0], [2.0]], [0, 1], learn=False),
    ],
)
def test_every_posterior_has_a_page(posterior):
    result = posterior()
    assert cells(result)[0] == repr(result).split("\n")[0]
    assert cells(result.model)[0] == type(result.model).__name__


@pytest.mark.parametrize("thing", [cavity.Gaussian(1.0, 2.0), likelihoods.Probit(), covariances.RBF(1.0)])
def test_small_things_stay_text(thing):
    assert thing._repr_html_() is None


@dataclass(frozen=True)
class Scale:
    """A frozen record that checks its fields."""

    sd: float
    unit: str = "m"

    def __post_init__(self):
        check_positive(self, "sd")
        set_fields(self, unit=self.unit.lower())


def test_fields_are_set_once():
    scale = Scale(2, "KM")
    assert (type(scale.sd), scale.sd, scale.unit) == (float, 2.0, "km")
    with pytest.raises(AttributeError):
        scale.sd = 3.0


def test_a_field_that_is_not_positive_is_named():
    with pytest.raises(ValueError, match="^sd must be in "):
        Scale(-1.0)


def test_a_record_with_other_values_is_a_new_one_and_not_checked():
    first = Scale(2.0, "KM")
    second = replace_unchecked(first, unit="MILE")
    assert (second.sd, second.unit, first.unit) == (2.0, "MILE", "km")
    assert type(second) is Scale
