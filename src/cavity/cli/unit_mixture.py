"""`cavity fit unit-mixture`: groups on a line, with their uncertainty, and how many there seem to be."""

from dataclasses import replace
from pathlib import Path

import numpy as np

from cavity.cli import input_tables
from cavity.cli.data_table import drop_incomplete, format_digits
from cavity.cli.fit_commands import collect_ascent_options, collect_typed, fit_command, report_ascent, time_call
from cavity.cli.options import ASCENT_OPTIONS, Number, Option, OptionGroup, make_flag
from cavity.jobs.job import Job
from cavity.models.unit_mixture.model import LEARNABLE_SETTINGS, UnitMixture
from cavity.runs.executors import Threads, resolve_n_threads
from cavity.sources import sources

VARIANCE_OPTIONS = (
    Number("--noise-variance", "positive", "V", "around the component means (default learnt)"),
    Number("--prior-variance", "positive", "V", "of the component means (default learnt)"),
)
MAX_COMPONENTS_TRIED = 10  # if their number is not given
ELBO_TIE_NATS = 1e-3  # closer ELBOs belong to the same components, the others being empty
MAX_SEARCH_PASSES = 200  # of fits that are compared: empty components take thousands to vanish
COMPONENTS_OPTION = Number("--components", "at least 1", "K", "number of components (default: chosen by ELBO)")
EQUAL_WEIGHTS_OPTION = make_flag("--equal-weights", "all components equally probable (default learnt)")
COLUMN_OPTION = Option("--column", "NAME", "column name or number", action="append")
MODEL_OPTIONS = OptionGroup("model", COMPONENTS_OPTION, *VARIANCE_OPTIONS, EQUAL_WEIGHTS_OPTION)
DATA_OPTIONS = (COLUMN_OPTION, *input_tables.READING_OPTIONS, MODEL_OPTIONS)
PLOT_CONTENT = "histogram, components, responsibilities and ELBO"


@fit_command("galaxies", PLOT_CONTENT, *DATA_OPTIONS, max_iter=2000, tol=1e-10, fit=ASCENT_OPTIONS)
def fit(options):
    """Fit a mixture of Gaussians of equal variance by mean field.

    Settings that are not given are learnt by variational EM; without --components 1 to 10 are tried and the largest
    ELBO wins.
    """
    y, title, label, unit = read(options)
    collect_ascent_options(options)  # checked before the data are read
    source = sources.open_source(y, "the data")
    with Threads(resolve_n_threads(options.threads)) as threads:
        mean = source.summary(threads)[2]  # also checks all numbers
    sample = source.sample()
    (best, posteriors), seconds = time_call(search, y, mean, sample, options)
    name = f"{label or 'value'} [{unit}]" if unit else label or "value"
    plot_arguments = {"X": sample, "names": [name], "title": title, "trace": True}
    posterior = replace(best, columns=None if label is None else (label,))
    return posterior, report(title, posteriors, best, unit, seconds), plot_arguments


def read(options):
    """Return the column as a Source (N,), title, name of the column or None, and unit."""
    table = input_tables.open_table(options)
    names = table.select(options.column)
    if len(names) > 1:
        raise ValueError(f"{options.data}: choose one column with --column, got {', '.join(names)}")
    has_name = table.rows.names is not None or options.column
    if options.missing == "drop":
        table, _ = drop_incomplete(table, names, options)
    table.ranges(names)
    title = table.about.get("title", Path(options.data).name)
    return table.of(names).column(0), title, names[0] if has_name else None, table.about.get("unit", "")


