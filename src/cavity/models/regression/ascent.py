"""Fits of regressions by coordinate ascent: sweeps over the rows, or over their sufficient statistics."""

from dataclasses import replace

from cavity.mean_field import engine
from cavity.mean_field.options import AscentOptions
from cavity.models.observations import Observations
from cavity.models.regression.rows import RegressionRows, open_rows
from cavity.sources.dataset import Dataset


def fit_weights(model, X, y, sweeps_of, missing, **options):
    """Approximate the posterior of the weights of a regression by coordinate ascent.

    Parameters
    ----------
    model : LinearRegression or LogisticRegression
        The settings.
    X, y : Data and array_like
        The arguments of `fit`.
    sweeps_of : type
        `LinearSweeps` or `LogisticSweeps`: a view of the engine with a `likelihood` of y, `block_rows`, which returns
        the number of rows of a block, and `describe`, which returns the fields of a posterior that a state stands for.
    missing : {"raise", "drop"}
        What is done about rows with missing values.
    **options
        Fields of `AscentOptions`, and callback, progress and checkpoint.

    Returns
    -------
    dict
        The fields of the posterior, by name.
    """
    dataset = Dataset.open(X, {"y": y}, remote=True).leave_out(missing)
    observations = Observations.of(sweeps_of.likelihood, dataset, remote=True)
    run = AscentOptions.checked(**options)
    features = open_rows(dataset)
    features.block_rows = sweeps_of.block_rows(features.n_features)
    rows = RegressionRows.of(features, observations.y, model.intercept)
    with run.open(model, {"X": rows.X, "y": rows.y}) as threads:
        sweeps = sweeps_of(model, rows, threads, run.job.substage("rows"))
        done = engine.ascend(sweeps, sweeps.start(), replace(run, job=run.job.substage("passes")))
        fields = sweeps.describe(done.state)
    fields |= {"model": model, "n_samples": rows.n, "intercept_prior": sweeps.prior.intercept}
    fields |= {"observation_digest": observations.digest, **observations.labels}
    return fields | engine.report_outcome(done, rows.n, run)
