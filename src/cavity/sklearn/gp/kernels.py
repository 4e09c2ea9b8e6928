"""scikit-learn's kernels as covariances of `cavity.covariances`, and the free parameters of both as one vector theta.

theta is the vector of logs of what is learnt. Where a kernel holds one of them twice (in a power) or squares it
(sigma_0), a link says so: log of our parameter i = scale_i theta[index_i] + a constant.
"""

from dataclasses import dataclass
from functools import partial, reduce
from operator import mul

import numpy as np
from sklearn.gaussian_process import kernels

from cavity import covariances
from cavity.base.errors import warn
from cavity.covariances import slots
from cavity.sklearn.base import UnfinishedWarning

COVARIANCE_FAMILIES = {  # scikit-learn's kernel -> our covariance, and the names of its parameters there
    kernels.ConstantKernel: (covariances.Constant, {"variance": "constant_value"}),
    kernels.WhiteKernel: (covariances.White, {"variance": "noise_level"}),
    kernels.RBF: (covariances.RBF, {"lengthscale": "length_scale"}),
    kernels.RationalQuadratic: (covariances.RationalQuadratic, {"lengthscale": "length_scale", "shape": "alpha"}),
    kernels.ExpSineSquared: (covariances.Periodic, {"lengthscale": "length_scale", "period": "periodicity"}),
}
MATERN_FAMILIES = {nu: partial(covariances.Matern, nu) for nu in covariances.Matern.orders}
MATERN_FAMILIES |= {
    0.5: covariances.Matern12,
    1.5: covariances.Matern32,
    2.5: covariances.Matern52,
    np.inf: covariances.RBF,
}
ISOTROPIC_KERNELS = (kernels.RationalQuadratic, kernels.ExpSineSquared)  # one lengthscale for all columns
MAX_POWER_FACTORS = 64  # in a power
WIDEST_BOUNDS = (np.finfo(np.float64).tiny, np.finfo(np.float64).max)  # theta has scikit-learn's bounds
KERNEL_HINT = (
    "use kernels of scikit-learn with a counterpart (ConstantKernel, WhiteKernel, RBF, Matern, RationalQuadratic, "
    "ExpSineSquared, DotProduct, their sums, products and whole powers) or a covariance of cavity.covariances"
)


@dataclass(frozen=True, slots=True)
class LinkedCovariance:
    """A covariance, and for each of its free parameters the entry of theta behind it and how many times it counts."""

    covariance: covariances.Covariance
    index: tuple
    scale: tuple

    @property
    def n_theta(self):
        """The number of entries of theta."""
        return len(set(self.index))

    def joined(self, other, covariance):
        """Return the links of a covariance made of this one and then another."""
        return LinkedCovariance(covariance, self.index + other.index, self.scale + other.scale)

    def at(self, theta):
        """Return those of the kernel with another theta; ValueError for numbers that float64 does not have."""
        with np.errstate(over="ignore", under="ignore"):
            numbers = np.exp(theta).tolist()
        values = np.array([numbers[i] ** scale for i, scale in zip(self.index, self.scale, strict=True)])
        if not ((values >= WIDEST_BOUNDS[0]) & (values <= WIDEST_BOUNDS[1])).all():
            raise ValueError(f"theta must be the logs of positive and finite numbers, got {theta}")
        return LinkedCovariance(slots.replace_values(self.covariance, values), self.index, self.scale)

    def in_theta(self, gradient, n_theta):
        """Return a gradient in the logs of our parameters as one in theta."""
        return np.bincount(np.asarray(self.index, dtype=np.intp), np.multiply(self.scale, gradient), n_theta)


def link_kernel(kernel, n_features):
    """Return a kernel of either library for rows of D columns as a `Linked` covariance.

    Raises ValueError, naming the kernel, if there is no such covariance.
    """
    if isinstance(kernel, covariances.Covariance):
        n_free = len(kernel.log_parameters)
        linked = LinkedCovariance(kernel, tuple(range(n_free)), (1.0,) * n_free)
    else:
        linked = _translate(kernel, 0, n_features)
    linked.covariance.check_columns(n_features)
    return linked


def check_kernel(kernel):
    """Raise TypeError unless this is a kernel of one of the libraries, ValueError if it has no counterpart in ours."""
    if not isinstance(kernel, kernels.Kernel | covariances.Covariance):
        raise TypeError(f"kernel must be one of sklearn.gaussian_process.kernels or cavity.covariances, got {kernel!r}")
    if isinstance(kernel, kernels.CompoundKernel):
        raise ValueError("kernel cannot be a CompoundKernel: it is several kernels, one for each class")
    if isinstance(kernel, kernels.Kernel):
        _translate(kernel, 0, 1)  # those without a counterpart at any width


def join_kernels(parts):
    """Return the kernels of one or several models as one: it, a ``CompoundKernel``, or a tuple of covariances."""
    if len(parts) == 1:
        return parts[0]
    return tuple(parts) if isinstance(parts[0], covariances.Covariance) else kernels.CompoundKernel(list(parts))


# ---------------------------------------------------------------------------------------------- translation


