"""Pictures of results. Needs the plot extra (matplotlib), which is imported here and nowhere else."""

import numpy as np

from .errors import missing_extra
from .persistence import whole_file

try:
    from matplotlib import colormaps
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator
except ImportError as error:
    raise missing_extra("matplotlib", "plot") from error

SIGNAL, CLUTTER = "#1b6ca8", "#c8553d"
SHOWN = 40  # most coefficients drawn
BINS = 10  # of the probability
PEAKS = 100  # most components drawn with points of their own, most passes drawn as dots


def clutter_figure(path, posterior, values, probability, title, columns, unit=None):
    """Draw data, posterior and clutter probabilities of a clutter fit to a file (format by its suffix).

    Parameters
    ----------
    path : str or path-like
        The picture; it appears whole or not at all.
    posterior : ClutterPosterior
        A fit of one problem.
    values : ndarray (N, d)
        The data; of more than two dimensions the first two are drawn.
    probability : ndarray (N,)
        Clutter probability of each point.
    title : str
        What the data are.
    columns : list of str
        Names of the columns.
    unit : str, optional
        Unit of the data, for the axis.
    """
    figure = Figure(figsize=(7.5, 6.0 if values.shape[1] == 1 else 6.5), layout="constrained")
    draw = _one_dimension if values.shape[1] == 1 else _plane
    draw(figure, posterior, values, probability, [f"{c} [{unit}]" if unit else c for c in columns])
    figure.suptitle(f"{title}: mean and sd of the signal, and what looks like clutter")
    _save(figure, path)


def glm_figure(path, posterior, names, y, predicted, title, target, classes=(), intercept=False):
    """Draw the coefficients of a GLM and how it predicts the rows it was fitted to (format by the file's suffix).

    Beside the coefficients stands, for two classes, how often class 1 is true among rows of similar leave-one-out
    probability; else each observation over its prediction. Fits without leave-one-out densities show coefficients only.

    Parameters
    ----------
    path : str or path-like
        The picture; it appears whole or not at all.
    posterior : GLMPosterior
        The fit.
    names : list of str
        Names of the D columns of the matrix that was fitted.
    y : ndarray (N,)
        The target; 0 and 1 if it has two classes.
    predicted : ndarray (N,) or None
        Expected target of each row; not used for two classes.
    title : str
        What the data are.
    target : str
        Name of the target.
    classes : tuple of str, optional
        What 0 and 1 stand for, if the target has two classes.
    intercept : bool, default False
        Whether the first coefficient is an intercept: it is told in the title, on a scale of its own.
    """
    drawn = np.arange(1 if intercept and len(names) > 1 else 0, len(names))
    clarity = np.abs(posterior.mean[drawn]) / np.sqrt(posterior.variance[drawn])
    shown = drawn[np.argsort(-clarity, kind="stable")[:SHOWN]]
    density = _loo(posterior)
    panels = 1 if density is None else 2
    figure = Figure(figsize=(5.5 * panels, max(4.5, 1.5 + 0.22 * len(shown))), layout="constrained")
    left, *right = figure.subfigures(1, panels, squeeze=False)[0]
    _coefficients(left.subplots(), posterior, names, shown, len(drawn) - len(shown))
    if right and classes:
        _calibration(right[0], np.where(y == 1, np.exp(density), -np.expm1(density)), y, target, classes)
    elif right:
        _observed(right[0].subplots(), predicted, y, density, target)
    figure.suptitle(title)
    _save(figure, path)


def unit_mixture_figure(path, posterior, sample, title, label):
    """Draw the data with the components of a unit mixture, its responsibilities and the rise of the ELBO.

    Parameters
    ----------
    path : str or path-like
        The picture; it appears whole or not at all.
    posterior : UnitMixturePosterior
        The fit.
    sample : ndarray (n,)
        The data, or some of them.
    title : str
        What the data are.
    label : str
        What is on the axis, with its unit.
    """
    figure = Figure(figsize=(11.0, 6.0), layout="constrained")
    left, right = figure.subfigures(1, 2, width_ratios=[3, 2])
    upper, lower = left.subplots(2, 1, sharex=True, height_ratios=[3, 2])
    grid = _mixture_grid(sample, posterior)
    order = np.argsort(posterior.mean)
    colors = colormaps["viridis"](np.linspace(0.0, 0.9, len(order)))
    _components(upper, posterior, sample, grid, order, colors)
    shares = posterior.responsibilities(grid)[:, order]
    lower.stackplot(grid, shares.T, colors=colors, alpha=0.8)
    lower.set(ylim=(0, 1), xlim=(grid[0], grid[-1]), ylabel="responsibilities", xlabel=label)
    _ascent(right.subplots(), posterior)
    figure.suptitle(f"{title}: {len(order)} component(s) of one variance")
    _save(figure, path)


