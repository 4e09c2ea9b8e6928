"""The one container of checked rows, from the entry of a fit down to its engine, and the checks at the entry."""

from dataclasses import dataclass, fields, replace

import numpy as np

from cavity.base import arrays
from cavity.base.sparse import to_csr

VALUES_OF_NONE = {"offset": 0.0, "weights": 1.0, "f_known": False}  # what an entry that is None means
HOW_TO_PAIR = "; pairs are bounds of `Interval` and times, or successes and trials of `Binomial`, not observations of"
MAX_COPIES = 1 << 20  # of rows, each as often as its weight says


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """N checked rows. All entries but y may be None.

    Attributes
    ----------
    X : array (N, D), CSR matrix, Source, or None
        Rows of features, as the family of models has them; None where nothing reads them any more.
    y : ndarray (N,) or (N, 2)
        Observations in the form of the likelihood.
    offset : ndarray (N,) or None
        Known part of f; None is 0 for all.
    weights : ndarray (N,) or None
        How many copies each row counts as; 0 leaves it out. None is 1 for all.
    noise : ndarray (N,) or None
        Known variance of the noise of each row; None where it is that of the likelihood.
    f_known : ndarray (N,) of bool or None
        Rows whose f is the offset, whatever is unknown: they get no site. None where there are none.
    """

    X: object
    y: np.ndarray
    offset: np.ndarray | None = None
    weights: np.ndarray | None = None
    noise: np.ndarray | None = None
    f_known: np.ndarray | None = None

    @classmethod
    def checked(cls, likelihood, X, y, offset=None, sample_weight=None, noise=None, *, needs_rows=True):
        """Return the rows of a checked X, all else checked here; weights may all be zero unless `needs_rows`."""
        n = X.shape[0]
        y = check_observations(likelihood, y, n)
        offset = None if offset is None else check_row_vector(offset, "offset", n)
        weights = None if sample_weight is None else check_row_weights(sample_weight, n, needs_rows=needs_rows)
        return cls(X, y, offset, weights, noise)

    def named(self):
        """Return X, y, offset and weights by the arguments of a fit."""
        return {"X": self.X, "y": self.y, "offset": self.offset, "sample_weight": self.weights}

    @property
    def n(self):
        """N."""
        return len(self.y)

    @property
    def has_offset(self):
        """Whether some row has an offset other than 0."""
        return self.offset is not None and bool(np.any(self.offset))

    def part(self, index):
        """Return the rows of a mask, a slice or an array of indices."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        return replace(self, **{name: value[index] for name, value in values.items() if value is not None})

    def joined(self, other):
        """Return these rows and then others; both have X, and both or neither noise."""

        def join_field(name):
            pair = [(rows.n, getattr(rows, name)) for rows in (self, other)]
            if all(value is None for _, value in pair):
                return None
            return np.concatenate([np.full(n, VALUES_OF_NONE[name]) if value is None else value for n, value in pair])

        return replace(self, **{f.name: join_field(f.name) for f in fields(self)})

    @property
    def unequal_weights(self):
        """The weights, None where all are one."""
        return None if self.weights is None or np.all(self.weights == 1) else self.weights

    @property
    def left_out(self):
        """Rows of weight zero, a mask (N,)."""
        return np.zeros(self.n, dtype=bool) if self.weights is None else self.weights == 0

    @property
    def in_use(self):
        """Rows that get a site, a mask (N,): of positive weight, and with an f that is not known."""
        return ~self.left_out if self.f_known is None else ~(self.left_out | self.f_known)

    def list_copies(self):
        """Return an index of rows that has each as often as its weight says: `slice(None)` where all weights are one.

        Weights that are no whole numbers, or add up to more than MAX_COPIES, are those of a systematic sample.
        """
        if self.unequal_weights is None:
            return slice(None)
        ends = np.cumsum(self.weights)
        n_used = int(np.count_nonzero(self.weights))
        n = int(max(n_used, min(np.rint(ends[-1]), MAX_COPIES)))
        return np.minimum(np.searchsorted(ends, (np.arange(n) + 0.5) * (ends[-1] / n), side="right"), self.n - 1)

    def used(self):
        """Return the rows in use; their weights are None if all are one."""
        if self.weights is None and self.f_known is None:
            return self
        mask = self.in_use
        rows = self if mask.all() else self.part(mask)
        return replace(rows, weights=rows.unequal_weights, f_known=None)

    def scattered(self, values, fill):
        """Return values of the rows in use in their places among all rows, and `fill`, a number or (N,), elsewhere."""
        mask = self.in_use
        if mask.all():
            return values
        out = np.array(np.broadcast_to(fill, mask.shape), dtype=np.float64)
        out[mask] = values
        return out

    def log_p_known(self, likelihood):
        """Return the log likelihoods of the rows whose f is known, and their sum, weighted."""
        if self.f_known is None:
            return np.zeros(0), 0.0
        rows = self.part(self.f_known)
        log_p = likelihood.log_p(rows.y, np.zeros(rows.n) if rows.offset is None else rows.offset)
        return log_p, float(np.sum(rows.weight() * log_p))

    def weight(self, part=slice(None)):
        """Return weights of a part, (n,), or (1,) where all are one."""
        return np.ones(1) if self.weights is None else self.weights[part]

    def noise_variance(self, likelihood, part=slice(None)):
        """Return noise variances of Gaussian observations of a part, a number or (n,)."""
        return likelihood.noise_variance if self.noise is None else self.noise[part]

    def precision(self, likelihood, part=slice(None)):
        """Return precisions of Gaussian observations of a part, weights included, (n,) or (1,)."""
        return self.weight(part) / self.noise_variance(likelihood, part)


def check_design_matrix(X, approximation):
    """Return X checked: an array, or CSR for the diagonal approximation."""
    if hasattr(X, "tocsr"):
        if approximation == "full":
            raise TypeError("X is sparse: use approximation='diagonal', or X.toarray() if it has few columns")
        X = to_csr(X, "X")
        if X.shape[0] == 0 or X.shape[1] == 0:
            raise ValueError(f"X must not be empty, got shape {X.shape}")
        arrays.check_finite(arrays.check_real(X.data, "X"), "X.data")
        return X
    return arrays.check_data_array(X, "X", ndim=(2,))


def check_n_features(n_features, like):
    """Raise ValueError unless X has as many columns as the fit had, if there is one."""
    if like is not None and n_features != like:
        raise ValueError(f"X must have {like} columns like the data of the fit, got {n_features}")


def check_moments(mean, variance):
    """Raise OverflowError naming the first row of X whose mean, variance, or row of a covariance is not finite."""
    good = np.isfinite(mean) & (np.isfinite(variance) if variance.ndim == 1 else np.isfinite(variance).all(axis=1))
    if not good.all():
        raise OverflowError(f"the latent value of row {int(np.argmin(good))} of X leaves the range of float64")


def check_row_vector(value, name, n):
    """Return n finite numbers, one per row of X."""
    array = arrays.check_finite_array(value, name, ndim=(1,))
    if array.shape != (n,):
        raise ValueError(f"{name} must have one entry per row of X, that is {n}, got {array.shape[0]}")
    return np.ascontiguousarray(array)


def combine_known_parts(likelihood, offset, exposure, n, *, broadcast=False):
    """Return the known part of f of n rows, offset + log(exposure), or None; numbers for all rows if `broadcast`."""

    def rows_of(value, name):
        return (
            arrays.check_vector(value, name, n)
            if broadcast and np.ndim(value) == 0
            else check_row_vector(value, name, n)
        )

    offset = None if offset is None else rows_of(offset, "offset")
    if exposure is None:
        return offset
    if not likelihood.takes_exposure:
        hint = "; the numbers of trials are the second column of y" if likelihood.takes_trials else ""
        raise ValueError(f"exposure is for counts, as those of Poisson, got {type(likelihood).__name__}{hint}")
    exposure = rows_of(exposure, "exposure")
    if not np.all(exposure > 0):
        row = int(np.argmin(exposure > 0))
        message = f"must be positive, got {float(exposure[row])!r} in row {row}; leave out rows without exposure"
        raise arrays.error_of("exposure", message)
    return np.log(exposure) if offset is None else offset + np.log(exposure)


def check_observations(likelihood, y, n):
    """Return n observations in the form of the likelihood."""
    if arrays.is_masked(y):
        raise TypeError("y must not be a masked array; drop the masked rows first")
    array = np.asarray(y)
    if array.ndim == 0 or len(array) != n:
        raise ValueError(f"y must have one entry per row of X, that is {n}, got shape {array.shape}")
    try:
        y_checked = likelihood.check(y)
    except ValueError as error:
        if array.shape[1:] != (2,) or likelihood._y_ndim == 2:
            raise
        raise ValueError(f"{error}{HOW_TO_PAIR} {type(likelihood).__name__}") from None
    if np.ndim(y_checked) < likelihood._y_ndim:  # two numbers pass for one pair, and there are two rows
        raise ValueError(f"y must have {likelihood._y_ndim} dimensions, a row for each of X, got shape {array.shape}")
    if len(y_checked) != n:
        raise ValueError(f"y must have one entry per row of X, that is {n}, got {len(y_checked)}")
    return np.ascontiguousarray(y_checked)  # kernels need contiguous rows; y may be a column of a table


def check_row_weights(value, n, *, needs_rows=True):
    """Return n weights, one per row of X: none negative and, unless `needs_rows` is False, not all zero."""
    weights = check_row_vector(value, "sample_weight", n)
    if np.any(weights < 0):
        row = int(np.argmax(weights < 0))
        raise arrays.error_of("sample_weight", f"must not be negative, got {float(weights[row])!r} in row {row}")
    if needs_rows and not np.any(weights > 0):
        raise arrays.error_of("sample_weight", "must be positive in some row, got zeros only")
    return weights
