"""The posterior of a Gaussian mixture: predictions for rows, and updates with more of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from cavity.base import arrays
from cavity.base.errors import check_within_range
from cavity.base.frames import check_same_names, name_coefficients
from cavity.base.observation_digest import join_digests
from cavity.base.public_objects import Data, FloatArray, IntArray, Seed
from cavity.base.records import NONNEGATIVE_REAL, Nullable, Part, declare, names
from cavity.base.results import SummaryMixin, VariationalPosterior, declare_common, format_count, freeze_arrays
from cavity.base.summary import make_beta_marginals, make_student_marginals
from cavity.jobs.job import Event, Job
from cavity.mean_field import engine
from cavity.mean_field.options import AscentOptions
from cavity.models.mixture import predictive
from cavity.models.mixture.rows import open_rows
from cavity.models.mixture.saved import MODEL_SETTINGS, POSTERIOR_RECORD
from cavity.models.mixture.scaling import Scaling
from cavity.models.mixture.state import MixtureState, merge_states
from cavity.models.mixture.sweep import MixtureSweeps
from cavity.sources.chunkwise import map_chunks
from cavity.sources.dataset import Dataset

if TYPE_CHECKING:
    from cavity.models.mixture.model import GaussianMixture

UNKNOWN_OUTCOME = {"elbo": None, "n_iter": 0, "converged": False, "contraction": None, "predicted_gap": np.inf}


@dataclass(frozen=True, slots=True, eq=False, repr=False, kw_only=True)
class GaussianMixturePosterior(SummaryMixin, VariationalPosterior):
    """The approximate posterior of a `GaussianMixture` fit.

    Notes
    -----
    `n_samples` is the sum of the weights of all rows. After `update`, `elbo` is that of the new data given the old, and
    `observation_digest` that of the new rows; `elbo` is None where no pass over all data computed it: after `merge` and
    `forget`, and of an iterator seen once, where the digest is None as well. With moves `trace` has "moves", the passes
    after which one had been accepted.
    """

    n_samples: float = declare_common("n_samples", NONNEGATIVE_REAL)
    model: GaussianMixture = declare(MODEL_SETTINGS, "The settings, those that came from the data included.")
    counts: FloatArray = declare(None, "Expected number of rows of each component, sum_n w_n q(z_n = k), (K,).")
    columns: tuple[str, ...] | None = declare_common("columns", Nullable(names("D")))
    roles: dict[str, Any] | None = declare_common("roles")
    _state: MixtureState
    _prior: MixtureState
    _scaling: Scaling = declare(Part(Scaling))

    kind: ClassVar[str] = "gaussian_mixture"
    record: ClassVar[Any] = POSTERIOR_RECORD

    def __post_init__(self) -> None:
        VariationalPosterior.__post_init__(self)
        for state in (self._state, self._prior):
            freeze_arrays(state.weights)
            freeze_arrays(state.factors)

    @property
    def weights(self) -> FloatArray:
        """Expected probabilities of the components, (K,)."""
        return self._state.weights.mean()

    @property
    def weight_concentration(self) -> FloatArray:
        """Parameters of q(pi): of the Dirichlet (K,), or of the Beta of each stick (K - 1, 2)."""
        return self._state.weights.concentration

    @property
    def mean(self) -> FloatArray:
        """Expected component means, (K, D), in the units of the data."""
        with np.errstate(over="ignore"):
            return check_within_range(self._scaling.to_user_rows(self._state.factors.mean), "mean: its entries")

    @property
    def mean_precision(self) -> FloatArray:
        """How many observations each mean is known from, prior included, (K,); (K, D) where values were missing."""
        beta = self._state.factors.beta
        return beta[:, 0] if beta.shape[1] == 1 else beta

    @property
    def degrees_of_freedom(self) -> FloatArray:
        """Degrees of freedom of q(L): (K,) for full and spherical, a number for tied, (K, D) for diag covariances."""
        return self._plain(self._state.factors.nu)

    @property
    def inverse_scale(self) -> FloatArray:
        """Inverse scale of q(L): (K, D, D) full, (D, D) tied, (K, D) diag, (K,) spherical; in squared data units."""
        return self._squares(self._state.factors.scatter, "inverse_scale")

    @property
    def covariance(self) -> FloatArray:
        """The inverse of the expected precision, inverse_scale/degrees_of_freedom, in the shape of the former."""
        factors = self._state.factors
        nu = factors.nu[:, None, None] if self._state.full else factors.nu
        with np.errstate(over="ignore"):
            return self._squares(factors.scatter / nu, "covariance")

    def component_covariances(self) -> FloatArray:
        """Return the covariance matrices of all components, whatever kind they are.

        Returns
        -------
        ndarray (K, D, D)
            `covariance` as full matrices, one for each component.
        """
        k, dim = self.mean.shape
        if self._state.full:
            return np.array(np.broadcast_to(self.covariance, (k, dim, dim)))
        result = np.zeros((k, dim, dim))
        result[:, range(dim), range(dim)] = self.covariance.reshape(k, -1)
        return result

    def _marginals(self):
        """Those of the weights and of the means, component by component."""
        weights, factors = self._state.weights, self._state.factors
        mean, (k, dim) = self.mean, factors.mean.shape
        scatter = np.einsum("kii->ki", factors.scatter) if self._state.full else factors.scatter
        degrees = np.broadcast_to(factors.nu[:, None] + 1.0 - dim if self._state.full else factors.nu, mean.shape)
        with np.errstate(over="ignore"):
            scale = np.sqrt(scatter / (factors.beta * degrees)) / self._scaling.scale
        columns = name_coefficients(self.columns, dim)
        marginals = [make_beta_marginals(tuple(f"weight[{i}]" for i in range(k)), weights.mean(), weights.variance())]
        for i in range(k):
            names = tuple(f"mean[{i}, {column}]" for column in columns)
            marginals.append(
                make_student_marginals(names, mean[i], check_within_range(scale[i], "summary: scales"), degrees[i])
            )
        return marginals

    def _squares(self, scatter, name):
        """Squares in the units of the data, in the shape that they have there."""
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            squares = self._scaling.to_user_squares(scatter)
        return self._plain(check_within_range(squares, f"{name}: its entries"))

    def _plain(self, values):
        """Drop the axis that one kind of covariance does not have."""
        if self.model.covariance == "tied":
            return float(values[0]) if values.ndim == 1 else values[0]
        return values[:, 0] if self.model.covariance == "spherical" else values

    @map_chunks(lambda self: (len(self.counts),))
    def responsibilities(self, X: Data) -> FloatArray:
        """Return the probability of each component for each row.

        Parameters
        ----------
        X : array_like (N, D), data frame, path, or list of paths
            Rows, as for `GaussianMixture.fit`.

        Returns
        -------
        ndarray (N, K)
            q(z_n = k) as in the last sweep of a fit, rows sum to 1. Here and below a lazy dask array where X is a
            collection of dask.

        Raises
        ------
        ValueError, TypeError
            If X does not hold rows of D finite numbers.
        OverflowError
            If a row is so far from every component that its squared distance overflows.

        Examples
        --------
        >>> import cavity
        >>> X = [[-3.2], [-2.7], [-3.0], [-2.9], [-3.1], [2.4], [2.2], [2.5], [2.3], [2.0]]
        >>> posterior = cavity.GaussianMixture(2, covariance="spherical", covariance_prior=0.1).fit(X)
        >>> posterior.responsibilities([[-3.0], [-0.3], [2.3]]).round(2).tolist()
        [[1.0, 0.0], [0.45, 0.55], [0.0, 1.0]]
        """
        return self._evaluate(X, predictive.compute_log_weights, predictive.compute_shares, (len(self.counts),))

    @map_chunks(dtype=lambda self: np.intp)
    def predict(self, X: Data) -> IntArray:
        """Return the most probable component of each row.

        Parameters
        ----------
        X : array_like (N, D), data frame, path, or list of paths
            The rows.

        Returns
        -------
        ndarray of int (N,)
            Numbers of components, from 0.
        """
        return self._evaluate(X, predictive.compute_log_weights, lambda logs: np.argmax(logs, axis=1), dtype=np.intp)

    @map_chunks()
    def log_density(self, X: Data) -> FloatArray:
        """Return the log of the posterior predictive density of each row, a mixture of Student-t densities.

        Parameters
        ----------
        X : array_like (N, D), data frame, path, or list of paths
            Rows. With "diag" and "spherical" covariances nan is integrated over.

        Returns
        -------
        ndarray (N,)
            Log densities, per unit of the data.

        Raises
        ------
        ValueError, TypeError
            If X does not hold rows of D finite numbers.
        OverflowError
            If a row is so far from every component that its squared distance overflows.

        References
        ----------
        Christopher Bishop, "Pattern Recognition and Machine Learning", Springer, 2006, (10.81) and (10.82).
        """
        return self._evaluate(X, predictive.compute_log_density, lambda logs: logs)

    def sample(self, n: int, rng: Seed) -> FloatArray:
        """Draw new rows from the posterior predictive distribution.

        Parameters
        ----------
        n : int
            Number of draws.
        rng : seed or numpy.random.Generator
            Source of randomness; a seed gives the same bits again.

        Returns
        -------
        ndarray (n, D)
            The draws, independent of each other given the posterior.

        Raises
        ------
        OverflowError
            If a draw leaves the range of float64, as those of next to no degrees of freedom do.
        """
        n, generator = arrays.check_integer(n, "n", low=0), arrays.make_generator(rng)
        return draw(self, n, generator)[0]

    def update(
        self,
        X: Data,
        *,
        sample_weight: Data | None = None,
        accelerate: bool | Literal["anderson", "squarem"] = True,
        max_iter: int = 1000,
        tol: float = 1e-10,
        n_threads: int | None = None,
        callback: Callable[[Event], object] | None = None,
        progress: bool = False,
    ) -> GaussianMixturePosterior:
        """Fit more data with this posterior as the prior; the components start where they are.

        Parameters
        ----------
        X : array_like (N, D), data frame, path, or list of paths
            The rows.
        sample_weight : array_like (N,), name of a column of X, or path, optional
            A row of weight w counts as w copies; 0 leaves it out.
        accelerate : bool or {"anderson", "squarem"}, default True
            How to extrapolate from the last sweeps (`cavity.mean_field.fit`).
        max_iter : int, default 1000
            Most passes over the data, those of rejected extrapolations included.
        tol : float, default 1e-10
            Stopping rule: the predicted remaining gain of the ELBO is at most tol nats per row.
        n_threads : int, optional
            Threads; the result has the same bits for any number. -1 is all cores; by default as many as the process may
            use and the work is worth, at most CAVITY_NUM_THREADS.
        callback : callable, optional
            Called as callback(event) with a `cavity.Event` after each pass; a true result stops the fit and keeps what
            is known.
        progress : bool, default False
            Whether to show progress on stderr: a bar where tqdm is installed, else lines.

        Returns
        -------
        GaussianMixturePosterior
            Of all data; its ELBO is that of the new data given the old.

        Examples
        --------
        >>> import cavity
        >>> model = cavity.GaussianMixture(2, covariance="spherical", covariance_prior=0.1)
        >>> first = model.fit([[-3.2], [-2.7], [-3.0], [2.4], [2.2], [2.5]])
        >>> both = first.update([[-2.9], [1.8], [2.6]])
        >>> both.n_samples, both.counts.round(2).tolist()
        (9.0, [4.0, 5.0])
        """
        job = Job.checked(callback, progress)
        run = AscentOptions(accelerate=accelerate, max_iter=max_iter, tol=tol, n_threads=n_threads, job=job)
        names = self.columns, self.roles
        dataset = Dataset.open(X, {"sample_weight": sample_weight}, *names, remote=True, streamed=("sample_weight",))
        data = dataset.sources()
        with run.open(self.model, data) as threads:
            rows = open_rows(*data.values(), threads, len(self.counts), self.model.covariance, scaling=self._scaling)
            prior = replace(self._state, factors=self._state.factors.widen()) if rows.missing else self._state
            done = engine.ascend(MixtureSweeps(prior, rows, threads), prior, run)
        state = replace(done.state, counts=prior.counts + done.image.counts)
        outcome = engine.report_outcome(done, rows.n_samples, run) | {"observation_digest": rows.digest}
        outcome |= {"columns": self.columns or dataset.names, "roles": dataset.roles}
        return self._changed(state, self.n_samples + rows.n_samples, **outcome)

    def merge(self, other: GaussianMixturePosterior) -> GaussianMixturePosterior:
        """Return the posterior that counts the data of two shards, fitted from one prior each.

        Parameters
        ----------
        other : GaussianMixturePosterior
            Of other data, from a model with the same priors; `GaussianMixture.with_defaults` makes them independent of
            the data. Its components are matched to those of `self` by their means and covariances, unless the prior
            distinguishes them.

        Returns
        -------
        GaussianMixturePosterior
            Natural parameters of both less those of the prior, which would count twice. No pass over data was made:
            `elbo` is None and `converged` False.

        Raises
        ------
        ValueError
            If models or priors differ.
        NotPositiveDefiniteError
            If what the shards have learnt contradicts each other so much that no distribution is left.
        """
        if not isinstance(other, GaussianMixturePosterior):
            raise TypeError(f"other must be a GaussianMixturePosterior, got {type(other).__name__}")
        for name in ("n_components", "covariance", "weights"):
            a, b = getattr(self.model, name), getattr(other.model, name)
            if a != b:
                raise ValueError(f"other must be of a model with the same {name}, got {b!r} instead of {a!r}")
        a, b = self._state.factors.mean.shape[1], other._state.factors.mean.shape[1]
        if a != b:
            raise ValueError(f"other must be of data with {a} columns, got {b}")
        columns = check_same_names(self.columns, other.columns)
        others = (state.rescale(other._scaling, self._scaling) for state in (other._state, other._prior))
        state = merge_states(self._state, self._prior, *others)
        digest = join_digests(self.observation_digest, other.observation_digest)
        metadata = {"columns": columns, "roles": self.roles or other.roles, "observation_digest": digest}
        return self._changed(
            state, self.n_samples + other.n_samples, status="merged", trace={}, **metadata, **UNKNOWN_OUTCOME
        )

    def forget(self, factor: float) -> GaussianMixturePosterior:
        """Return the posterior with all data counting less, for streams that change.

        Parameters
        ----------
        factor : float in (0, 1]
            What each row seen so far counts from now on.

        Returns
        -------
        GaussianMixturePosterior
            Natural parameters factor times the old plus 1 - factor times the prior; `elbo` is None.
        """
        factor = arrays.check_number(factor, "factor", low=0, high=1, closed_high=True)
        state = MixtureState.combine([(factor, self._state), (1.0 - factor, self._prior)])
        return self._changed(state, factor * self.n_samples, status="forgotten in part", trace={}, **UNKNOWN_OUTCOME)

    def _changed(self, state, n_samples, **changes):
        """Return the posterior of a state of other data, with other changes."""
        return replace(self, counts=state.counts, n_samples=n_samples, _state=state, **changes)

    def _evaluate(self, X, logs_of, finish, shape=(), dtype=np.float64):
        """Return finish(logs_of(rows)) of all rows, (N, *shape), where every row has a finite log."""
        X = Dataset.open(X, None, self.columns, self.roles).X
        return predictive.evaluate_by_blocks(X, self._state, self._scaling, logs_of, finish, shape, dtype)

    def __repr__(self) -> str:
        k, dim = self._state.factors.mean.shape
        size = f"{format_count(dim, 'column')}, {format_count(k, f'{self.model.covariance} component')}"
        title = f"GaussianMixturePosterior: {'1 row' if self.n_samples == 1 else f'{self.n_samples:g} rows'} of {size}"
        return self._described(title, weights=self.weights, counts=self.counts)


def build_posterior(model, sweeps, done, columns=None, roles=None, **outcome):
    """Return the posterior that a fit has led to.

    Parameters
    ----------
    model : GaussianMixture
        The converged one.
    sweeps : MixtureSweeps
        The prior and the data.
    done : MeanFieldFit
        The fit; the counts are those of its image.
    columns, roles : optional
        Fields of the posterior.
    **outcome
        The fields of a `VariationalPosterior`.
    """
    state = replace(done.state, counts=np.array(done.image.counts))
    return GaussianMixturePosterior(
        model=model,
        n_samples=float(sweeps.n_samples),
        counts=state.counts,
        columns=columns,
        roles=roles,
        _state=state,
        _prior=sweeps.prior,
        _scaling=sweeps.data.scaling,
        **outcome,
    )


def get_factors(posterior):
    """Return all factors of a posterior, in coordinates, and the `Scaling` of these."""
    return posterior._state, posterior._scaling


def draw(posterior, n, generator):
    """Return n draws (n, D) from the predictive distribution, in the units of the data, and their components (n,)."""
    return predictive.sample(posterior._state, posterior._scaling, n, generator)
