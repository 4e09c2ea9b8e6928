"""A kernel as the covariance of a function, the white noise on top of it, and the way back."""

from dataclasses import dataclass

import numpy as np

from cavity.covariances import Covariance, Sum, White, slots
from cavity.sklearn.gp import kernels

ROUNDING_RATIO = 1.0 + 1e-9  # ratio of numbers that differ by rounding


@dataclass(frozen=True, slots=True, eq=False)
class KernelParts:
    """A kernel taken apart. Its bounds are those of the covariances."""

    kernel: object  # of either library, as it was given
    linked: kernels.LinkedCovariance  # all of it as one covariance
    covariance: Covariance  # without the noise
    noise: White | None
    alpha: float  # variance of more noise, which is not the kernel's

    @property
    def learns_noise(self):
        """Whether the variance of the noise is free."""
        return self.noise is not None and not self.noise.fixed

    @property
    def noise_variance(self):
        """The variance of the noise, 0 without any."""
        return 0.0 if self.noise is None else self.noise.variance

    def noise_in(self, total):
        """Return the variance of the noise in a total with `alpha`: the nearest that it may have."""
        if not self.learns_noise:
            return self.noise_variance
        low, high = slots.get_bounds(self.noise)[0]
        return float(np.clip(total - self.alpha, low, high))

    def allow(self, total):
        """Return whether the noise may be what a total leaves for it."""
        possible = self.alpha + self.noise_in(total)
        return max(possible, total) <= ROUNDING_RATIO * min(possible, total)

    def check_learnable(self):
        """Raise ValueError if parameters are tied, as those in a power, or if the noise has priors: these get lost."""
        if len(set(self.linked.index)) < len(self.linked.index):
            raise ValueError(
                f"kernel {self.kernel!r} cannot be learnt from a stream: a power repeats its parameters; write it as "
                "another kernel, fix its parameters, or set learn=False"
            )
        if self.learns_noise and self.noise.priors:
            raise ValueError(
                f"kernel must not have priors of white noise that is learnt from a stream, got {self.noise!r}"
            )

    def with_values(self, covariance, noise_variance=None):
        """Return the kernel with the parameters of such a covariance and, if the noise is free, that variance of it."""
        joint, values = self.linked.covariance, covariance.log_parameters
        if self.learns_noise:
            before = next(i for i, slot in enumerate(slots.list_free_slots(joint)) if slot.leaf == self.noise)
            values = np.insert(values, before, np.log(noise_variance))
        if isinstance(self.kernel, Covariance):
            return self.kernel.with_log_parameters(values)
        theta = kernels.theta_of(self.kernel)
        theta[list(self.linked.index)] += (values - joint.log_parameters) / self.linked.scale
        return kernels.with_theta(self.kernel, theta)


def split_noise(kernel, n_features, alpha=0.0):
    """Return the `Parts` of a kernel of either library for rows of D columns and noise of variance alpha on top.

    Raises ValueError for noise that is not a term of a sum, or several terms, or all there is.
    """
    linked = kernels.link_kernel(kernel, n_features)
    if not isinstance(kernel, Covariance):
        linked = _copy_bounds(linked, kernels.theta_of(kernel), kernels.bounds_of(kernel))
    joint = linked.covariance
    terms = joint.parts if isinstance(joint, Sum) else (joint,)
    noise = [term for term in terms if isinstance(term, White)]
    rest = tuple(term for term in terms if not isinstance(term, White))
    hidden = any(isinstance(leaf, White) for term in rest for leaf in slots.list_leaves(term))
    if hidden or len(noise) > 1:
        raise ValueError(f"kernel must hold white noise once at most, as a term of a sum, got {kernel!r}")
    if not rest:
        raise ValueError(f"kernel must hold more than white noise, got {kernel!r}")
    return KernelParts(kernel, linked, Sum(rest) if len(rest) > 1 else rest[0], noise[0] if noise else None, alpha)


def _copy_bounds(linked, theta, bounds):
    """Return a translated kernel whose covariance has the bounds of theta, which are logs."""
    index, scale = list(linked.index), np.array(linked.scale)[:, None]
    values = slots.get_values(linked.covariance)[:, None]
    with np.errstate(over="ignore", under="ignore"):  # a value that is its bound stays so to the last bit
        limits = values * np.exp(scale * (bounds[index] - theta[index, None]))
    rows = iter(np.clip(limits, *kernels.WIDEST_BOUNDS).tolist())
    leaves = [_copy_leaf_bounds(leaf, rows) for leaf in slots.list_leaves(linked.covariance)]
    return kernels.LinkedCovariance(slots.rebuild(linked.covariance, iter(leaves)), linked.index, linked.scale)


def _copy_leaf_bounds(leaf, rows):
    """Return a leaf with the bounds that come next from an iterator over its free numbers."""
    bounds = {}
    for name in slots.list_free_names(leaf):
        low, high = zip(*(next(rows) for _ in range(np.size(getattr(leaf, name)))), strict=True)
        if max(low) > ROUNDING_RATIO * min(low) or max(high) > ROUNDING_RATIO * min(high):
            pairs = list(zip(low, high, strict=True))
            raise ValueError(f"the bounds of a {name} must be the same for all columns, got {pairs}")
        bounds[name] = min(low), max(high)
    return slots.replace_arguments(leaf, bounds=bounds)
