"""The posterior of the weights of a GLM: moments, predictions, updates."""

from dataclasses import dataclass, fields, replace
from functools import cached_property

import numpy as np

from cavity.base import arrays
from cavity.base.errors import within_range
from cavity.base.frames import in_order, names_of
from cavity.base.loop import CONVERGED
from cavity.base.results import table, to_list
from cavity.base.rows import check_moments, design_matrix, row_vector
from cavity.blocks.executors import Threads, single_blas
from cavity.blocks.sources import rows
from cavity.distributions.gaussian import Gaussian
from cavity.ep.dense import Dense
from cavity.ep.engine import filter_rows
from cavity.ep.options import Options
from cavity.ep.sites import Sites
from cavity.ep.weights import Covariance, weights_of
from cavity.models.glm.learn import weight_gradient
from cavity.models.glm.rows import has_offset
from cavity.models.latent import LatentPosterior, log_density

PREDICT_ROWS = 8192


PLAIN = ("log_evidence", "converged", "n_iter", "status", "residual", "n_samples", "method")


def posterior_of(model, data, geometry, fit):
    """Turn a fit of the dense geometry into a posterior over the weights."""
    mean, covariance = weights_of(model._prior(data.X.shape[1]), geometry, fit.belief)
    return GLMPosterior(
        model=model,
        mean=mean,
        variance=covariance.variances(),
        log_evidence=fit.log_evidence + (0.0 if data.idle is None else data.idle.total),
        n_samples=data.n_rows,
        method="ep",
        **fit.report(),
        _covariance=covariance,
        _loo=data.scatter(fit.loo, None if data.idle is None else data.idle.log_p),
        _tau=data.scatter(fit.tau),
        _rho=data.scatter(fit.rho),
    )


def unmoved(model, data, method, before=None):
    """The posterior where no row depends on the weights: the prior, or the posterior before."""
    mean, covariance = _start(model, data, before)
    nothing = np.zeros(data.n_rows)
    return GLMPosterior(
        model=model,
        mean=mean,
        variance=covariance.variances(),
        log_evidence=data.idle.total + (0.0 if before is None else before.log_evidence),
        converged=True if before is None else before.converged,
        n_iter=1,
        status=CONVERGED if before is None else before.status,
        residual=0.0,
        n_samples=data.n_rows + (0 if before is None else before.n_samples),
        method=method,
        trace={} if method == "adf" else {"change": np.zeros(1), "improper": np.zeros(1), "double_loop": np.array(0)},
        _covariance=covariance,
        _loo=None if method == "adf" else data.idle.log_p,
        _tau=None if method == "adf" else nothing,
        _rho=None if method == "adf" else nothing,
    )


def _start(model, data, before):
    """Mean and Covariance that rows are added to: the prior's, or those of the posterior before."""
    if before is not None:
        return before.mean, before._covariance
    mean, root = model._prior(data.X.shape[1])
    return mean, Covariance(root)


def assimilated(model, data, prior, threads, before=None):
    """ADF over the rows from a Gaussian; rows of weight above one are taken that many times."""
    data, visits = data.repeated()
    geometry = Dense(data.X, data.offset, *prior, threads)
    belief, log_z = filter_rows(geometry, Sites(model.likelihood, data.y, visits))
    if belief is None:
        raise ArithmeticError("ADF lost the posterior to rounding; rescale the columns of X")
    mean, covariance = weights_of(prior, geometry, belief)
    return GLMPosterior(
        model=model,
        mean=mean,
        variance=covariance.variances(),
        log_evidence=log_z
        + (0.0 if before is None else before.log_evidence)
        + (0.0 if data.idle is None else data.idle.total),
        converged=True if before is None else before.converged,
        n_iter=1,
        status=CONVERGED if before is None else before.status,
        residual=0.0,
        n_samples=data.n_rows + (0 if before is None else before.n_samples),
        method="adf",
        trace={},
        _covariance=covariance,
        _loo=None,
        _tau=None,
        _rho=None,
    )