def search(y, mean, sample, options):
    """Return the best posterior and, by number of components, all that were tried; None where the noise vanished."""
    settings = collect_ascent_options(options)

    def fitted(k, max_iter, job):
        return model_of(k, mean, sample, options).fit(y, **settings | {"max_iter": max_iter, "callback": job})

    if options.components is not None:
        best = fitted(options.components, options.max_iter, None)
        return best, {options.components: best}
    names = settings.keys() & {"progress", "checkpoint", "checkpoint_every"}
    job_arguments = {name: settings.pop(name) for name in names}
    model = model_of(MAX_COMPONENTS_TRIED, mean, sample, options)
    settings_of_job = dict(options=settings, weights=options.equal_weights)
    with Job.checked(**job_arguments) as job, job.open_checkpoint(model, {"y": y}, **settings_of_job):
        return choose_best(fitted, options.max_iter, job)


def choose_best(fitted, max_iter, job):
    """Return the best posterior of some numbers of components, and all that were tried."""
    posteriors = {}
    for k in range(1, MAX_COMPONENTS_TRIED + 1):
        try:
            posteriors[k] = fitted(k, min(MAX_SEARCH_PASSES, max_iter), job.stage(f"K = {k}"))
        except ArithmeticError as error:
            posteriors[k], reason = None, error
    ranked = {k: posterior for k, posterior in posteriors.items() if posterior is not None and not is_merged(posterior)}
    if not ranked:
        raise reason
    highest = max(posterior.elbo for posterior in ranked.values())
    chosen = next(k for k, posterior in ranked.items() if posterior.elbo >= highest - ELBO_TIE_NATS)
    if not posteriors[chosen].converged and max_iter > MAX_SEARCH_PASSES:
        posteriors[chosen] = fitted(chosen, max_iter, job.stage(f"K = {chosen} to the end"))
    return posteriors[chosen], posteriors


def is_merged(posterior):
    """Whether a learnt prior variance is so small that all components coincide."""
    learns_variance = "prior_variance" in posterior.model.learn
    return learns_variance and posterior.prior_variance < posterior.noise_variance / posterior.n_samples


def model_of(k, mean, sample, options):
    """Return the model: typed settings, the others learnt from starts scaled to a sample of the data."""
    variance = float(np.var(sample)) or 1.0
    typed = collect_typed(options, VARIANCE_OPTIONS)
    fixed = {*typed, *(["weights"] if options.equal_weights else [])}
    if k == 1:
        fixed.add("prior_variance")  # not identified by one mean
    settings = {"prior_variance": variance, "noise_variance": variance / k**2} | typed
    return UnitMixture(
        k, prior_mean=mean, learn=tuple(name for name in LEARNABLE_SETTINGS if name not in fixed), **settings
    )


def report(title, posteriors, best, unit, seconds):
    """Yield the lines of the printed result."""
    yield f"{title}: {best.n_samples} points"
    if len(posteriors) > 1:
        yield "number of components"
        for k, posterior in posteriors.items():
            yield f"  {k:<4} {describe_result(posterior, best)}"
    yield "model"
    for name in ("noise_variance", "prior_variance"):
        kind = "learnt" if name in best.model.learn else "given"
        yield f"  {name:<16} {getattr(best, name):.6g}  ({kind})"
    yield f"  {'prior_mean':<16} {format_digits(best.model.prior_mean, np.sqrt(best.noise_variance))}"
    yield f"components (mean and its sd{f' in {unit}' if unit else ''}, weight, expected points)"
    for k in np.argsort(best.mean):
        sd = np.sqrt(best.variance[k])
        yield f"  {format_digits(best.mean[k], sd):>12} +- {sd:<10.3g} {best.weights[k]:8.4f} {best.counts[k]:12.2f}"
    yield from report_ascent(best, posteriors.values(), seconds)


def describe_result(posterior, best):
    """Describe the fit with a number of components."""
    if posterior is None:
        return "the noise variance falls to zero: as many components as different values"
    state = "" if posterior.converged else f"  ({posterior.status})"
    mark = "  <- chosen" if posterior is best else ""
    if len(posterior.mean) > 1 and is_merged(posterior):
        mark += "  (all components coincide)"
    return f"ELBO {posterior.elbo:.4f}{state}{mark}"
