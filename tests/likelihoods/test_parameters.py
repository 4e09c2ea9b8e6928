"""Parameters that likelihoods declare: their domains, open ones, and the free numbers that stand for them."""

from dataclasses import dataclass

import numpy as np
import pytest
from support.tolerances import OPTIMUM, ROOT_EPS, SUMS

from cavity import GLM, GaussianProcess, covariances, likelihoods
from cavity.likelihoods.parameters import PARAMETER_DOMAINS, FreeParameters, check_declared, list_open_parameters

VALUES = {"scale": 0.3, "positive": 40.0, "real": -2.5, "share": 0.07, "increasing": (-1.5, 0.25, 3.0)}
OPEN = [
    likelihoods.Gaussian(None),
    likelihoods.Laplace(None),
    likelihoods.StudentT(None),
    likelihoods.StudentT(scale=None),
    likelihoods.Clutter(None),
    likelihoods.Clutter(clutter_mean=None),
    likelihoods.Interval(None),
    likelihoods.NegativeBinomial(),
    likelihoods.OrderedProbit(),
]


@dataclass(frozen=True)
class Every(likelihoods.Likelihood):
    """A field of every domain."""

    scale: float | None = 0.3
    positive: float | None = 40.0
    real: float | None = -2.5
    share: float | None = 0.07
    increasing: tuple | None = (-1.5, 0.25, 3.0)
    parameters = {name: name for name in VALUES}  # noqa: RUF012 - as users write it


@pytest.mark.parametrize("unit", [1.0, 1e8, 1e-8])
def test_free_numbers_stand_for_values(unit):
    free, likelihood = FreeParameters(Every(), tuple(VALUES), unit), Every()
    second = free.unpack(free.pack(likelihood), Every(1.0, 1.0, 1.0, 0.5, (0.0, 1.0, 2.0)))
    for name, value in VALUES.items():
        assert np.allclose(getattr(second, name), value, rtol=SUMS, atol=0), name


@pytest.mark.parametrize("domain", VALUES)
@pytest.mark.parametrize("unit", [1.0, 30.0])
def test_slopes_are_those_of_the_values(domain, unit):
    domain, value = PARAMETER_DOMAINS[domain], VALUES[domain]
    vector = domain.pack(value, unit)
    for j in range(len(vector)):
        ahead, behind = (np.atleast_1d(domain.unpack(vector + h * np.eye(len(vector))[j], unit)) for h in (1e-5, -1e-5))
        assert np.allclose(domain.slopes(value, unit)[:, j], (ahead - behind) / 2e-5, rtol=ROOT_EPS, atol=ROOT_EPS)


@pytest.mark.parametrize("likelihood", OPEN, ids=repr)
def test_open_likelihoods_say_what_they_lack(likelihood):
    (name,) = list_open_parameters(likelihood)
    y = [[0.0, 1.0]] if isinstance(likelihood, likelihoods.Interval) else [1.0]
    message = f"{name} of {type(likelihood).__name__} is open .None.: give a number, or fit a model, which finds it"
    with pytest.raises(ValueError, match=message):
        likelihood.log_p(likelihood.check(y), np.zeros(1))
    with pytest.raises(ValueError, match=message):
        likelihood.log_tilted(y, 0.0, 1.0)


def test_classes_of_open_thresholds():
    assert likelihoods.OrderedProbit().n_classes is None
    assert likelihoods.OrderedProbit().check([0, 4, 2]).tolist() == [0.0, 4.0, 2.0]


@pytest.mark.parametrize(
    ("declared", "value", "error", "message"),
    [
        ({"size": "scale"}, 1.0, TypeError, "Own must be a dataclass with the fields in its parameters, 'size'"),
        ({"width": "width"}, 1.0, ValueError, "domain of width in parameters of Own must be one of"),
        (("width",), 1.0, TypeError, "parameters of Own must be a dict"),
        ({"width": "scale"}, -1.0, ValueError, "width of Own must be"),
        ({"width": "share"}, 1.5, ValueError, "width of Own must be"),
        ({"width": "increasing"}, (1.0, 1.0), ValueError, "width of Own must be increasing"),
    ],
)
def test_wrong_declarations(declared, value, error, message):
    @dataclass(frozen=True)
    class Own(likelihoods.Likelihood):
        width: object = 1.0
        parameters = declared

    for make in (check_declared, GLM, lambda own: GaussianProcess(covariances.RBF(), own)):
        with pytest.raises(error, match=message):
            make(Own(value))


def test_the_word_of_before_is_refused():
    @dataclass(frozen=True)
    class Own(likelihoods.Likelihood):
        width: float = 1.0
        scales = ("width",)

    with pytest.raises(TypeError, match="scales of Own has no meaning: declare parameters"):
        GLM(Own(), prior_variance=1.0, intercept=False)


def test_a_power_is_searched_between_one_and_two():
    likelihood = likelihoods.Tweedie(1.7, 2.0)
    free = FreeParameters(likelihood, ("power", "dispersion"))
    vector = free.pack(likelihood)
    assert free.unpack(vector, likelihood).power == pytest.approx(1.7, rel=SUMS)
    for far in (-30.0, 30.0):
        assert 1.0 < free.unpack(np.array([far, 0.0]), likelihood).power < 2.0
    h = 1e-6
    slope = (free.unpack(vector + [h, 0], likelihood).power - free.unpack(vector - [h, 0], likelihood).power) / (2 * h)
    assert free.jacobian(likelihood)[0, 0] == pytest.approx(slope, rel=OPTIMUM)
