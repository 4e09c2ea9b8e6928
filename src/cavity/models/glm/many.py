"""Many responses of one GLM: what depends on the design, and fits alone."""

from dataclasses import replace

import numpy as np

from cavity.base import arrays
from cavity.base.errors import name_arguments
from cavity.base.public_objects import replace_unchecked
from cavity.base.rows import Rows
from cavity.jobs.job import SILENT_JOB
from cavity.likelihoods.parameters import FreeParameters, list_open_parameters
from cavity.models.formula.notation import has_random_effects
from cavity.models.glm.problem import GLMProblem
from cavity.models.glm.solution import solve
from cavity.models.linear.defaults import ColumnScales, choose_prior, has_added_intercept, resolve_defaults
from cavity.models.linear.inputs import LinearInputs
from cavity.models.linear.prior import Prior
from cavity.models.many.inputs import ManyInputs, with_formula
from cavity.models.many.problem import LoneFit, ManyProblem
from cavity.models.many.run import check_open_parameters, make_run, run_many
from cavity.sources.features import find_constant_columns, open_features


def fit_many(model, X, Y, names, columns, share, options):
    """Return the `ManyPosterior` of the responses Y; see `GLM.fit_many`."""
    for name, is_given in (("approximation", model.approximation != "full"), ("priors", model.priors is not None)):
        if is_given:
            raise name_arguments(ValueError(f"{name} has no meaning for fit_many; see share for priors"), name)
    inputs = ManyInputs.open(model.formula, model.likelihood, X, Y, names, columns)
    if inputs.formula is not None and has_random_effects(inputs.formula):
        raise arrays.error_of("formula", "must have no random effects for GLM.fit_many: use MixedGLM.fit_many")
    run, model = make_run(options), with_formula(model, inputs.formula)
    observed = {"y": inputs.y} if inputs.formula is None else {}
    linear = LinearInputs.of(model, inputs.table, observed | inputs.columns, "raise")
    rows = linear.observations.rows(open_features(linear.dataset.in_memory(), "full"))
    model = replace_unchecked(model, formula=None, intercept=linear.intercept)
    check_open_parameters(model.likelihood)
    resolved = resolve_defaults(model, rows)
    problem = make_problem(model, rows, resolved, run)
    labels = linear.labels() | resolved.described(linear.observations)
    return run_many(problem, inputs, share, "glm", labels)


def make_problem(model, rows, resolved, run):
    """Return the `ManyProblem` of a GLM, its checked rows before defaults, and the model with these."""
    added = has_added_intercept(model.intercept)
    constant, scales = find_constant_columns(rows.X, rows.weights), ColumnScales.of(model, rows, added)
    names = list_open_parameters(model.likelihood)

    def choose(new):
        return choose_prior(model, replace(rows, y=new.y, offset=new.offset), scales, constant, added)

    prior = Prior.of(resolved.model.prior_mean, resolved.model.prior_variance, resolved.rows.X.shape[1])
    problem = GLMProblem.of(resolved.model, resolved.rows)
    many = ManyProblem(model.likelihood, problem.rows, prior, choose, np.zeros((rows.n, 0)), [], np.zeros(0), None, run)

    def fit_alone(new, factors, priors):
        mean, variance = choose(new) if many.has_own_priors else (prior.mean, prior.variance)
        settings = {"prior_mean": mean, "prior_variance": variance if factors is None else variance * factors**2}
        settings["priors"] = priors.by_name(names)
        lone = GLMProblem.of(replace(resolved.model, **settings), Rows(new.X, new.y, new.offset, new.weights))
        with replace(run, n_threads=1, job=SILENT_JOB).open(lone.model, {}) as threads:
            solution = solve(lone, "ep", replace(run, job=SILENT_JOB), threads, names)
        return _describe_lone(solution, names)

    return replace(many, fit_alone=fit_alone)


def _describe_lone(solution, names):
    """Return the `LoneFit` of a solution."""
    problem, fit, likelihood = solution.problem, solution.fit, solution.problem.model.likelihood
    root = solution.weights.covariance.full_root()
    return LoneFit(
        mean=solution.weights.mean,
        covariance=np.diag(root**2) if root.ndim == 1 else root @ root.T,
        prior_sd=np.ones(len(root)) if problem.prior.root.ndim == 2 else problem.prior.root,
        log_evidence=fit.log_evidence + problem.rows.log_p_known(likelihood)[1],
        n_iter=fit.n_iter,
        status=fit.outcome(solution.searched)["status"],
        free=FreeParameters(likelihood, names).pack(likelihood),
    )