@dataclass(frozen=True, eq=False, repr=False)
class GLMPosterior(LatentPosterior):
    """The approximate posterior of the weights of a `GLM`.

    Attributes
    ----------
    model : GLM
        The settings; with ``learn="prior_variance"`` the learned ones.
    mean : ndarray (D,)
        Posterior mean of the weights.
    variance : ndarray (D,)
        Posterior variance of each weight.
    log_evidence : float
        EP's (or ADF's) estimate of log p(y | X), all constants included: models of the same y compare by it.
    converged : bool
        Whether the stopping rule of `GLM.fit` was met.
    n_iter : int
        Sweeps and steps of the double loop taken.
    status : str
        Why the iteration ended.
    residual : float
        How far the sites are from their fixed point: the largest change of a marginal moment that one more undamped
        renewal of a single site would make, means in posterior sd, variances relative.
    n_samples : int
        Rows seen, those of earlier updates included.
    method : {"ep", "adf"}
        How the last rows were taken in.
    trace : dict of ndarray
        "change" and "improper" for every sweep, "double_loop" the number of its steps.
    columns : tuple of str or None
        Names of the columns of X, if it was a data frame: those of later data frames are put in their order.
    classes : tuple of str or None
        What the labels of two classes stand for, that of -1 (or 0) first, where that was said.
    centre, spread : ndarray or None
        What is subtracted from each column of new rows, and what it is then divided by, before the weights apply; None
        where the weights belong to the columns as they are.
    intercept : bool
        Whether the first weight is that of a column of ones, which is put before those of new rows.
    has_offset : bool
        Whether rows came with offsets, which predictions then want as well.

    Notes
    -----
    `centre`, `spread` and `intercept` describe what was done to a table before it was fitted, as the command line does:
    `predict`, `update` and all else that takes rows then want the columns of the table, and do the same to them. `fit`
    does nothing to X, and leaves them None and False.
    """

    model: object
    mean: np.ndarray
    variance: np.ndarray
    log_evidence: float
    converged: bool
    n_iter: int
    status: str
    residual: float
    n_samples: int
    method: str
    trace: dict
    _covariance: Covariance | None
    _loo: np.ndarray | None
    _tau: np.ndarray | None
    _rho: np.ndarray | None
    columns: tuple | None = None
    classes: tuple | None = None
    centre: np.ndarray | None = None
    spread: np.ndarray | None = None
    intercept: bool = False
    has_offset: bool = False

    kind = "glm"

    def __post_init__(self):
        self._freeze()

    def __repr__(self):
        done = "converged" if self.converged else f"NOT CONVERGED: {self.status}"
        return table(
            f"GLMPosterior: {type(self.model.likelihood).__name__}, {len(self.mean)} weights, {self.n_samples} rows",
            [
                ("log_evidence", f"{self.log_evidence:.6f}"),
                ("mean", np.array2string(self.mean, precision=4, threshold=8)),
                ("sd", np.array2string(np.sqrt(self.variance), precision=4, threshold=8)),
                ("fit", f"{self.method.upper()}, {done}, {self.n_iter} pass(es)"),
            ],
        )

    @cached_property
    def covariance(self):
        """Posterior covariance of the weights, (D, D); only of the full approximation."""
        if self._covariance is None:
            raise AttributeError("approximation='diagonal' keeps variances only, no covariance")
        root = self._covariance.full_root()
        with np.errstate(over="ignore", invalid="ignore"):
            squares = np.diag(root**2) if root.ndim == 1 else root @ root.T
        return arrays.read_only(within_range(squares, "covariance: its entries"))

    @property
    def loo_log_density(self):
        """log p(y_i | the other rows) for every row, (N,): free with EP, from the cavities.

        A row of weight above one leaves one of its copies out; for a row of weight zero, which was not used, it is the
        predictive density.

        Raises
        ------
        ValueError
            If the fit has none (ADF, stochastic EP), or if a cavity without a row is improper, naming the row.
        """
        if self._loo is None:
            raise ValueError("leave-one-out densities need a fit by EP with the sites kept (not ADF, not stochastic)")
        return self._proper_loo()

    @property
    def sites(self):
        """The sites as a batch of Gaussians in f, (N,); negative precisions are legitimate."""
        if self._tau is None:
            raise ValueError("sites are kept by fits with EP and approximation='full' only (not ADF, not stochastic)")
        return Gaussian(self._tau, self._rho)

    @property
    def log_evidence_gradient(self):
        """Derivative of log_evidence in the log of the prior variance: (D,) if that is a vector, else a number."""
        if self._covariance is None or self.method != "ep":
            raise ValueError("the gradient needs a fit by EP with approximation='full'")
        prior_mean, root = self.model._prior(len(self.mean))
        apart = self.mean - prior_mean
        variance = np.asarray(self.model.prior_variance)
        if variance.ndim == 1:
            return weight_gradient(self.model, apart, self.variance)
        if variance.ndim == 0:
            return float(np.sum(weight_gradient(self.model, apart, self.variance)))
        from scipy.linalg import solve_triangular

        spread = solve_triangular(root, self._covariance.full_root(), lower=True)
        return float(0.5 * (np.sum(spread**2) + np.sum(solve_triangular(root, apart, lower=True) ** 2) - len(apart)))

    def predict(self, X, offset=None):
        """Predict the latent value f = x'w + offset: its moments.

        Parameters
        ----------
        X : array_like (n, D), data frame, or scipy.sparse for approximation="diagonal"
            Rows. The columns of a data frame are found by their names, in whatever order. Where the posterior has
            `centre`, `spread` or `intercept`, they are the columns before scaling, without a column of ones.
        offset : array_like (n,), optional
            Known part of f.

        Returns
        -------
        mean, variance : ndarray (n,)
            Of f under the posterior; noise of the likelihood is not in them.

        Raises
        ------
        ValueError, TypeError
            For bad rows; for columns that are missing or unknown, naming them.
        """
        X = self._rows_of(X)
        n = X.shape[0]
        offset = np.zeros(n) if offset is None else row_vector(offset, "offset", n)
        mean, variance = self._moments(X, offset)
        check_moments(mean, variance)
        return mean, variance

    def _moments(self, X, offset):
        """Moments of f at checked rows, not finite where they leave the range of float64."""
        if self._covariance is None and not self._prepares:
            from cavity.models.glm import diagonal as diagonal_ep

            return diagonal_ep.predict(X, self.mean, self.variance, offset)
        mean, variance = np.empty(X.shape[0]), np.empty(X.shape[0])
        with np.errstate(over="ignore", invalid="ignore"):
            for low in range(0, X.shape[0], PREDICT_ROWS):
                part = slice(low, low + PREDICT_ROWS)
                x = self._prepared(X[part]) if self._prepares else rows(X, part)
                mean[part] = x @ self.mean
                diagonal = self._covariance is None
                variance[part] = (x * x) @ self.variance if diagonal else self._covariance.spread(x)
            return mean + offset, variance

    @property
    def n_features(self):
        """Number of columns of the rows it takes; an intercept has none."""
        return len(self.mean) - self.intercept

    @property
    def _prepares(self):
        """Whether new rows are scaled, or get a column of ones."""
        return self.intercept or self.centre is not None

    def _rows_of(self, X):
        """Return new rows checked, their columns in the order of the fit, not yet prepared."""
        X = design_matrix(in_order(X, self.columns), self.model.approximation)
        if X.shape[1] != self.n_features:
            raise ValueError(f"X must have {self.n_features} columns like the data of the fit, got {X.shape[1]}")
        return X

    def _prepared(self, x):
        """Return rows as the weights take them."""
        x = x.toarray() if hasattr(x, "toarray") else x
        out = np.ones((len(x), len(self.mean)))
        columns = out[:, 1:] if self.intercept else out
        arrays.copy_real(x, columns)
        if self.centre is not None:
            columns -= self.centre
            columns /= self.spread
        return out

    def _with_spare(self, spare):
        """The same posterior with the predictive densities of rows of weight zero among the leave-one-out ones."""
        if self._loo is None:
            return self
        loo = self._loo.copy()
        loo[spare.mask] = log_density(self.model.likelihood, spare.y, *self.predict(spare.X, spare.offset))
        return replace(self, _loo=loo)

    def sample(self, n, rng):
        """Draw weights from the posterior.

        Parameters
        ----------
        n : int
            Number of draws.
        rng : seed or numpy.random.Generator
            Source of randomness.

        Returns
        -------
        ndarray (n, D)
            The draws.
        """
        n, rng = arrays.integer(n, "n", low=0), arrays.generator(rng)
        z = rng.standard_normal((n, len(self.mean)))
        with np.errstate(over="ignore", invalid="ignore"):
            spread = z * np.sqrt(self.variance) if self._covariance is None else self._covariance.colour(z)
            return within_range(self.mean + spread, "sample: the draws")

    def update(self, X, y, *, offset=None, sample_weight=None):
        """Take in new rows by ADF, on top of what is known.

        Parameters
        ----------
        X : array_like (n, D), data frame, or scipy.sparse for approximation="diagonal"
            New rows, as `predict` takes them.
        y : array_like (n,)
            Their observations.
        offset : array_like (n,), optional
            Known part of f.
        sample_weight : array_like (n,), optional
            Weights; a row of weight 2 is taken in twice.

        Returns
        -------
        GLMPosterior
            A new posterior; this one stays as it is. Its log evidence is that of all rows.
        """
        columns = names_of(X) if self.columns is None else self.columns
        X = in_order(X, self.columns)
        if self._prepares:
            with np.errstate(over="ignore", invalid="ignore"):
                X = within_range(self._prepared(self._rows_of(X)), "X: columns divided by spread")
        data = self.model._check(X, y, offset, sample_weight)
        if data.X.shape[1] != len(self.mean):
            raise ValueError(f"X must have {self.n_features} columns like the data of the fit, got {data.X.shape[1]}")
        kept = {name: getattr(self, name) for name in ("classes", "centre", "spread", "intercept")}
        kept |= {"columns": columns, "has_offset": self.has_offset or has_offset(offset)}
        return replace(self._updated(data), **kept)

    def _updated(self, data):
        """Take in checked rows by ADF."""
        if self._covariance is None:
            prior = replace(self.model, prior_mean=self.mean, prior_variance=self.variance)
            new = prior._fit_diagonal(data, "adf", Options())
            return replace(
                new,
                model=self.model,
                log_evidence=self.log_evidence + new.log_evidence,
                n_samples=self.n_samples + new.n_samples,
                converged=self.converged,
                status=self.status,
            )
        if len(data.y) == 0:
            return unmoved(self.model, data, "adf", self)
        with Threads(1) as threads, single_blas():
            prior = self.mean, self._covariance.full_root()
            return assimilated(self.model, data, prior, threads, self)

    def to_arrays(self):
        """Return (arrays, settings) for `save`."""
        likelihood = self._likelihood_to_settings()
        arrays = {f.name: getattr(self, f.name) for f in fields(self) if isinstance(getattr(self, f.name), np.ndarray)}
        if self._covariance is not None:
            parts = {f.name: getattr(self._covariance, f.name) for f in fields(Covariance)}
            arrays |= {f"covariance_{name}": value for name, value in parts.items() if value is not None}
        arrays |= {f"trace_{key}": value for key, value in self.trace.items()}
        arrays["prior_mean"] = np.asarray(self.model.prior_mean)
        arrays["prior_variance"] = np.asarray(self.model.prior_variance)
        settings = {key: getattr(self, key) for key in (*PLAIN, "intercept", "has_offset")}
        settings |= {key: to_list(getattr(self, key)) for key in ("columns", "classes")}
        settings["approximation"] = self.model.approximation
        settings["likelihood"] = likelihood
        return arrays, settings
