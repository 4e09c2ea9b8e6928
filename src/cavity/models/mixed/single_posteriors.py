"""Single posteriors of a fit of many responses by one mixed model, and rows as these take them."""

from dataclasses import replace

import numpy as np

from cavity.base import records
from cavity.base.serialization import deserialize
from cavity.models.hyperparameters import NO_ERRORS_NOTE, Hyperparameters
from cavity.models.mixed.effects import Effects
from cavity.models.mixed.posterior import MixedGLMPosterior, collect_moments


def make_posterior(model, reader, many, number):
    """Return the `MixedGLMPosterior` of a response.

    Parameters
    ----------
    model : MixedGLM
        Settings, with numbers for the covariances that are given.
    reader : RowReader
        Of new rows.
    many : ManyPosterior
        The posteriors of all responses.
    number : int
        That of the response.
    """
    names = many.parameter_names
    values = dict(zip(names, map(float, many.parameters[number]), strict=True))
    own = {name: values[name] for name in names if name in many.likelihood.parameters}
    effects, d, sd = make_effects(many.mean[number], many._find_root(number)), many.n_weights, many.prior_sd[number]
    variance, root = sd[:d] ** 2, many.prior_root
    if root is not None:
        variance = (root * sd[:d]) @ (root * sd[:d]).T
    starts = np.cumsum([d, *(term.block.size for term in reader.terms)])
    covariances = {term.name: np.array([[sd[at] ** 2]]) for term, at in zip(reader.terms, starts, strict=False)}
    priors = {"prior_mean": many.prior_mean[number, :d], "prior_variance": variance, "effect_covariances": covariances}
    precision = np.linalg.inv(variance) if variance.ndim == 2 else np.diag(1.0 / variance)
    prior_share = np.sum(precision * effects.covariance(np.arange(d))) + np.sum(effects.variance[d:] / sd[d:] ** 2)
    errors = (None,) * len(names)
    return MixedGLMPosterior(
        model=replace(model, likelihood=replace(many.likelihood, **own), **priors),
        log_evidence=float(many.log_evidence[number]),
        n_samples=many.n_samples,
        effective_parameters=float(len(sd) - prior_share),
        converged=bool(many.converged[number]),
        n_iter=int(many.n_iter[number]),
        status=str(many.status[number]),
        residual=np.nan,
        trace={},
        hyperparameters=Hyperparameters(names, tuple(values.values()), errors, NO_ERRORS_NOTE) if names else None,
        has_offset=many.has_offset,
        chosen=None,
        classes=None,
        dropped=None,
        _reader=reader,
        _mode_effects=effects,
        **dict.fromkeys(("_loo", "_tau", "_rho")),
        **collect_moments(effects, d),
    )


def make_effects(mean, root):
    """Return the `Effects` of the root of a dense covariance."""
    m = len(mean)
    columns, rows = np.triu_indices(m)  # the lower triangle by columns
    indptr = np.concatenate([[0], np.cumsum(np.arange(m, 0, -1))])
    factor = np.linalg.inv(root)
    return Effects(mean.copy(), indptr, rows, (factor.T @ factor)[rows, columns], np.arange(m))


def describe_template(posterior):
    """Return a posterior as JSON has it."""
    arrays, settings = posterior.to_arrays()
    described = {name: [array.dtype.str, array.shape, array.ravel().tolist()] for name, array in arrays.items()}
    return {"arrays": described, "settings": settings}


def restore_template(make_model, described):
    """Return the posterior that `describe_template` has described; make_model(**settings) is its model."""
    arrays = {name: np.array(v, dtype=d).reshape(shape) for name, (d, shape, v) in described["arrays"].items()}
    record = records.record_of(MixedGLMPosterior)
    arrays, settings = records.check(record, arrays, described["settings"])
    return deserialize(record, MixedGLMPosterior, make_model, arrays, settings)


def make_single_posterior(make_model, many, number):
    """Return the `MixedGLMPosterior` of a response."""
    template = restore_template(make_model, many.template)
    return make_posterior(template.model, template._reader, many, number)


def read_rows(make_model, many, X, groups, levels, offset, exposure):
    """Return new rows of all effects (n, M), the known part of f, and what new levels add to variances, (G, n)."""
    template = restore_template(make_model, many.template)
    rows, others = template.rows(X, groups, levels), {"offset": offset, "exposure": exposure}
    dataset, values, _ = template._reader.read(rows.X, rows.groups, rows.levels, others, [])
    layout, more = template._layout, np.zeros((len(many), dataset.n_rows))
    for (codes, Z), start in zip(values, layout.starts, strict=False):
        is_new = (codes < 0) & (rows.levels == "new")
        more += many.prior_sd[:, start, None] ** 2 * np.where(is_new, Z[:, 0] ** 2, 0.0)
    return layout.rows(dataset.X, values).toarray(), template._known_offset(dataset), more
