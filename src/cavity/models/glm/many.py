"""Many responses of one GLM: what depends on the design, and fits alone."""

from dataclasses import replace
from functools import partial

import numpy as np

from cavity.base import arrays
from cavity.base.public_objects import replace_unchecked
from cavity.base.rows import Rows
from cavity.likelihoods.parameters import list_open_parameters
from cavity.models.formula.notation import has_random_effects
from cavity.models.glm.problem import GLMProblem
from cavity.models.glm.solution import solve
from cavity.models.linear.defaults import resolve_defaults
from cavity.models.linear.evidence import PRIOR_VARIANCE_TARGET
from cavity.models.linear.inputs import LinearInputs
from cavity.models.many.inputs import ManyInputs, replace_way_out, with_formula
from cavity.models.many.priors import PriorChoice
from cavity.models.many.problem import ManyProblem, SingleSolution
from cavity.models.many.run import check_open_parameters, make_run, refuse_settings, run_many
from cavity.sources.features import open_features


def fit_many(model, X, Y, names, columns, missing, share, options):
    """Return the `ManyPosterior` of the responses Y; see `GLM.fit_many`."""
    refuse_settings(model)
    inputs = ManyInputs.open(model.formula, model.likelihood, X, Y, names, columns, missing)
    if inputs.formula is not None and has_random_effects(inputs.formula):
        raise arrays.error_of("formula", "must have no random effects for GLM.fit_many: use MixedGLM.fit_many")
    run, model = make_run(options), with_formula(model, inputs.formula)
    observed = {"y": inputs.y} if inputs.formula is None else {}
    with replace_way_out():
        linear = LinearInputs.of(model, inputs.table, observed | inputs.columns, "raise")
        rows = linear.observations.rows(open_features(linear.dataset.in_memory(), "full"))
    model = replace_unchecked(model, formula=None, intercept=linear.intercept)
    check_open_parameters(model.likelihood)
    resolved = resolve_defaults(model, rows, linear.observations.names)
    problem = make_problem(model, rows, resolved, run).with_priors(model.priors, [PRIOR_VARIANCE_TARGET])
    labels = linear.labels() | resolved.described(linear.observations)
    return run_many(problem, inputs, share, "glm", labels)


def make_problem(model, rows, resolved, run):
    """Return the `ManyProblem` of a GLM, its checked rows before defaults, and the model with these."""
    solve_single = partial(_solve_single, resolved.model, list_open_parameters(model.likelihood))
    choice, no_effects = PriorChoice.of(model, rows, resolved), np.zeros((rows.n, 0))
    prepared = GLMProblem.of(resolved.model, resolved.rows).rows
    return ManyProblem(model.likelihood, prepared, choice, no_effects, [], np.zeros(0), solve_single, run)


def _solve_single(model, names, rows, settings, run):
    """Return the `SingleSolution` of the rows of one response; `names` are what is learnt."""
    problem = GLMProblem.of(replace(model, **settings), Rows(rows.X, rows.y, rows.offset, rows.weights))
    with run.open(problem.model, {}) as threads:
        solution = solve(problem, "ep", run, threads, names)
    root = solution.weights.covariance.full_root()
    return SingleSolution(solution, np.diag(root**2) if root.ndim == 1 else root @ root.T, np.zeros(0), [])
