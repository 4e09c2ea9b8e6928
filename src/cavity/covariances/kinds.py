"""The kinds of covariance a user writes down."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from math import factorial, sqrt
from typing import Any, ClassVar

import numpy as np

from cavity.base import arrays
from cavity.base.public_objects import FloatOrArray, set_fields
from cavity.covariances import program
from cavity.covariances.base import COVARIANCE_KINDS, Covariance
from cavity.covariances.leaf import ColumnLeaf, Leaf
from cavity.priors.saved import from_settings as from_settings_of_prior


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Stationary(ColumnLeaf):
    """Base of the covariances with a variance and lengthscales, which depend on differences of rows."""

    variance: float = 1.0
    lengthscale: FloatOrArray = 1.0


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class RBF(Stationary):
    """Squared exponential covariance of infinitely smooth functions [RW]_ (eq. 4.9).

    k(x, z) = variance exp(-r^2/2), r^2 = sum_d ((x_d - z_d)/lengthscale_d)^2.

    Parameters
    ----------
    variance : float, default 1.0
        Variance of the function, in squared units of it.
    lengthscale : float or array_like (D,), default 1.0
        Distance over which the function changes, in units of x: one for all columns, or one for each.
    fixed : tuple of str, default ()
        Names of parameters that are not learnt.
    bounds : dict, default {}
        (low, high) by names of parameters, between which they are learnt; 1e-300 and 1e300 for the others, of which a
        `GaussianProcess` searches a factor of 1e10 about the values where it begins.
    priors : dict, default {}
        Prior densities by names of parameters: `LogNormal`, `Gamma`, or an object of your own with
        ``log_density(value)`` and ``slope(value)``, its derivative in the log of the value, both elementwise. The
        prior of an array is that of every entry.
    columns : sequence of int, optional
        The columns of X that are looked at, counted from 0; without it all of them. D is their number.

    Raises
    ------
    ValueError, TypeError
        For parameters that are not positive or outside of their bounds, and names that there are not.

    Examples
    --------
    >>> from cavity.covariances import RBF
    >>> RBF(2.0, [1.0, 3.0]).gram([[0.0, 0.0], [1.0, 3.0]]).round(6).tolist()
    [[2.0, 0.735759], [0.735759, 2.0]]
    """

    _op, _label = program.RBF, "rbf"


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Matern12(Stationary):
    """Exponential covariance of continuous functions with a kink everywhere [RW]_ (eq. 4.18, gamma = 1).

    k(x, z) = variance exp(-r), r^2 = sum_d ((x_d - z_d)/lengthscale_d)^2.

    Parameters
    ----------
    variance : float, default 1.0
        Variance of the function.
    lengthscale : float or array_like (D,), default 1.0
        One for all columns, or one for each.
    fixed, bounds, priors, columns : optional
        As for `RBF`.

    Notes
    -----
    There is no derivative in x where two rows are equal; gradients count 0 for such a pair.

    Examples
    --------
    >>> from cavity.covariances import Matern12
    >>> Matern12(lengthscale=2.0).cross([[0.0]], [[2.0], [4.0]]).round(6).tolist()
    [[0.367879, 0.135335]]
    """

    _op, _label = program.MATERN12, "matern12"


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Matern32(Stationary):
    """Matern covariance of functions with one derivative [RW]_ (eq. 4.17).

    k(x, z) = variance (1 + sqrt(3) r) exp(-sqrt(3) r), r^2 = sum_d ((x_d - z_d)/lengthscale_d)^2.

    Parameters
    ----------
    variance : float, default 1.0
        Variance of the function.
    lengthscale : float or array_like (D,), default 1.0
        One for all columns, or one for each.
    fixed, bounds, priors, columns : optional
        As for `RBF`.

    Examples
    --------
    >>> from cavity.covariances import Matern32
    >>> Matern32(lengthscale=2.0).cross([[0.0]], [[2.0], [4.0]]).round(6).tolist()
    [[0.483358, 0.139731]]
    """

    _op, _label = program.MATERN32, "matern32"


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Matern52(Stationary):
    """Matern covariance of functions with two derivatives [RW]_ (eq. 4.17).

    k(x, z) = variance (1 + sqrt(5) r + 5 r^2/3) exp(-sqrt(5) r), r^2 = sum_d ((x_d - z_d)/lengthscale_d)^2.

    Parameters
    ----------
    variance : float, default 1.0
        Variance of the function.
    lengthscale : float or array_like (D,), default 1.0
        One for all columns, or one for each.
    fixed, bounds, priors, columns : optional
        As for `RBF`.

    Examples
    --------
    >>> from cavity.covariances import Matern52
    >>> Matern52(lengthscale=2.0).cross([[0.0]], [[2.0], [4.0]]).round(6).tolist()
    [[0.523994, 0.13866]]
    """

    _op, _label = program.MATERN52, "matern52"


@cache
def matern_polynomials(order):
    """Return P and Q of the Matern covariance of smoothness order + 1/2 for the kernel, the highest powers first.

    P(s) = n!/(2n)! sum_i (2n - i)!/(i! (n - i)!) (2s)^i [RW]_ (eq. 4.16), and Q is that of order n - 1 times
    (2n + 1)/(2n - 1): -d(P e^-s)/ds = s Q e^-s/(2n + 1).
    """

    def polynomial(n):
        ratio = factorial(2 * n) // factorial(n)
        return [2**i * factorial(2 * n - i) / (factorial(i) * factorial(n - i) * ratio) for i in range(n, -1, -1)]

    return *polynomial(order), *((2 * order + 1) / (2 * order - 1) * c for c in polynomial(order - 1))


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Matern(ColumnLeaf):
    """Matern covariance of half-integer smoothness [RW]_ (eq. 4.16): nu - 1/2 derivatives.

    k(x, z) = variance P(s) exp(-s), s = sqrt(2 nu) r, r^2 = sum_d ((x_d - z_d)/lengthscale_d)^2, where P is a
    polynomial of degree nu - 1/2. It becomes an `RBF` as nu grows.

    Parameters
    ----------
    nu : float
        Smoothness, which is not learnt: 0.5, 1.5, 2.5, ..., 10.5. The first three are `Matern12`, `Matern32` and
        `Matern52`, to the last bit.
    variance : float, default 1.0
        Variance of the function.
    lengthscale : float or array_like (D,), default 1.0
        One for all columns, or one for each.
    fixed, bounds, priors, columns : optional
        As for `RBF`.

    Raises
    ------
    ValueError, TypeError
        For another nu, and as for `RBF`.

    Examples
    --------
    >>> from cavity.covariances import Matern
    >>> Matern(3.5, lengthscale=2.0).cross([[0.0]], [[2.0], [4.0]]).round(6).tolist()
    [[0.544942, 0.137781]]
    """

    nu: float
    variance: float = 1.0
    lengthscale: FloatOrArray = 1.0

    orders: ClassVar[tuple[float, ...]] = tuple(n + 0.5 for n in range(11))
    _label, _others = "matern", ("nu",)

    def __post_init__(self) -> None:
        nu = arrays.check_number(self.nu, "nu")
        if nu not in self.orders:
            raise ValueError(f"nu must be 0.5, 1.5, 2.5, ..., 10.5, got {nu!r}")
        set_fields(self, nu=nu)
        ColumnLeaf.__post_init__(self)

    @property
    def _op(self):
        return {0.5: program.MATERN12, 1.5: program.MATERN32, 2.5: program.MATERN52}.get(self.nu, program.MATERN)

    def _operand(self, n_features):
        """Return the columns the leaf looks at, their divisors, and the parameters the kernel reads."""
        order, rest = int(self.nu), ()
        if self._op == program.MATERN:
            rest = (order, -2.0 * sqrt(2 * order + 1), *matern_polynomials(order))
        return self._chosen(n_features), self._repeat_parameter("lengthscale", n_features), (self.variance, *rest)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class RationalQuadratic(Stationary):
    """Mixture of `RBF` covariances of many lengthscales [RW]_ (eq. 4.19).

    k(x, z) = variance (1 + r^2/(2 shape))^(-shape), r^2 = sum_d ((x_d - z_d)/lengthscale_d)^2.

    Parameters
    ----------
    variance : float, default 1.0
        Variance of the function.
    lengthscale : float or array_like (D,), default 1.0
        One for all columns, or one for each.
    shape : float, default 1.0
        The smaller, the more lengthscales; it becomes an `RBF` as it grows.
    fixed, bounds, priors, columns : optional
        As for `RBF`.

    Examples
    --------
    >>> from cavity.covariances import RationalQuadratic
    >>> RationalQuadratic(shape=0.5).cross([[0.0]], [[1.0], [3.0]]).round(6).tolist()
    [[0.707107, 0.316228]]
    """

    shape: float = 1.0

    _op, _label = program.RATIONAL_QUADRATIC, "rational_quadratic"
    _slots = ("variance", "shape", "lengthscale")

    def _operand(self, n_features):
        """Return the columns the leaf looks at, their divisors, and the parameters the kernel reads."""
        return self._chosen(n_features), self._repeat_parameter("lengthscale", n_features), (self.variance, self.shape)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Periodic(Stationary):
    """Covariance of periodic functions [RW]_ (eq. 4.31).

    k(x, z) = variance exp(-2 sum_d sin^2(pi (x_d - z_d)/period_d)/lengthscale_d^2).

    Parameters
    ----------
    variance : float, default 1.0
        Variance of the function.
    lengthscale : float or array_like (D,), default 1.0
        Change within a period, without units; one for all columns, or one for each.
    period : float or array_like (D,), default 1.0
        In units of x; one for all columns, or one for each.
    fixed, bounds, priors, columns : optional
        As for `RBF`.

    Notes
    -----
    The evidence has a maximum for every multiple of a period: start near the right one, as "periodic" in a string does
    by a periodogram.

    Examples
    --------
    >>> from cavity.covariances import Periodic
    >>> Periodic(period=2.0).cross([[0.0]], [[1.0], [2.0]]).round(6).tolist()
    [[0.135335, 1.0]]
    """

    period: FloatOrArray = 1.0

    _op, _label = program.PERIODIC, "periodic"
    _slots, _per_column = ("variance", "lengthscale", "period"), ("lengthscale", "period")
    _roles: ClassVar = {"lengthscale": "smoothness"}  # it has no units

    def _operand(self, n_features):
        """Return the columns the leaf looks at, their divisors, and the parameters the kernel reads."""
        with np.errstate(over="ignore"):  # refused before it is used
            roughness = (1.0 / self._repeat_parameter("lengthscale", n_features)) ** 2
        return self._chosen(n_features), self._repeat_parameter("period", n_features), (self.variance, *roughness)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Linear(ColumnLeaf):
    """Covariance of linear functions without a constant [RW]_ (section 4.2.2): add a `Constant` for one.

    k(x, z) = sum_d variance_d x_d z_d.

    Parameters
    ----------
    variance : float or array_like (D,), default 1.0
        Prior variance of the coefficients: one for all columns, or one for each.
    fixed, bounds, priors, columns : optional
        As for `RBF`.

    Examples
    --------
    >>> from cavity.covariances import Linear
    >>> Linear([1.0, 0.25]).gram([[1.0, 2.0], [3.0, 0.0]]).tolist()
    [[2.0, 3.0], [3.0, 9.0]]
    """

    variance: FloatOrArray = 1.0

    _op, _label = program.LINEAR, "linear"
    _slots, _per_column = ("variance",), ("variance",)

    def _operand(self, n_features):
        """Return the columns the leaf looks at, the divisors that make them x_d sqrt(v_d), and no parameters."""
        return self._chosen(n_features), 1.0 / np.sqrt(self._repeat_parameter("variance", n_features)), ()


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Constant(Leaf):
    """Covariance of an unknown constant: k(x, z) = variance.

    Parameters
    ----------
    variance : float, default 1.0
        Prior variance of the constant.
    fixed, bounds, priors : optional
        As for `RBF`.

    Examples
    --------
    >>> from cavity.covariances import Constant, Linear
    >>> (Constant(4.0) + Linear()).gram([[1.0], [2.0]]).tolist()
    [[5.0, 6.0], [6.0, 8.0]]
    """

    variance: float = 1.0

    _op, _label = program.CONSTANT, "constant"


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class White(Leaf):
    """Independent noise of every row: variance where a row meets itself, else 0.

    Two rows of equal numbers are two rows: `cross` is 0 even there.

    Parameters
    ----------
    variance : float, default 1.0
        Variance of the noise.
    fixed, bounds, priors : optional
        As for `RBF`.

    Examples
    --------
    >>> from cavity.covariances import Constant, White
    >>> (Constant() + White(0.5)).gram([[1.0], [1.0]]).tolist()
    [[1.5, 1.0], [1.0, 1.5]]
    """

    variance: float = 1.0

    _op, _label = program.WHITE, "white"


def from_settings(settings: dict[str, Any]) -> Covariance:
    """Rebuild a covariance from what `Covariance.to_settings` returned.

    Parameters
    ----------
    settings : dict
        JSON-able settings.

    Returns
    -------
    Covariance
        Equal to the original.

    Raises
    ------
    ValueError
        For a kind that this version does not have.

    Examples
    --------
    >>> from cavity import covariances
    >>> settings = (2.0 * covariances.RBF()).to_settings()
    >>> covariances.from_settings(settings)
    2.0 * RBF(variance=1.0, lengthscale=1.0)
    """
    rest = dict(settings)
    kind = rest.pop("kind", None)
    if kind not in COVARIANCE_KINDS:
        raise ValueError(f"settings must be of a kind among {', '.join(sorted(COVARIANCE_KINDS))}, got {kind!r}")
    if "parts" in rest:
        return COVARIANCE_KINDS[kind](tuple(map(from_settings, rest["parts"])))
    own_priors = {name: from_settings_of_prior(prior) for name, prior in rest.pop("priors", {}).items()}
    return COVARIANCE_KINDS[kind](**rest, priors=own_priors)
