"""What the models of latent processes share: a covariance, a likelihood and a mean."""

from __future__ import annotations

from dataclasses import dataclass, replace
from threading import local
from typing import Any

import numpy as np

from cavity import covariances
from cavity.base import arrays
from cavity.base.errors import within_range
from cavity.base.frames import coefficient_names, with_days
from cavity.base.frozen import Frozen, put
from cavity.base.records import NONNEGATIVE, SHARE, TABLE, Made, integer
from cavity.base.results import notes_of, title_of
from cavity.base.rows import Rows, check_moments, check_n_features, design_matrix
from cavity.base.summary import Table, values_table
from cavity.base.types import ArrayLike, Data, FloatArray, FloatOrArray, Seed
from cavity.covariances import slots
from cavity.covariances.base import Covariance
from cavity.covariances.named import parsed
from cavity.covariances.program import program_of
from cavity.covariances.slots import leaves
from cavity.ep.latent import half_of
from cavity.likelihoods import Gaussian, Likelihood
from cavity.likelihoods.base import guessed
from cavity.likelihoods.parameters import named_parameters, open_parameters, scales_of
from cavity.models.defaults import checked_likelihood
from cavity.models.latent import KNOWN_VARIANCE, LatentPosterior, check_kind
from cavity.models.learnt import scale_of
from cavity.models.observations import row_noise
from cavity.runs.executors import Threads, single_blas, threads_of
from cavity.runs.runs import by_blocks, map_runs
from cavity.sources.dataset import MEMORY
from cavity.sources.sources import Source, open_source

ROWS_A_TASK = 512  # of new rows: their covariances with the rows of a fit are in memory together
COVARIANCE = Made(covariances.from_settings, TABLE, lambda covariance: covariance.to_settings())
OPTIONS = {  # of EP
    "damping": SHARE,
    "max_iter": integer(1),
    "tol": NONNEGATIVE,
}


@dataclass(frozen=True, slots=True, eq=False)
class LatentProcess(Frozen):
    """Base of the models in which f - mean is a Gaussian process and y has likelihood p(y|f)."""

    covariance: Covariance | Any = None
    likelihood: Likelihood | Any = None
    mean: FloatOrArray = None

    def __post_init__(self) -> None:
        put(self, likelihood=checked_likelihood(self.likelihood))
        if isinstance(self.covariance, str):
            parsed(self.covariance)
        elif self.covariance is not None:
            check_kind(self.covariance, "covariance", Covariance, "covariances")
            leaves(self.covariance)  # TypeError for one of the user's own
        if isinstance(self.mean, str):
            arrays.choice(self.mean, "mean", ("constant", "linear"))
        if self.mean is None or isinstance(self.mean, str):
            return
        mean = arrays.finite_array(self.mean, "mean", ndim=(0, 1))
        arrays.check_not_empty(mean.shape, "mean")
        put(self, mean=arrays.owned(mean))

    def prior_mean(self, X: FloatArray) -> FloatArray:
        """The mean function at the rows of X.

        Parameters
        ----------
        X : ndarray (n, D)
            Rows.

        Returns
        -------
        ndarray (n,)
            Their prior means, offsets not included; a mean that is yet to be found counts as 0.
        """
        X = arrays.finite_array(X, "X", ndim=(2,))
        check_columns(self.covariance, self.mean, X.shape[1])
        return prior_means(self, X)


def prior_means(model, X):
    """Return the prior means of f at checked rows; a mean that is yet to be found counts as 0."""
    if np.ndim(model.mean) == 0:
        return np.full(len(X), 0.0 if model.mean is None or isinstance(model.mean, str) else model.mean)
    return model.mean[0] + X @ model.mean[1:]  # (n, D) (D,)


def check_columns(covariance, mean, n_features):
    """Raise ValueError unless a covariance and a mean, a number, coefficients or a name, are for so many columns."""
    if isinstance(covariance, Covariance):
        covariance.check_columns(n_features)
    if np.ndim(mean) == 1 and len(mean) != 1 + n_features:
        raise ValueError(
            f"mean must be a number or have 1 + {n_features} coefficients for {n_features} columns, got {len(mean)}"
        )


def what_to_learn(model, learn, known_noise, learnable=None):
    """Return whether the covariance is learnt, and the names of the parameters of the likelihood that are.

    Those that are open always are; `learnable` are those that can be, by default all.
    """
    likelihood = model.likelihood
    known = tuple(likelihood.parameters) if learnable is None else learnable
    asked = named_parameters(learn, ("covariance", *known), ("covariance", *scales_of(likelihood)))
    needed = open_parameters(likelihood)
    names = tuple(name for name in known if name in asked or name in needed)
    return "covariance" in asked, () if known_noise else names


def closed(model, rows):
    """Return the model with open parameters of the likelihood as rows suggest them."""
    likelihood, names = model.likelihood, open_parameters(model.likelihood)
    if not names:
        return model
    used = rows.part(~rows.left_out) if rows.left_out.any() else rows
    offset = np.zeros(used.n) if used.offset is None else used.offset
    guess = guessed(likelihood, used.y)
    fitted = offset if guess is None else offset + np.median(guess - offset)
    values = likelihood.starting_values(used.y, fitted)
    return replace(model, likelihood=replace(likelihood, **{name: values[name] for name in names}))


