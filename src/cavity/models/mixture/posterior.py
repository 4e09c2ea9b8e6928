"""The posterior of a Gaussian mixture: what it says about rows, and how it goes on with more of them."""

from dataclasses import dataclass, replace

import numpy as np
from scipy.special import logsumexp, softmax

from cavity.base import arrays
from cavity.base.constants import LOG_PI
from cavity.base.errors import within_range
from cavity.base.frames import check_alike, in_order
from cavity.base.results import VariationalPosterior, freeze, table
from cavity.base.special import log_gamma_ratio
from cavity.blocks.executors import Threads
from cavity.models.mixture import posterior
from cavity.models.mixture.data import check_rows, open_rows
from cavity.models.mixture.saved import RECORD
from cavity.models.mixture.state import Frame, State
from cavity.models.mixture.sweep import Expectation, block_rows, check_reached

SAME_PRIOR = 1e-9  # relative difference of natural parameters that pass for the same prior
UNKNOWN = {"elbo": None, "converged": False, "n_iter": 0, "contraction": None, "predicted_gap": np.inf}


@dataclass(frozen=True, slots=True, eq=False, repr=False, kw_only=True)
class GaussianMixturePosterior(VariationalPosterior):
    """The approximate posterior of a `GaussianMixture` fit.

    Attributes
    ----------
    model : GaussianMixture
        The settings, those that came from the data included.
    n_samples : float
        N, the sum of the weights of all rows.
    counts : ndarray (K,)
        Expected number of rows of each component, sum_n w_n q(z_n = k).
    elbo : float or None
        The evidence lower bound, in nats, with all constants; after `update` that of the new data given the old. None
        where no pass over all data computed it: after `merge` and `forget`, and of an iterator seen once.
    converged : bool
        Whether the stopping rule was met.
    status : str
        Why the iteration ended.
    n_iter : int
        Passes over the data.
    trace : dict of ndarray
        Per pass: "elbo" of the best state so far, "change" that its sweep made (nats), "contraction". Of a stochastic
        fit: "step", the step sizes. With moves: "moves", the passes after which one had been accepted.
    contraction : float or None
        The measured rate at which errors shrink per sweep; None if nothing was there to shrink.
    predicted_gap : float
        How far the ELBO is below its local optimum by that rate, in nats.
    columns : tuple of str or None
        Names of the columns of X, if it was a data frame: those of later data frames are put in their order.
    """

    model: object
    n_samples: float
    counts: np.ndarray
    columns: tuple | None = None
    _state: State
    _prior: State
    _frame: Frame

    kind = "gaussian_mixture"
    record = RECORD

    def __post_init__(self):
        self._freeze()
        for state in (self._state, self._prior):
            freeze(state.weights)
            freeze(state.factors)

    @classmethod
    def _of(cls, model, state, prior, frame, n_samples, outcome, columns=None):
        """Return the posterior of a state; the counts are those of the state."""
        state = replace(state, counts=np.array(state.counts))
        return cls(
            model=model,
            n_samples=float(n_samples),
            counts=state.counts,
            columns=columns,
            _state=state,
            _prior=prior,
            _frame=frame,
            **outcome,
        )

    @property
    def weights(self):
        """Expected probabilities of the components, (K,)."""
        return self._state.weights.mean()

    @property
    def weight_concentration(self):
        """Parameters of q(pi): of the Dirichlet (K,), or of the Beta of each stick (K - 1, 2)."""
        return self._state.weights.concentration

    @property
    def mean(self):
        """Expected component means, (K, D), in the units of the data."""
        with np.errstate(over="ignore"):
            return within_range(self._frame.user_rows(self._state.factors.mean), "mean: its entries")

    @property
    def mean_precision(self):
        """How many observations each mean is known from, prior included, (K,); (K, D) where values were missing."""
        beta = self._state.factors.beta
        return beta[:, 0] if beta.shape[1] == 1 else beta

    @property
    def degrees_of_freedom(self):
        """Degrees of freedom of q(L): (K,) for full and spherical, a number for tied, (K, D) for diag covariances."""
        return self._plain(self._state.factors.nu)

    @property
    def inverse_scale(self):
        """Inverse scale of q(L): (K, D, D) full, (D, D) tied, (K, D) diag, (K,) spherical; in squared data units."""
        return self._squares(self._state.factors.scatter, "inverse_scale")

    @property
    def covariance(self):
        """The inverse of the expected precision, inverse_scale/degrees_of_freedom, in the shape of the former."""
        factors = self._state.factors
        nu = factors.nu[:, None, None] if self._state.full else factors.nu
        with np.errstate(over="ignore"):
            return self._squares(factors.scatter / nu, "covariance")

    def component_covariances(self):
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

    def _squares(self, scatter, name):
        """Squares in the units of the data, in the shape that they have there."""
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            squares = self._frame.user_squares(scatter)
        return self._plain(within_range(squares, f"{name}: its entries"))

    def _plain(self, values):
        """Drop the axis that one kind of covariance does not have."""
        if self.model.covariance == "tied":
            return float(values[0]) if values.ndim == 1 else values[0]
        return values[:, 0] if self.model.covariance == "spherical" else values

    def responsibilities(self, X):
        """Return the probability of each component for each row.

        Parameters
        ----------
        X : array_like (N, D), data frame, path, or list of paths
            Rows, as for `GaussianMixture.fit`.

        Returns
        -------
        ndarray (N, K)
            q(z_n = k) as in the last sweep of a fit, rows sum to 1.

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
        return self._by_blocks(X, self._log_weights, lambda logs: softmax(logs, axis=1), (len(self.counts),))

    def predict(self, X):
        """Return the most probable component of each row.

        Parameters
        ----------
        X : array_like (N, D), data frame, path, or list of paths
            Rows.

        Returns
        -------
        ndarray of int (N,)
            Numbers of components, from 0.
        """
        return self._by_blocks(X, self._log_weights, lambda logs: np.argmax(logs, axis=1), (), np.intp)

    def log_density(self, X):
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
        return self._by_blocks(X, self._log_densities, lambda logs: logs[:, 0], ())

    def sample(self, n, rng):
        """Draw new rows from the posterior predictive distribution.

        Parameters
        ----------
        n : int
            How many.
        rng : seed or numpy.random.Generator
            Source of randomness.

        Returns
        -------
        ndarray (n, D)
            The draws, independent of each other given the posterior.

        Raises
        ------
        OverflowError
            If a draw leaves the range of float64, as those of next to no degrees of freedom do.
        """
        n, generator = arrays.integer(n, "n", low=0), arrays.generator(rng)
        return posterior.sample(self._state, self._frame, n, generator)[0]

    def update(self, X, **options):
        """Fit more data with this posterior as the prior.

        Parameters
        ----------
        X : array_like (N, D), path, or list of paths
            More data.
        **options
            `sample_weight`, `accelerate`, `max_iter`, `tol`, `n_threads` and `callback`, as for `GaussianMixture.fit`;
            components start where they are.

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
        return self.model._continued(self, X, **options)

    def merge(self, other):
        """Return the posterior that counts the data of two shards, fitted from one prior each.

        Parameters
        ----------
        other : GaussianMixturePosterior
            Of other data, from a model with the same priors; `GaussianMixture.settle` makes them independent of the
            data. Its components are matched to those of `self` by their means and covariances, unless the prior
            tells them apart.

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
        return _merged(self, other)

    def forget(self, factor):
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
        factor = arrays.number(factor, "factor", low=0, high=1, closed_high=True)
        state = State.combined([(factor, self._state), (1.0 - factor, self._prior)])
        return self._changed(state, factor * self.n_samples, "forgotten in part")

    def _changed(self, state, n_samples, status, columns=None):
        """Return the posterior of a state that no fit led to."""
        outcome = UNKNOWN | {"status": status, "trace": {}}
        columns = self.columns if columns is None else columns
        return self._of(self.model, state, self._prior, self._frame, n_samples, outcome, columns)

    def _log_weights(self, rows):
        missing = bool(np.isnan(rows).any())
        return Expectation.of(self._state, self._frame, missing=missing).log_weights(rows)

    def _log_densities(self, rows):
        return posterior.log_density(self._state, self._frame, rows)[:, None]

    def _by_blocks(self, X, logs_of, finish, shape, dtype=float):
        """Return finish(logs_of(rows)) of all rows, (N, *shape), where every row has a finite log."""
        source = self._open(X)
        out = np.empty((source.n_rows, *shape), dtype=dtype)
        for index in range(source.block_count):
            start, stop = source.span(index)
            logs = logs_of(source.read(index))
            reached = np.isfinite(np.max(logs, axis=1))
            if not reached.all():
                check_reached(start + int(np.argmin(reached)), source.where)
            out[start:stop] = finish(logs)
        return out

    def _open(self, X):
        """Return rows as a source, with all numbers checked."""
        k, dim = self._state.factors.mean.shape
        full = self._state.full
        source = open_rows(in_order(X, self.columns), dim, lambda _, n_features: block_rows(k, n_features, full))
        with Threads(1) as thread:
            check_rows(source, thread, missing=not full)
        return source

    def __repr__(self):
        with np.printoptions(precision=6, threshold=6, edgeitems=2):
            rows = [("weights", np.array2string(self.weights)), ("counts", np.array2string(self.counts))]
        k, dim = self._state.factors.mean.shape
        kind = self.model.covariance
        title = f"GaussianMixturePosterior: {self.n_samples:g} rows of {dim} column(s), {k} {kind} component(s)"
        return table(title, [*rows, *self.outcome_rows()])


def _merged(first, second):
    """Return the posterior of the data of both."""
    if not isinstance(second, GaussianMixturePosterior):
        raise TypeError(f"other must be a GaussianMixturePosterior, got {type(second).__name__}")
    for name in ("n_components", "covariance", "weights"):
        a, b = getattr(first.model, name), getattr(second.model, name)
        if a != b:
            raise ValueError(f"other must be of a model with the same {name}, got {b!r} instead of {a!r}")
    a, b = first._state.factors.mean.shape[1], second._state.factors.mean.shape[1]
    if a != b:
        raise ValueError(f"other must be of data with {a} columns, got {b}")
    columns, prior = check_alike(first.columns, second.columns), first._prior
    other, other_prior = (state.reframed(second._frame, first._frame) for state in (second._state, second._prior))
    prior, other_prior = prior.as_wide_as(other_prior), other_prior.as_wide_as(prior)
    if not _alike(prior.natural(), other_prior.natural()):
        raise ValueError(
            "other must have the same priors; those that are None come from the data: use the model that settle returns"
        )
    if prior.exchangeable():
        other = other.matched(first._state, prior)
    state = State.combined([(1.0, first._state), (1.0, other), (-1.0, prior)])
    return first._changed(state, first.n_samples + second.n_samples, "merged", columns)


def _alike(a, b):
    return a.shape == b.shape and np.allclose(a, b, rtol=SAME_PRIOR, atol=SAME_PRIOR * np.max(np.abs(a)))


def log_density(state, frame, rows):
    """Return the log predictive density (n,) of rows in the units of the data; nan in a row is integrated over."""
    terms = _wishart_terms(state, frame, rows) if state.full else _gamma_terms(state, frame, rows)
    with np.errstate(divide="ignore"):  # an expected weight may underflow to zero
        terms += np.log(state.weights.mean())
    units = np.where(np.isnan(rows), 0.0, np.log(frame.scale))
    return logsumexp(terms, axis=1) + np.sum(units, axis=1)


def _wishart_terms(state, frame, rows):
    """The log t densities (n, K) of nu + 1 - D degrees of freedom."""
    factors, dim = state.factors, state.factors.mean.shape[1]
    beta, nu = factors.beta[:, 0], np.broadcast_to(factors.nu, len(factors.mean))
    logs = 2.0 * np.sum(np.log(np.diagonal(factors.factor, axis1=1, axis2=2)), axis=1)
    constant = log_gamma_ratio(0.5 * (nu + 1 - dim), 0.5 * dim)
    constant = constant - 0.5 * (dim * (LOG_PI + np.log1p(1.0 / beta)) + logs)
    terms = Expectation.of(state, frame).distances(rows)
    terms *= beta / (beta + 1.0) / nu
    np.log1p(terms, out=terms)
    terms *= -0.5 * (nu + 1)
    terms += constant
    return terms


def _gamma_terms(state, frame, rows):
    """The log t densities (n, K): of all columns that share a precision together, of each seen column alone if not."""
    factors = state.factors
    z, seen = frame.rows(rows), ~np.isnan(rows)
    terms = np.empty((len(rows), len(factors.mean)))
    beta = np.broadcast_to(factors.beta, factors.mean.shape)
    for k in range(len(factors.mean)):
        widening, nu, scatter = 1.0 + 1.0 / beta[k], factors.nu[k], factors.scatter[k]
        with np.errstate(over="ignore"):  # the callers refuse rows that are out of reach of all components
            square = np.where(seen, (z - factors.mean[k]) ** 2, 0.0) / widening / scatter
        logs = np.where(seen, LOG_PI + np.log(widening * scatter), 0.0)
        count = seen.astype(float)
        if len(nu) < z.shape[1]:
            square, count = np.sum(square, axis=1, keepdims=True), np.sum(count, axis=1, keepdims=True)
        ratio, power = log_gamma_ratio(0.5 * nu, 0.5 * count), 0.5 * (nu + count)
        logs = np.sum(logs, axis=1)
        terms[:, k] = np.sum(ratio - power * np.log1p(square), axis=1) - 0.5 * logs
    return terms


def sample(state, frame, n, rng):
    """Return n draws (n, D) from the predictive distribution, in the units of the data, and their components (n,)."""
    factors, weights = state.factors, state.weights.mean()
    component = rng.choice(len(weights), size=n, p=weights / np.sum(weights))
    normal = rng.standard_normal((n, factors.mean.shape[1]))
    widening = np.sqrt(1.0 + 1.0 / factors.beta)[component]
    if state.full:
        which = component if len(factors.nu) > 1 else np.zeros_like(component)
        degrees = (factors.nu + 1 - normal.shape[1])[which]
        normal = np.matmul(factors.factor[which], normal[:, :, None])[:, :, 0]
        spread = np.sqrt(rng.chisquare(degrees))[:, None]
    else:
        normal = normal * np.sqrt(factors.scatter[component])
        spread = np.sqrt(rng.chisquare(factors.nu[component]))
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        draws = frame.user_rows(factors.mean[component] + widening * normal / spread)
    return within_range(draws, "sample: with so few degrees of freedom the draws"), component
