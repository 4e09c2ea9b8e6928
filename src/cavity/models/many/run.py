"""One fit of many responses, from the problem to the posterior."""

from dataclasses import replace

import numpy as np

from cavity.base import arrays
from cavity.base.errors import ConvergenceWarning, warn
from cavity.base.frames import name_coefficients
from cavity.base.loop import CONVERGED_STATUS
from cavity.ep.options import Options
from cavity.likelihoods.parameters import PARAMETER_DOMAINS, list_open_parameters
from cavity.models.many.fits import fit_responses
from cavity.models.many.inputs import check_row_count, take_used_rows, warn_of_rank
from cavity.models.many.posterior import ManyPosterior
from cavity.models.many.problem import SCALAR_DOMAINS
from cavity.models.many.sharing import check_share, learn_shared_priors


def make_run(options):
    """Return the checked options of a fit."""
    return Options.checked(schedules=("parallel",), **options)


def refuse_settings(model):
    """Raise ValueError for settings of a model that `fit_many` does not take."""
    for name, value in {"approximation": "full", "integrate": False, "bins": None}.items():
        actual = getattr(model, name, value)
        if actual != value:
            raise arrays.error_of(name, f"of fit_many must be {value!r}, got {actual!r}")


def check_open_parameters(likelihood):
    """Raise ValueError for open parameters of several values, which `fit_many` does not learn."""
    for name in list_open_parameters(likelihood):
        if likelihood.parameters[name] not in SCALAR_DOMAINS:
            kind = type(likelihood).__name__
            message = f"of {kind} must be given to fit_many, which learns single numbers by response, got None"
            raise arrays.error_of(name, message)


def run_many(problem, inputs, share, model_kind, labels, effect_names=(), variance_names=()):
    """Fit all responses and return their `ManyPosterior`.

    Parameters
    ----------
    problem : ManyProblem
        What responses share.
    inputs : ManyInputs
        The responses.
    share : str, tuple of str or None
        What is found from all responses together.
    model_kind : str
        "glm" or "mixed".
    labels : dict
        Fields of the posterior about rows and columns.
    effect_names, variance_names : tuple of str
        Of random effects, and of their standard deviations.
    """
    n, count = inputs.matrices["Y"].shape
    check_row_count([problem.rows.n], n)
    problem = replace(problem, rows=take_used_rows(problem.rows), drops_missing=inputs.drops_missing)
    d, run = problem.rows.X.shape[1], problem.run
    names = name_coefficients(labels["columns"], d, labels["intercept"])
    warn_of_rank(problem.rows.X, names)
    shared = check_share(share, problem, names)
    m = d + problem.effects.shape[1]
    arrays.allocate_matrices(1, (count, m * (m + 1) // 2), "fit_many: covariances of all responses")
    data = {name: value for name, value in problem.rows.named().items() if name != "y"}
    data |= {"groups": problem.effects} | {name: matrix.by_response for name, matrix in inputs.matrices.items()}
    settings = {
        "share": share,
        "missing": inputs.drops_missing,
        "variances": problem.effect_scale,
        "learnt": [str(group) for group in problem.groups],
    }
    with run.open(problem.choice.model, data, kind=model_kind, **settings) as threads:
        learn_shared_priors(shared, problem, inputs, threads, run.job.stage("shared priors"))
        fits = fit_responses(problem, inputs, threads, run.job, shared.factors, shared.make_priors)
    count = np.count_nonzero(fits.status != CONVERGED_STATUS)
    if count:
        first = int(np.argmax(fits.status != CONVERGED_STATUS))
        warn(
            f"{count} of {len(fits.status)} responses have no converged fit, the first is "
            f"{inputs.names[first]!r}: {fits.status[first]}; see status of the posterior",
            ConvergenceWarning,
        )
    return make_posterior(problem, inputs, fits, shared, names, model_kind, labels, effect_names, variance_names)


def make_posterior(problem, inputs, fits, shared, names, model_kind, labels, effect_names, variance_names):
    """Return the `ManyPosterior` of all fits."""
    learnt, values = problem.names, np.exp(0.5 * fits.free)
    for j, name in enumerate(learnt):
        unpack = PARAMETER_DOMAINS[problem.likelihood.parameters[name]].unpack
        values[:, j] = [unpack(free[j : j + 1], 1.0) for free in fits.free]
    shared_values = {}
    for j in shared.parameters:
        shared_values |= {f"median({learnt[j]})": np.exp(shared.centre[j]), f"sd(log({learnt[j]}))": shared.sd[j]}
        if j in shared.trends:
            shared_values[f"level(half {learnt[j]})"] = np.exp(shared.rise[j])
    shared_values |= {f"factor(prior sd of {names[j]})": shared.factors[j] for j in shared.weights}
    fields = ("columns", "roles", "centre", "spread", "intercept", "coding")
    return ManyPosterior(
        model_kind=model_kind,
        likelihood=problem.likelihood,
        names=np.array(inputs.names),
        mean=fits.mean,
        log_evidence=fits.log_evidence,
        n_iter=fits.n_iter,
        status=np.array(fits.status, dtype=str),
        parameter_names=(*learnt, *variance_names),
        parameters=values,
        prior_mean=fits.prior_mean,
        prior_sd=fits.prior_sd,
        prior_root=problem.prior.root if problem.prior.variance.ndim == 2 else None,
        n_samples=problem.rows.n,
        n_observed=fits.n_observed,
        has_offset=problem.rows.has_offset or inputs.has_offset,
        effect_names=tuple(effect_names),
        shared_names=tuple(shared_values),
        shared_values=np.array([*shared_values.values()]) if shared_values else None,
        _covariance=fits.covariance,
        **{name: labels.get(name) for name in fields},
    )