def checked_X(X, like=None):
    """Return rows of X checked, float64 in C order and aligned, of as many columns as the fit had, if one is named.

    Those of a Source are read, and dates become days.
    """
    X = with_days(X)
    if isinstance(X, Source):
        X.summary(Threads(1))
        X = X.rows()
    if hasattr(X, "tocsr"):
        raise TypeError("X is sparse, which Gaussian processes have no use for: pass X.toarray()")
    if len(np.shape(X)) == 1:
        one = like is not None and like != 1 and len(X) == like
        hint = "X[None, :] makes it one row" if one else arrays.one_column(X)
        raise ValueError(f"X must have 2 dimension(s), got shape {np.shape(X)}; {hint}")
    if isinstance(X, np.ndarray) and X.ndim == 2 and not (X.dtype == np.float64 and X.flags.c_contiguous):
        arrays.matrix(X.shape, "X as float64 numbers")
    X = np.require(design_matrix(X, "full"), dtype=np.float64, requirements="CA")
    arrays.check_finite(X, "X")
    check_n_features(X.shape[1], like)
    return X


def checked_rows(model, X, y, offset, noise_variance, sample_weight, like=None):
    """Return the `Rows` of a fit, in memory of their own; their offset is all that is known of the prior mean of f."""
    X = checked_X(X, like)
    check_columns(model.covariance, model.mean, X.shape[1])
    noise = row_noise(model.likelihood, noise_variance, len(X))
    rows = Rows.checked(model.likelihood, X, y, offset, sample_weight, noise)
    f_known = None
    if not isinstance(model.likelihood, Gaussian):
        f_known = ~rows.left_out & (program_of(model.covariance, X.shape[1]).diagonal(X) < KNOWN_VARIANCE)
        if isinstance(model.mean, str) and f_known.any():
            raise ValueError(
                f"mean={model.mean!r} cannot be found: the covariance is zero at row {int(np.argmax(f_known))}, where "
                "the mean alone decides; add a Constant to the covariance, or give a mean"
            )
        f_known = f_known if f_known.any() else None
    with np.errstate(over="ignore", invalid="ignore"):
        base = within_range((0.0 if offset is None else rows.offset) + prior_means(model, X), "the prior means of f")
    # the posterior keeps its rows and makes them read-only: they must not be the caller's
    own = (None if value is None else value.copy() for value in (rows.weights, noise))
    return Rows(X.copy(), rows.y.copy(), base, *own, f_known)


def hyperparameters(model, columns):
    """Return what a model has been given or has learnt, free numbers of its covariance, likelihood and mean: a dict."""
    found = dict(zip(model.covariance.parameter_names, slots.values(model.covariance).tolist(), strict=True))
    for name in model.likelihood.parameters:
        values = getattr(model.likelihood, name)
        each = enumerate(values) if np.ndim(values) else [(None, values)]
        found |= {name if i is None else f"{name}[{i}]": value for i, value in each}
    coefficients = np.ravel(model.mean).tolist()
    slopes = coefficient_names(columns, len(coefficients) - 1)
    return (
        found
        | {"mean": coefficients[0]}
        | dict(zip((f"mean, {name}" for name in slopes), coefficients[1:], strict=False))
    )