def _translate(kernel, first, n_features):
    """Return a kernel, the first of whose free parameters is theta[first], as a covariance with links."""
    kind = type(kernel)  # a subclass may compute something else
    if kind in (kernels.Sum, kernels.Product):
        left = _translate(kernel.k1, first, n_features)
        right = _translate(kernel.k2, first + left.n_theta, n_features)
        pair = left.covariance, right.covariance
        return left.joined(right, pair[0] + pair[1] if kind is kernels.Sum else pair[0] * pair[1])
    if kind is kernels.Exponentiation:
        return _power(kernel, first, n_features)
    if kind is kernels.DotProduct:
        return _dot_product(kernel, first)
    if kind is kernels.Matern:
        if kernel.nu not in MATERN_FAMILIES:
            raise ValueError(f"kernel {kernel!r} has no counterpart: use nu = 0.5, 1.5, 2.5, ..., 10.5 or inf")
        return _leaf(kernel, MATERN_FAMILIES[kernel.nu], {"lengthscale": "length_scale"}, first)
    if kind not in COVARIANCE_FAMILIES:
        raise ValueError(f"kernel {_describe_kernel(kernel)} has no counterpart: {KERNEL_HINT}")
    if kind in ISOTROPIC_KERNELS and np.size(kernel.length_scale) > 1:
        raise ValueError(f"kernel {kind.__name__} has one length_scale for all columns, got {kernel.length_scale!r}")
    if kind is kernels.ExpSineSquared and n_features > 1:
        raise ValueError(
            f"kernel {kernel!r} of {n_features} columns has no counterpart: it is periodic in the distance of two "
            "rows, which need not be a covariance; use cavity.covariances.Periodic, which is periodic in every column"
        )
    return _leaf(kernel, *COVARIANCE_FAMILIES[kind], first)


def _describe_kernel(kernel):
    """Return the repr of a kernel, which may be of a class of the user."""
    return f"{kernel!r} ({type(kernel).__module__}.{type(kernel).__qualname__})"


def _leaf(kernel, family, names, first, power=1):
    """Return a kernel that is one covariance, each parameter the power of the kernel's; all others are fixed at 1."""
    starts = {}
    for hyperparameter in kernel.hyperparameters:
        if not hyperparameter.fixed:
            starts[hyperparameter.name] = first
            first += hyperparameter.n_elements
    values = {name: _check_parameter(kernel, theirs) ** power for name, theirs in names.items()}
    names = {"variance": None, **names}
    fixed = tuple(name for name, theirs in names.items() if theirs not in starts)
    covariance = family(**values, fixed=fixed, bounds=dict.fromkeys(names, WIDEST_BOUNDS))
    index = tuple(starts[names[slot.name]] + (slot.index or 0) for slot in slots.list_free_slots(covariance))
    return LinkedCovariance(covariance, index, (float(power),) * len(index))


def _check_parameter(kernel, name):
    """Return a parameter as a number or, of several columns, an array; finite and positive."""
    value = np.squeeze(np.asarray(getattr(kernel, name), dtype=np.float64))
    if not (np.all(value > 0) and np.all(np.isfinite(value))):
        raise ValueError(f"{name} of kernel {type(kernel).__name__} must be positive and finite, got {value}")
    return float(value) if value.ndim == 0 else value


def _dot_product(kernel, first):
    """Return sigma_0^2 + x'z."""
    linear = LinkedCovariance(covariances.Linear(fixed=("variance",)), (), ())
    if kernel.sigma_0 == 0 and kernel.hyperparameter_sigma_0.fixed:
        return linear
    offset = _leaf(kernel, covariances.Constant, {"variance": "sigma_0"}, first, power=2)
    return offset.joined(linear, offset.covariance + linear.covariance)


def _power(kernel, first, n_features):
    """Return a whole power as a product of so many factors, which share their entries of theta."""
    exponent = kernel.exponent
    if not 1 <= exponent <= MAX_POWER_FACTORS or exponent != int(exponent):
        raise ValueError(
            f"kernel {kernel!r} has no counterpart: its exponent must be whole, from 1 to {MAX_POWER_FACTORS}"
        )
    factor = _translate(kernel.kernel, first, n_features)
    copies = int(exponent)
    product = reduce(mul, [factor.covariance] * copies)
    return LinkedCovariance(product, factor.index * copies, factor.scale * copies)


# ---------------------------------------------------------------------------------------------- theta


def theta_of(kernel):
    """Return the logs of what is learnt, (n,)."""
    return np.array(kernel.log_parameters if isinstance(kernel, covariances.Covariance) else kernel.theta)


def bounds_of(kernel):
    """Return the bounds of theta, (n, 2)."""
    with np.errstate(divide="ignore", invalid="ignore"):  # of bounds that are not positive
        bounds = kernel.log_bounds if isinstance(kernel, covariances.Covariance) else kernel.bounds
    return np.reshape(bounds, (-1, 2))


def with_theta(kernel, theta):
    """Return a kernel with other parameters."""
    if isinstance(kernel, covariances.Covariance):
        return kernel.with_log_parameters(theta)
    return kernel.clone_with_theta(theta)


def _list_entries(kernel):
    """Return what every entry of theta stands for: its place in a parameter, the parameter's name, and its bounds."""
    if isinstance(kernel, covariances.Covariance):
        return [(slot.index or 0, f"{slot.label}.{slot.name}", slot.bounds) for slot in slots.list_free_slots(kernel)]
    free = [parameter for parameter in kernel.hyperparameters if not parameter.fixed]
    return [(i, parameter.name, parameter.bounds[i]) for parameter in free for i in range(parameter.n_elements)]


def warn_at_bounds(kernel):
    """Warn about learnt parameters at one of their bounds, in scikit-learn's words."""
    close = np.isclose(bounds_of(kernel), theta_of(kernel)[:, None])
    if not close.any():
        return
    for (index, name, bounds), (low, high) in zip(_list_entries(kernel), close, strict=True):
        if low or high:
            side, more, bound = ("lower", "Decreasing", bounds[0]) if low else ("upper", "Increasing", bounds[1])
            warn(
                f"The optimal value found for dimension {index} of parameter {name} is close to the specified {side} "
                f"bound {bound}. {more} the bound and calling fit again may find a better value.",
                UnfinishedWarning,
            )
