"""Many responses of one mixed model: random effects of one column as columns of the design, and fits alone."""

from dataclasses import replace
from functools import partial
from itertools import pairwise

import numpy as np

from cavity.base import arrays
from cavity.base.lazy_scipy import sparse
from cavity.base.public_objects import replace_unchecked
from cavity.likelihoods.parameters import list_open_parameters
from cavity.models.linear.defaults import resolve_defaults
from cavity.models.many.inputs import ManyInputs, replace_way_out, with_formula
from cavity.models.many.priors import PriorChoice
from cavity.models.many.problem import ManyProblem, SingleSolution
from cavity.models.many.run import check_open_parameters, make_run, refuse_settings, run_many
from cavity.models.mixed.inputs import Inputs
from cavity.models.mixed.merged_responses import RowMerger
from cavity.models.mixed.problem import MixedProblem, check_effects
from cavity.models.mixed.single_posteriors import describe_template, make_posterior
from cavity.models.mixed.solution import solve
from cavity.models.mixed.terms import Term, component_names
from cavity.models.mixed.variance_search import list_targets


def fit_many(model, settings, match, X, Y, groups, names, columns, missing, share, options):
    """Return the `ManyPosterior` of the responses Y; see `MixedGLM.fit_many`.

    Parameters
    ----------
    model : MixedGLM
        The settings.
    settings, match : callable
        Its fixed effects for a likelihood, and the settings of its terms.
    X, Y, groups, names, columns, missing, share, options
        Those of the method.
    """
    refuse_settings(model)
    formula = model.effects if model.formula else None
    opened = ManyInputs.open(formula, model.likelihood, X, Y, names, columns, missing)
    run = make_run(options)
    model = model if opened.formula is None else with_formula(model, None, effects=opened.formula)
    y = opened.y if opened.formula is None else None
    with replace_way_out():
        inputs = Inputs.of(model, opened.table, y, groups, opened.columns, "raise")
    _check_terms(inputs.terms)
    check_open_parameters(model.likelihood)
    fixed, rows = settings(inputs.observations.likelihood), inputs.observations.rows(inputs.X)
    resolved = resolve_defaults(fixed, rows, inputs.reader.columns)
    problem = make_problem(model, fixed, rows, resolved, inputs.terms, match(inputs.terms), run)
    labels = resolved.fields | {"columns": inputs.reader.columns, "roles": inputs.observations.roles}
    effect_names = [f"{level} | {term.name}" for term in inputs.terms for level in term.levels.names]
    learnt = [component_names(term)[0] for term, setting in _pairs(inputs, match) if setting is None]
    problem = problem.with_priors(model.priors, list_targets(inputs.terms), learnt)
    posterior = run_many(problem, opened, share, "mixed", labels, effect_names, learnt)
    prepared = {name: resolved.fields[name] for name in ("intercept", "centre", "spread")}
    settings = {"intercept": None if model.formula else False, "centre": resolved.model.centre}
    settings = replace_unchecked(model, **settings), replace(inputs.reader, **prepared)
    good = np.flatnonzero(posterior.has_posterior)
    template = describe_template(make_posterior(*settings, posterior, int(good[0]))) if good.size else None
    return replace(posterior, template=template)


def _pairs(inputs, match):
    """Return pairs of terms and their given covariances."""
    return zip(inputs.terms, match(inputs.terms), strict=True)


def _check_terms(terms):
    """Raise ValueError for terms that are no random effects of one column."""
    for term in terms:
        if not isinstance(term, Term) or len(term.columns) != 1:
            message = f"of fit_many must have one column each, as (1 | g) and (0 + x | g) have, got {term.name!r}"
            raise arrays.error_of("effects", message)


def make_problem(model, fixed, rows, resolved, terms, fixed_settings, run):
    """Return the `ManyProblem` of a mixed model; `fixed` are the settings of its fixed effects."""
    effects = [term.Z * (term.codes[:, None] == np.arange(len(term.levels))) for term in terms]
    starts = np.cumsum([resolved.rows.X.shape[1], *(part.shape[1] for part in effects)])
    spans = zip(pairwise(starts), fixed_settings, strict=True)
    groups = [slice(*map(int, span)) for span, setting in spans if setting is None]
    sds = [1.0 if setting is None else float(np.sqrt(setting[0, 0])) for setting in fixed_settings]
    solve_single = partial(_solve_single, model, list_open_parameters(fixed.likelihood), terms, fixed_settings)
    choice, scale = PriorChoice.of(fixed, rows, resolved), np.repeat(sds, np.diff(starts))
    columns, in_use = np.hstack(effects), resolved.rows.in_use
    matrix = sparse.csr_array(np.hstack([resolved.rows.X, columns]))
    check_effects(matrix[in_use], in_use)
    merger = RowMerger(fixed.likelihood, resolved.rows, matrix)
    return ManyProblem(fixed.likelihood, resolved.rows, choice, columns, groups, scale, solve_single, run, merger)


def _solve_single(model, names, terms, fixed_settings, rows, settings, run):
    """Return the `SingleSolution` of the rows of one response; `names` are what is learnt of the likelihood."""
    single_model = replace(model, effects=tuple(term.group for term in terms), **settings)
    with run.open(single_model, {}) as threads:
        solution = solve(MixedProblem.of(single_model, rows, terms, fixed_settings), names, run, threads)
    problem = solution.problem
    variances = [float(setting[0, 0]) for setting in problem.settings]
    free = [variance for variance, setting in zip(variances, fixed_settings, strict=True) if setting is None]
    repeated = np.repeat(variances, [block.size for block in problem.layout.blocks])
    return SingleSolution(solution, solution.weights.covariance(np.arange(problem.layout.size)), repeated, free)