class ProcessPosterior(LatentPosterior):
    """Base of posteriors of a latent process.

    It reads model, columns and n_features, and calls ``_moments(X, threads, kept)`` for a few rows and
    ``_joint(X, gram, threads)``: what the posterior adds to prior means of f, and variances or, in place of prior
    covariances, covariances of f. What is `kept` is there for further rows on the same thread.
    """

    __slots__ = ()

    def predict(
        self,
        X: Data,
        *,
        offset: ArrayLike | None = None,
        exposure: ArrayLike | None = None,
        noise: bool = False,
        trials: ArrayLike | None = None,
        n_threads: int | None = None,
    ) -> tuple[FloatArray, FloatArray]:
        """Predict the latent value f of new rows, or a new observation y. Before any data they are the prior's.

        Parameters
        ----------
        X : array_like (n, D), data frame, path, list of paths, or Source
            Rows; those of files are read block by block.
        offset : float or array_like (n,), optional
            Known part of f; wanted where the fit had some, 0 for none.
        exposure : float or array_like (n,), optional
            For counts: what their mean is proportional to. Its log is added to the offset.
        noise : bool, default False
            Whether to predict a new observation y instead of f.
        trials : int, array_like (n,) or str, optional
            For Binomial: the number of trials of each new observation, or the name of their column; by default 1.
        n_threads : int, optional
            Threads that work on blocks of rows; the result has the same bits for any number. -1 is all cores; by
            default the environment variable CAVITY_NUM_THREADS counts, else 1.

        Returns
        -------
        mean, variance : ndarray (n,)
            Of f, or of y, under the posterior. Variances of f are differences: good to about 1e-15 of the prior's.

        Raises
        ------
        ValueError, TypeError
            For bad rows; for noise=True where y has classes (see predict_proba), or no mean or variance.
        OverflowError
            If moments leave the range of float64, naming the row.
        """
        return self._observed(X, self._latent(X, offset, exposure, n_threads), noise, trials)

    def _latent(self, X, offset, exposure, n_threads=None):
        dataset = self._open(X, offset, exposure)
        X = checked_X(dataset.X, self.n_features) if dataset.kind == MEMORY else dataset.X
        known, n_threads, kept = self._known_offset(dataset), threads_of(n_threads), local()

        X = open_source(X, "X", ndim=(2,), block_rows=ROWS_A_TASK)
        check_n_features(X.shape[1], self.n_features)

        def moments(x, start, _):
            X.check_finite(x, start)
            base = prior_means(self.model, x)
            base = base if known is None else base + known[start : start + len(x)]
            shift, variance = self._moments(x, threads, kept)
            return base + shift, variance

        with Threads(n_threads) as threads, single_blas(), np.errstate(over="ignore", invalid="ignore"):
            parts = map_runs(by_blocks(moments), None, [X], threads, grain=1)
            mean, variance = (np.concatenate(each) for each in zip(*parts, strict=True))
        check_moments(mean, variance)
        return mean, variance

    def predict_covariance(
        self, X: Data, *, offset: ArrayLike | None = None, exposure: ArrayLike | None = None
    ) -> tuple[FloatArray, FloatArray]:
        """Predict the latent values at new rows together.

        Parameters
        ----------
        X : array_like (n, D) or data frame
            Rows.
        offset : float or array_like (n,), optional
            Known part of f; wanted where the fit had some, 0 for none.
        exposure : float or array_like (n,), optional
            For counts: what their mean is proportional to.

        Returns
        -------
        mean : ndarray (n,)
            Of f under the posterior.
        covariance : ndarray (n, n)
            Of f under the posterior.

        Raises
        ------
        ValueError, TypeError, OverflowError
            As in `predict`.
        """
        X, base = self._new_rows(X, offset, exposure)
        gram = arrays.matrix((len(X), len(X)), "the covariance of X")
        with Threads(1) as threads, single_blas(), np.errstate(over="ignore", invalid="ignore"):
            program_of(self.model.covariance, X.shape[1]).gram(X, gram, threads)
            shift, covariance = self._joint(X, gram, threads)
            mean = base + shift
        check_moments(mean, covariance)
        return mean, covariance

    def sample(
        self, X: Data, n: int, rng: Seed, *, offset: ArrayLike | None = None, exposure: ArrayLike | None = None
    ) -> FloatArray:
        """Draw functions from the posterior.

        Parameters
        ----------
        X : array_like (m, D) or data frame
            Rows at which to draw their values.
        n : int
            Number of draws.
        rng : seed or numpy.random.Generator
            Source of randomness.
        offset : float or array_like (m,), optional
            Known part of f; wanted where the fit had some, 0 for none.
        exposure : float or array_like (m,), optional
            For counts: what their mean is proportional to.

        Returns
        -------
        ndarray (n, m)
            The draws of f; noise of the likelihood is not in them.
        """
        n, rng = arrays.integer(n, "n", low=0), arrays.generator(rng)
        mean, covariance = self.predict_covariance(X, offset=offset, exposure=exposure)
        # mean + Z R', Z (n, m), where the covariance is R R', (m, m)
        return mean + rng.standard_normal((n, len(mean))) @ half_of(covariance).T

    def summary(self, level: float = 0.95) -> Table:
        """Return a table of the hyperparameters: free ones of the covariance, those of the likelihood, and the mean.

        Parameters
        ----------
        level : float in (0, 1), default 0.95
            Probability of the intervals.

        Returns
        -------
        Table
            It shows itself, and has `to_frame` for pandas; with standard errors and intervals of those that have some,
            from normal approximations of the logs of positive parameters, the logits of shares, and of others as they
            are.
        """
        found, learnt = hyperparameters(self.model, self.columns), getattr(self, "learnt", None)
        by_name = {} if learnt is None else dict(zip(learnt.names, learnt.sd, strict=True))
        errors = [by_name.get(name) for name in found]
        scales = [scale_of(name, self.model.likelihood) for name in found]
        shown = {slot.full_name: slot.name_with(self.columns) for slot in slots.free_slots(self.model.covariance)}
        names = [shown.get(name, name) for name in found]
        notes = notes_of(self)
        return values_table(title_of(self), names, list(found.values()), errors, notes, scales=scales, level=level)

    def _drawn(self, X, n, rng, offset, exposure):
        return self.sample(X, n, rng, offset=offset, exposure=exposure)

    def _new_rows(self, X, offset, exposure):
        """Return new rows checked, and the known means of their f, those of the prior."""
        dataset = self._open(X, offset, exposure)
        X = checked_X(dataset.X, self.n_features)
        base, known = prior_means(self.model, X), self._known_offset(dataset)
        return X, base if known is None else base + known
