"""Predictions of mixed models for levels of groups of the fit, for others, and for rows without groups."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

from cavity.base import arrays
from cavity.base.public_objects import ArrayLike, Data, FloatArray, Seed
from cavity.models.latent_posterior import Predictions
from cavity.models.mixed.group_columns import LEVEL_CHOICES
from cavity.models.mixed.row_readers import NewRows
from cavity.models.model_check import ModelCheck
from cavity.models.row_predictions import name_moments, predict_rows


class LevelPredictions(Predictions):
    """Base of posteriors whose new rows have groups; a subclass has ``_reader``, by which they are read."""

    __slots__ = ()

    def rows(
        self, X: Data | NewRows, groups: Any = None, levels: str = "known", without: Sequence[str] | str = ()
    ) -> NewRows:
        """Return new rows with their groups, as one thing that all methods take as X.

        Parameters
        ----------
        X : data frame, array_like (n, D) or NewRows
            Rows, as in the fit.
        groups : dict of columns (n,), data frame, or one column, optional
            Labels of the groups; by default columns of X.
        levels : {"known", "new", "zero"}, default "known"
            "known" takes levels of the fit only; "new" others, too, whose effects have their prior, for each row anew;
            "zero" has effects of groups at 0. With the last two columns of groups may be absent.
        without : str or sequence of str, default ()
            Names of terms that are left out, with the fixed effects that belong to them: of `terms` and
            `structured_terms`. Their columns are required all the same.

        Returns
        -------
        NewRows
            For all methods that take new rows as X, such as `predict` and `check`.
        """
        if isinstance(X, NewRows):
            return X
        without = (without,) if isinstance(without, str) else tuple(without)
        for name in without:
            arrays.check_choice(name, "without", (*self.terms, *self.structured_terms))
        return NewRows(X, groups, arrays.check_choice(levels, "levels", LEVEL_CHOICES), without)

    def predict(
        self,
        X: Data | NewRows,
        *,
        groups: Any = None,
        levels: str = "known",
        without: Sequence[str] | str = (),
        offset: ArrayLike | None = None,
        exposure: ArrayLike | None = None,
        noise: bool = False,
        trials: ArrayLike | None = None,
        missing: Literal["raise", "nan"] = "raise",
        as_frame: bool = False,
    ) -> tuple[FloatArray, FloatArray]:
        """Predict the latent value f of new rows, or a new observation y: mean and variance.

        Parameters
        ----------
        X : data frame or array_like (n, D)
            Rows, as in the fit; or `rows`.
        groups : dict of columns (n,), data frame, or one column, optional
            Labels of the groups; by default columns of X.
        levels : {"known", "new", "zero"}, default "known"
            "known" takes levels of the fit only; "new" others, too, whose effects have their prior, for each row anew;
            "zero" has effects of groups at 0. With the last two columns of groups may be absent.
        without : str or sequence of str, default ()
            Names of terms that are left out, with the fixed effects that belong to them: of `terms` and
            `structured_terms`. Their columns are required all the same.
        offset : float or array_like (n,), optional
            Known part of f; required where the fit had some, 0 for none.
        exposure : float or array_like (n,), optional
            For counts: what their mean is proportional to, as time or area. Its log is added to the offset.
        noise : bool, default False
            Whether to predict a new observation y instead of f.
        trials : int, array_like (n,) or str, optional
            For Binomial: the number of trials of each new observation, or the name of their column; by default 1.
        missing : {"raise", "nan"}, default "raise"
            What is done about rows without a value in a column that is read: refuse them, or return NaN in these rows.
        as_frame : bool, default False
            Whether to return a pandas data frame with the columns mean and sd, and the index of X.

        Returns
        -------
        mean, variance : ndarray (n,)
            Of f, or of y, under the posterior; or a pandas.DataFrame.

        Raises
        ------
        ValueError, TypeError
            For bad rows; for levels that the fit had not, naming them, unless `levels` allows them.
        """
        rows = self.rows(X, groups, levels, without)
        options = {"offset": offset, "exposure": exposure, "noise": noise, "trials": trials}
        return self._predict_new_rows(rows, **options, missing=missing, as_frame=as_frame)

    @predict_rows(lambda self, **_: (2,), pair=True, columns=name_moments, on_collections=False)
    def _predict_new_rows(self, rows, *, offset, exposure, noise, trials):
        return self._observed(rows.X, self._latent(rows, offset, exposure), noise, trials)

    def _complete_rows(self, X, arguments):
        rows = self.rows(X)
        n, index, X, groups, arguments = self._reader.complete(rows.X, rows.groups, arguments, rows.levels)
        return n, index, replace(rows, X=X, groups=groups), arguments

    def expected(self, X: Data | NewRows, *, groups: Any = None, levels: str = "known", **options: Any) -> FloatArray:
        """Mean of a new observation, integrated over the posterior.

        Parameters
        ----------
        X : data frame, array_like (n, D) or NewRows
            Rows, as in the fit.
        groups : dict of columns (n,), data frame, or one column, optional
            Labels of the groups; by default columns of X.
        levels : {"known", "new", "zero"}, default "known"
            "known" takes levels of the fit only; "new" others, too, whose effects have their prior, for each row anew;
            "zero" has effects of groups at 0. With the last two columns of groups may be absent.
        **options
            offset, exposure, trials and missing, as for `predict`.

        Returns
        -------
        ndarray (n,)
            E[y | x, data].
        """
        return super().expected(self.rows(X, groups, levels), **options)

    def fitted(self, X: Data | NewRows, *, groups: Any = None, levels: str = "known", **options: Any) -> FloatArray:
        """Return the mean of the observation of each row under the posterior, all rows of the fit included.

        Parameters
        ----------
        X : data frame, array_like (n, D) or NewRows
            Rows, as in the fit.
        groups : dict of columns (n,), data frame, or one column, optional
            Labels of the groups; by default columns of X.
        levels : {"known", "new", "zero"}, default "known"
            "known" takes levels of the fit only; "new" others, too, whose effects have their prior, for each row anew;
            "zero" has effects of groups at 0. With the last two columns of groups may be absent.
        **options
            As for the same method of `GLMPosterior`.

        Returns
        -------
        ndarray (n,) or (n, n_classes)
            Means of numbers, shares of trials, probabilities of the second of two classes, or of all of several.
        """
        return super().fitted(self.rows(X, groups, levels), **options)

    def log_density(
        self,
        X: Data | NewRows,
        y: ArrayLike | None = None,
        *,
        groups: Any = None,
        levels: str = "known",
        **options: Any,
    ) -> FloatArray:
        """Log predictive density of new observations, integrated over the posterior.

        Parameters
        ----------
        X : data frame, array_like (n, D) or NewRows
            Rows, as in the fit.
        y : array_like (n,) or str, optional
            Observations, labels as in the fit; or the name of their column in X. By default the column of the fit, or
            what the formula contains.
        groups : dict of columns (n,), data frame, or one column, optional
            Labels of the groups; by default columns of X.
        levels : {"known", "new", "zero"}, default "known"
            "known" takes levels of the fit only; "new" others, too, whose effects have their prior, for each row anew;
            "zero" has effects of groups at 0. With the last two columns of groups may be absent.
        **options
            As for the same method of `GLMPosterior`.

        Returns
        -------
        ndarray (n,)
            log p(y | x, data).
        """
        return super().log_density(self.rows(X, groups, levels), y, **options)

    def residuals(
        self,
        X: Data | NewRows,
        y: ArrayLike | None = None,
        *,
        groups: Any = None,
        levels: str = "known",
        **options: Any,
    ) -> FloatArray:
        """Return how far observations are from what is predicted of them.

        Parameters
        ----------
        X : data frame, array_like (n, D) or NewRows
            Rows, as in the fit.
        y : array_like (n,) or str, optional
            Observations, labels as in the fit; or the name of their column in X. By default the column of the fit, or
            what the formula contains.
        groups : dict of columns (n,), data frame, or one column, optional
            Labels of the groups; by default columns of X.
        levels : {"known", "new", "zero"}, default "known"
            "known" takes levels of the fit only; "new" others, too, whose effects have their prior, for each row anew;
            "zero" has effects of groups at 0. With the last two columns of groups may be absent.
        **options
            As for the same method of `GLMPosterior`.

        Returns
        -------
        ndarray (n,)
            Rows that are those of the fit are predicted from all others, where the fit has leave-one-out.
        """
        return super().residuals(self.rows(X, groups, levels), y, **options)

    def check(
        self,
        X: Data | NewRows,
        y: ArrayLike | None = None,
        *,
        groups: Any = None,
        levels: str = "known",
        **options: Any,
    ) -> ModelCheck:
        """Compare observations with their predictions, and describe what does not fit and what to try.

        Parameters
        ----------
        X : data frame, array_like (n, D) or NewRows
            Rows, as in the fit.
        y : array_like (n,) or str, optional
            Observations, labels as in the fit; or the name of their column in X. By default the column of the fit, or
            what the formula contains.
        groups : dict of columns (n,), data frame, or one column, optional
            Labels of the groups; by default columns of X.
        levels : {"known", "new", "zero"}, default "known"
            "known" takes levels of the fit only; "new" others, too, whose effects have their prior, for each row anew;
            "zero" has effects of groups at 0. With the last two columns of groups may be absent.
        **options
            As for the same method of `GLMPosterior`.

        Returns
        -------
        ModelCheck
            As that of `GLMPosterior.check`.
        """
        return super().check(self.rows(X, groups, levels), y, **options)

    def predict_proba(
        self, X: Data | NewRows, *, groups: Any = None, levels: str = "known", **options: Any
    ) -> FloatArray:
        """Class probabilities, integrated over the posterior.

        Parameters
        ----------
        X : data frame, array_like (n, D) or NewRows
            Rows, as in the fit.
        groups : dict of columns (n,), data frame, or one column, optional
            Labels of the groups; by default columns of X.
        levels : {"known", "new", "zero"}, default "known"
            "known" takes levels of the fit only; "new" others, too, whose effects have their prior, for each row anew;
            "zero" has effects of groups at 0. With the last two columns of groups may be absent.
        **options
            offset, missing and as_frame, as for `GLMPosterior.predict_proba`.

        Returns
        -------
        ndarray (n, n_classes), or pandas.DataFrame
            In the order of `classes`.
        """
        return super().predict_proba(self.rows(X, groups, levels), **options)

    def quantile(
        self, X: Data | NewRows, q: ArrayLike, *, groups: Any = None, levels: str = "known", **options: Any
    ) -> FloatArray:
        """Find quantiles of a new observation, integrated over the posterior.

        Parameters
        ----------
        X : data frame, array_like (n, D) or NewRows
            Rows, as in the fit.
        q : float or array_like (Q,)
            Probabilities in (0, 1).
        groups : dict of columns (n,), data frame, or one column, optional
            Labels of the groups; by default columns of X.
        levels : {"known", "new", "zero"}, default "known"
            "known" takes levels of the fit only; "new" others, too, whose effects have their prior, for each row anew;
            "zero" has effects of groups at 0. With the last two columns of groups may be absent.
        **options
            offset, exposure, trials and missing, as for `predict`.

        Returns
        -------
        ndarray (n,) or (n, Q)
            The quantiles.
        """
        return super().quantile(self.rows(X, groups, levels), q, **options)

    def sample_y(
        self,
        X: Data | NewRows,
        n: int,
        rng: Seed,
        *,
        groups: Any = None,
        levels: str = "known",
        offset: ArrayLike | None = None,
        exposure: ArrayLike | None = None,
        trials: ArrayLike | None = None,
    ) -> FloatArray:
        """Draw new observations from the posterior: all effects together, then y of each row.

        Parameters
        ----------
        X : data frame, array_like (m, D) or NewRows
            Rows, as in the fit.
        n : int
            Number of draws.
        rng : seed or numpy.random.Generator
            Source of randomness; a seed gives the same bits again.
        groups : dict of columns (m,), data frame, or one column, optional
            Labels of the groups; by default columns of X.
        levels : {"known", "new", "zero"}, default "known"
            "known" takes levels of the fit only; "new" others, too, whose effects have their prior, for each row anew;
            "zero" has effects of groups at 0. With the last two columns of groups may be absent.
        offset : float or array_like (m,), optional
            Known part of f; required where the fit had some, 0 for none.
        exposure : float or array_like (m,), optional
            For counts: what their mean is proportional to, as time or area. Its log is added to the offset.
        trials : int, array_like (m,) or str, optional
            For Binomial: the number of trials of each new observation, or the name of their column; by default 1.

        Returns
        -------
        ndarray (n, m)
            The draws.
        """
        return super().sample_y(self.rows(X, groups, levels), n, rng, offset=offset, exposure=exposure, trials=trials)
