"""What the factorised approximation of a Gaussian is, and the true marginals beside it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from cavity.base import arrays
from cavity.base.constants import LOG_2PI
from cavity.base.public_objects import ArrayLike, FloatArray, FloatOrArray, Frozen, Seed
from cavity.base.records import Array, Part, Record, Setting, declare
from cavity.base.results import SummaryMixin, VariationalPosterior, format_table
from cavity.base.summary import make_gaussian_marginals
from cavity.models.factorized.target import get_target

if TYPE_CHECKING:
    from cavity.models.factorized.model import FactorizedGaussian

BLOCKS_SETTING = Setting(  # that they are a partition is for the model to say
    "lists of coordinates",
    lambda blocks: isinstance(blocks, list) and all(isinstance(block, list) for block in blocks),
)
TRACE_ARRAYS = {"trace_kl?": Array("kl", "any"), "trace_excess?": Array("excess", "any")}  # beside that of all


def check_points(z, size):
    """Return points (size,) or (n, size), checked."""
    points = arrays.check_finite_array(z, "z", ndim=(1, 2))
    if points.shape[-1] != size:
        raise ValueError(f"z must be points of {size} coordinates, got shape {points.shape}")
    return points


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Marginals(Frozen):
    """The product of the true marginals of p, which minimises KL(p || q) over factorised q.

    Attributes
    ----------
    mean : ndarray (D,)
        Mean of p.
    variance : ndarray (D,)
        Diagonal of the covariance of p.
    kl : float
        KL(p || q) of this product, in nats.
    kl_mean_field : float
        KL(p || q) of the best q in the sense of KL(q || p), in nats; never less than `kl`.
    """

    mean: FloatArray
    variance: FloatArray
    kl: float
    kl_mean_field: float
    _covariances: tuple | None

    def __repr__(self) -> str:
        return format_table(
            f"Marginals: {len(self.mean)} coordinates",
            [
                ("mean", np.array2string(self.mean, precision=4, threshold=8)),
                ("sd", np.array2string(np.sqrt(self.variance), precision=4, threshold=8)),
                ("kl", f"{self.kl:.6f}"),
                ("kl_mean_field", f"{self.kl_mean_field:.6f}"),
            ],
        )

    @property
    def block_covariances(self) -> tuple[FloatArray, ...]:
        """A covariance matrix for every block, in the order of its coordinates."""
        if self._covariances is None:
            return tuple(self.variance[:, None, None])
        return tuple(matrix for _, matrix in self._covariances)


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class FactorizedGaussianPosterior(SummaryMixin, VariationalPosterior):
    """The factorised approximation q of a Gaussian p that `FactorizedGaussian.fit` found.

    Notes
    -----
    `elbo` is -KL(q || p): p is normalised, so its log evidence is 0, and `predicted_gap` is how far `kl` is above its
    minimum, not a prediction as for other models. Of every sweep, those after rejected extrapolations included, `trace`
    has, for the q before it, "kl" = -"elbo", and "excess", what is above the minimum; "change", half the squared
    distance that the sweep moved, in standard deviations; "contraction", the rate at which that shrinks.
    """

    mean: FloatArray = declare(Array("D"), "Mean of q.")
    model: FactorizedGaussian = declare(Part({"mean": Array("D"), "precision": Array("D D")}, "p_"), "p, in blocks.")

    kind: ClassVar[str] = "factorized"
    record: ClassVar[Any] = Record(TRACE_ARRAYS, {"blocks?": BLOCKS_SETTING}, places={"blocks": "model.blocks"})

    def __repr__(self) -> str:
        return format_table(
            f"FactorizedGaussianPosterior: {len(self.mean)} coordinates in {self.model.n_blocks} blocks",
            [
                ("mean", np.array2string(self.mean, precision=4, threshold=8)),
                ("sd", np.array2string(np.sqrt(self.variance), precision=4, threshold=8)),
                ("contraction", "not measured" if self.contraction is None else f"{self.contraction:.4g} per sweep"),
                *self.outcome_rows(),
            ],
        )

    @property
    def kl(self) -> float:
        """KL(q || p), in nats."""
        return -self.elbo

    @property
    def kl_reverse(self) -> float:
        """KL(p || q), in nats; the least that a factorised q can have is ``marginals.kl``. As costly as `marginals`."""
        u = get_target(self.model).standard(self.mean - self.model.mean)
        return self.marginals.kl_mean_field + 0.5 * float(u @ u)

    @property
    def marginals(self) -> Any:
        """`FactorizedGaussian.marginals`: the factors that minimise KL(p || q), for comparison."""
        return self.model.marginals

    @property
    def theoretical_contraction(self) -> float:
        """`FactorizedGaussian.theoretical_contraction`, to compare with the measured `contraction`."""
        return self.model.theoretical_contraction

    @cached_property
    def variance(self) -> FloatArray:
        """Variances of q, (D,): without blocks 1/Lambda_ii, never larger than those of p."""
        target = get_target(self.model)
        if target.factors is None:
            return arrays.make_read_only(1.0 / target.diagonal)
        variance = np.empty(len(self.mean))
        for indices, root in target.block_roots():
            variance[indices] = np.einsum("ij,ij->j", root, root)
        return arrays.make_read_only(variance)

    @property
    def block_covariances(self) -> tuple[FloatArray, ...]:
        """Lambda_BB^-1 for every block, in the order of its coordinates."""
        target = get_target(self.model)
        if target.factors is None:
            return tuple(self.variance[:, None, None])
        return tuple(arrays.make_read_only(root.T @ root) for _, root in target.block_roots())

    def _marginals(self):
        """Those of the coordinates."""
        return make_gaussian_marginals(
            tuple(f"z{i + 1}" for i in range(len(self.mean))), self.mean, np.sqrt(self.variance)
        )

    def log_density(self, z: ArrayLike) -> FloatOrArray:
        """Return log q(z), normalised.

        Parameters
        ----------
        z : array_like, shape (D,) or (n, D)
            Points.

        Returns
        -------
        float or ndarray (n,)
            One log density a point.
        """
        with np.errstate(over="ignore"):  # the log of nothing is -inf
            u = get_target(self.model).standard(check_points(z, len(self.mean)) - self.mean)
            return get_target(self.model).log_root - 0.5 * (len(self.mean) * LOG_2PI + np.sum(u * u, axis=-1))

    def entropy(self) -> float:
        """Return the entropy of q.

        Returns
        -------
        float
            In nats.
        """
        return 0.5 * len(self.mean) * (1.0 + LOG_2PI) - get_target(self.model).log_root

    def sample(self, n: int, rng: Seed) -> FloatArray:
        """Draw from q.

        Parameters
        ----------
        n : int
            Number of draws.
        rng : seed or numpy.random.Generator
            Source of randomness; a seed gives the same bits again.

        Returns
        -------
        ndarray (n, D)
            One point a row.
        """
        shape = (arrays.check_integer(n, "n", low=0), len(self.mean))
        return self.mean + get_target(self.model).deviations(arrays.make_generator(rng).standard_normal(shape))