def _grid(sample):
    """Points across the data and a little beyond."""
    margin = 0.05 * (np.ptp(sample) or 1.0)
    return np.linspace(sample.min() - margin, sample.max() + margin, 801)


def _mixture_grid(sample, posterior):
    """Points across the data and a little beyond, closer where components are narrow."""
    sd = np.sqrt(posterior.noise_variance + posterior.variance)
    margin = 0.05 * np.ptp(sample) or 4.0 * np.max(sd)
    ends = sample.min() - margin, sample.max() + margin
    centers = np.argsort(-posterior.counts)[:PEAKS]
    near = posterior.mean[centers, None] + sd[centers, None] * np.linspace(-4.0, 4.0, 41)
    return np.unique(np.concatenate([np.linspace(*ends, 801), near[(near > ends[0]) & (near < ends[1])]]))


def _components(axes, posterior, sample, grid, order, colors):
    most = min(max(80, 6 * len(order)), 6 * PEAKS)
    bins, ends = min(most, max(20, len(sample) // 4)), (grid[0], grid[-1])
    axes.hist(sample, bins=bins, range=ends, density=True, color="gray", alpha=0.35, label="data")
    axes.plot(grid, np.exp(posterior.log_density(grid)), color="black", lw=1.4, label="predictive density")
    spread = posterior.noise_variance + posterior.variance
    for k, color in zip(order, colors, strict=True):
        density = np.exp(-0.5 * (grid - posterior.mean[k]) ** 2 / spread[k]) / np.sqrt(2 * np.pi * spread[k])
        axes.plot(grid, posterior.weights[k] * density, color=color, lw=1.2)
        if posterior.counts[k] < 0.5:  # the mean of a component without data is where the prior says, anywhere
            continue
        sd = 2 * np.sqrt(posterior.variance[k])
        axes.axvspan(posterior.mean[k] - sd, posterior.mean[k] + sd, color=color, alpha=0.25, lw=0)
    axes.set_ylabel("density (bands: component means ± 2 sd)")
    axes.legend(loc="best", fontsize=8)


def _ascent(axes, posterior):
    """The distance of the ELBO to the last one, pass by pass, on a logarithmic scale."""
    elbo = posterior.trace["elbo"]
    behind = elbo[-1] - elbo
    shown = behind > 0
    if shown.any():
        style = "o-" if len(elbo) <= PEAKS else "-"
        axes.semilogy(np.arange(1, len(elbo) + 1)[shown], behind[shown], style, ms=4, lw=1, color=SIGNAL)
    else:
        axes.set_yticks([])
        axes.text(0.5, 0.5, "the first pass ended there", ha="center", transform=axes.transAxes)
    axes.set(xlabel="pass over the data", ylabel="nats below the last ELBO", xlim=(0.5, max(2, len(elbo)) + 0.5))
    axes.xaxis.set_major_locator(MaxNLocator(nbins=6, integer=True))
    done = "converged" if posterior.converged else posterior.status
    passes = "1 pass" if posterior.n_iter == 1 else f"{posterior.n_iter} passes"
    axes.set_title(f"ELBO {elbo[-1]:.4f}, {done} after {passes}", fontsize=10)


def _save(figure, path):
    suffix = str(path).rpartition(".")[2].lower()
    supported = figure.canvas.get_supported_filetypes()
    if suffix not in supported:
        raise ValueError(f"{path}: cannot draw a {suffix!r} file; use one of {', '.join(sorted(supported))}")
    with whole_file(path) as file:
        figure.savefig(file, format=suffix, dpi=150)


def _one_dimension(figure, posterior, values, probability, labels):
    x = values[:, 0]
    upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=[3, 2])
    grid = _grid(x)
    clutter = probability > 0.5
    bins = np.linspace(x.min(), x.max(), min(60, max(10, len(x) // 2))) if np.ptp(x) > 0 else 10
    upper.hist(
        [x[~clutter], x[clutter]],
        bins=bins,
        stacked=True,
        density=True,
        color=[SIGNAL, CLUTTER],
        alpha=0.5,
        label=["signal", "clutter (probability > 1/2)"],
    )
    upper.plot(grid, np.exp(posterior.log_density(grid)), color="black", lw=1.2, label="predictive density")
    sd = float(np.sqrt(posterior.variance))
    upper.axvline(posterior.mean, color=SIGNAL, lw=1)
    upper.axvspan(
        posterior.mean - 2 * sd,
        posterior.mean + 2 * sd,
        color=SIGNAL,
        alpha=0.25,
        lw=0,
        label=f"mean {posterior.mean:.4g} ± 2 sd ({sd:.2g})",
    )
    upper.set_ylabel("density")
    upper.legend(loc="best", fontsize=8)
    lower.scatter(x, probability, s=14, c=np.where(clutter, CLUTTER, SIGNAL), alpha=0.8, linewidths=0)
    lower.axhline(0.5, color="gray", lw=0.8, ls=":")
    lower.set(ylim=(-0.04, 1.04), ylabel="clutter probability", xlabel=labels[0])


def _plane(figure, posterior, values, probability, labels):
    axes = figure.subplots()
    points = axes.scatter(
        values[:, 0], values[:, 1], s=14, c=probability, cmap="coolwarm", vmin=0, vmax=1, linewidths=0
    )
    angle = np.linspace(0, 2 * np.pi, 200)
    radius = 2 * np.sqrt(posterior.variance)
    axes.plot(
        posterior.mean[0] + radius * np.cos(angle),
        posterior.mean[1] + radius * np.sin(angle),
        color="black",
        lw=1.2,
        label="mean ± 2 sd",
    )
    axes.plot(*posterior.mean[:2], "k+")
    axes.set(xlabel=labels[0], ylabel=labels[1], aspect="equal")
    if len(labels) > 2:
        axes.set_title(f"the first two of {len(labels)} columns; all were fitted", fontsize=9)
    axes.legend(loc="best", fontsize=8)
    figure.colorbar(points, ax=axes, label="clutter probability")


def _loo(posterior):
    """Leave-one-out log densities, or None where the fit has none."""
    try:
        return posterior.loo_log_density
    except ValueError:  # ADF, stochastic schedule
        return None


def _coefficients(axes, posterior, names, shown, more):
    shown = shown[::-1]  # the clearest at the top
    mean, sd = posterior.mean[shown], np.sqrt(posterior.variance[shown])
    clear = np.abs(mean) > 2 * sd
    place = np.arange(len(shown))
    axes.axvline(0.0, color="gray", lw=0.8, ls=":")
    for group, color in ((clear, SIGNAL), (~clear, "gray")):
        axes.errorbar(mean[group], place[group], xerr=2 * sd[group], fmt="o", ms=5, capsize=3, color=color)
    axes.set_yticks(place, [names[j] for j in shown])
    axes.set_ylim(-0.7, len(shown) - 0.3)
    axes.set_xlabel("coefficient, mean ± 2 sd (gray: 0 is inside)")
    title = f"the {len(shown)} clearest of {len(shown) + more} coefficients" if more else "coefficients"
    if 0 not in shown and not more:
        title += f" ({names[0]} {posterior.mean[0]:.4g} ± {2 * np.sqrt(posterior.variance[0]):.2g})"
    axes.set_title(title, fontsize=10)


def _calibration(figure, probability, y, target, classes):
    used = np.isfinite(probability)  # rows of weight zero have none
    probability, y = probability[used], y[used]
    upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=[3, 1])
    edges = np.linspace(0.0, 1.0, BINS + 1)
    index = np.minimum((probability * BINS).astype(int), BINS - 1)
    count = np.bincount(index, minlength=BINS)
    full = count > 0
    count, place = count[full], (edges[:-1] + 0.5 / BINS)[full]
    total = np.bincount(index, probability, BINS)[full]
    expected, true = total / count, np.bincount(index, y, BINS)[full] / count
    noise = np.sqrt(np.bincount(index, probability * (1 - probability), BINS)[full]) / count
    upper.plot([0, 1], [0, 1], color="gray", lw=0.8, ls=":")
    upper.vlines(
        expected,
        np.maximum(expected - 2 * noise, 0),
        np.minimum(expected + 2 * noise, 1),
        color="gray",
        alpha=0.35,
        lw=6,
        label="± 2 sd of chance if the probabilities are right",
    )
    upper.plot(expected, true, "o", color=SIGNAL, label="share of the rows in a bin")
    upper.set(ylabel=f"true share of {target} = {classes[1]}", ylim=(-0.04, 1.04), xlim=(-0.02, 1.02))
    upper.legend(loc="upper left", fontsize=8)
    upper.set_title("calibration: each row predicted from the others", fontsize=10)
    bars = lower.bar(place, count, width=0.9 / BINS, color=SIGNAL, alpha=0.5)
    lower.bar_label(bars, fontsize=8)
    lower.margins(y=0.25)
    lower.set(xlabel=f"leave-one-out probability of {target} = {classes[1]}", ylabel="rows")


def _observed(axes, predicted, y, density, target):
    used = np.isfinite(density)
    predicted, y, density = predicted[used], y[used], density[used]
    order = np.argsort(-density, kind="stable")  # the surprising ones on top
    points = axes.scatter(predicted[order], y[order], s=14, c=density[order], cmap="plasma", linewidths=0)
    ends = [min(predicted.min(), y.min()), max(predicted.max(), y.max())]
    axes.plot(ends, ends, color="gray", lw=0.8, ls=":")
    axes.set(xlabel=f"predicted {target}", ylabel=f"observed {target}")
    axes.set_title("each row: observed over predicted", fontsize=10)
    axes.figure.colorbar(points, ax=axes, label="leave-one-out log density")
