"""What each part of the exchange of inducing points gains: `python benchmarks/stories/exchange.py --picture FILE`.

Needs the bench extra, for the flights and diamonds of the other stories, and the plot extra for the picture. Streams
with too few inducing points for their rows run at fixed settings, once as they are and once without each part, or with
one that is no longer there. Nats lost are what the residuals of all rows, and the points that were given up, take from
the bound; gains are differences of them.
"""

import argparse
import os
import time
import warnings
from contextlib import contextmanager
from dataclasses import replace

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import diamonds_stream
import flights_stream
import numpy as np

import cavity
from cavity.models.streaming_gp import inducing_choice, update

SETTLED = 1000  # rows, every second of which settings are learnt from
STREAMS = {  # data, rows, rows in a batch, inducing points, tolerance
    "flights by 500": ("flights", 327_346, 500, 100, 1e-3),
    "flights by 20": ("flights", 100_000, 20, 100, 1e-3),
    "flights by 1": ("flights", 20_000, 1, 100, 1e-3),
    "diamonds by 100": ("diamonds", 53_940, 100, 40, 1e-4),
}


def table(name):
    """Return rows, observations and the model whose settings some of the first rows gave."""
    X, y = {"flights": flights_stream, "diamonds": diamonds_stream}[name].table()
    if name == "diamonds":  # they are sorted in part
        order = np.random.default_rng(0).permutation(len(y))
        X, y = X[order], y[order]
    X = (X - X[:SETTLED].mean(axis=0)) / X[:SETTLED].std(axis=0)
    return X, y, diamonds_stream.learnt(X[:SETTLED:2], y[:SETTLED:2])


def never(*arguments):
    """Stand in for `_exchange`: nothing is exchanged."""


def forgotten(waiting, X, weight, loss):
    """Stand in for `WaitingRows.add_rows`: what rows lose is counted, and they are not remembered."""
    return replace(waiting, debt=waiting.debt + float(np.sum(loss)))


def foresight(choose):
    """`choose` with new rows that count one and a half times, as others like them are to come."""

    def chosen(basis, information, X, weight, budget, tolerance, *rest, waiting, residual=None):
        result = choose(
            basis, information, X, 1.5 * weight, budget, 1.5 * tolerance, *rest, waiting=waiting, residual=residual
        )
        left = result.waiting
        if left is waiting or not len(left.X):
            return result
        share = np.where(np.arange(len(left.X)) < len(left.X) - len(X), 1.0, 1.0 / 1.5)
        return replace(result, waiting=replace(left, weight=left.weight * share))

    return chosen


def keep_patience(waiting):
    """Stand in for `WaitingRows.record_failure`: any row that loses more than is tolerated leads to a try."""
    return waiting


PARTS = {  # name: (module or class, attribute, value)
    "as it is": (),
    "no exchanges": (inducing_choice, "_exchange", never),
    "rows do not wait": (inducing_choice.WaitingRows, "add_rows", forgotten),
    "one row tried a step": (inducing_choice, "ROWS_TRIED_PER_STEP", 1),
    "one point too many": (inducing_choice, "SPARE_BUDGET_SHARE", 0.0),
    "M points too many": (inducing_choice, "SPARE_BUDGET_SHARE", 1.0),
    "nuggets are losses": (inducing_choice, "MIN_RESIDUAL_NUGGETS", 0.0),
    "no patience after failures": (inducing_choice.WaitingRows, "record_failure", keep_patience),
    "new rows count 1.5 times (gone)": (update, "choose", foresight(inducing_choice.choose)),
}


@contextmanager
def changed(name):
    """Within it a part is as its name says."""
    if not PARTS[name]:
        yield
        return
    owner, attribute, value = PARTS[name]
    old = getattr(owner, attribute)
    setattr(owner, attribute, value)
    try:
        yield
    finally:
        setattr(owner, attribute, old)


def streamed(X, y, truth, batch, n_inducing, tolerance):
    """Return nats lost, the log bound, exchanges and seconds of a stream."""
    model = cavity.StreamingGP(
        truth.covariance, truth.likelihood, truth.mean, n_inducing=n_inducing, tolerance=tolerance
    )
    start, exchanges = time.process_time(), 0
    state = model.fit(X[:SETTLED], y[:SETTLED], learn=False)
    for low in range(SETTLED, len(y), batch):
        state.update(X[low : low + batch], y[low : low + batch])
        exchanges += state.last_information_lost != 0.0
    return 0.5 * state._now.information.gap, state.log_bound, exchanges, time.process_time() - start


def drawn(result, path):
    """Draw the nats lost of every part and stream, as shares of what is lost as it is."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(1, len(result), figsize=(11, 4), sharey=True, layout="constrained")
    for axis, (stream, by_part) in zip(axes, result.items(), strict=True):
        lost = np.array([by_part[part][0] for part in PARTS])
        colours = ["black", *["#3b6ea5"] * (len(PARTS) - 2), "#b0b0b0"]
        axis.barh(range(len(PARTS)), lost, color=colours)
        for place, value in enumerate(lost):
            axis.text(0.02, place, f"{value:,.0f}", transform=axis.get_yaxis_transform(), color="white", va="center")
        axis.set_xlim(0.0, 2.0 * lost[0])  # what is beyond that has its number
        axis.axvline(lost[0], color="black", linewidth=0.8)
        axis.axvline(lost[0] / 0.9, color="#c03030", linewidth=0.8, linestyle="--")
        axis.set_title(stream, fontsize=10)
        axis.set_xlabel("nats lost")
    axes[0].set_yticks(range(len(PARTS)), list(PARTS))
    axes[0].invert_yaxis()
    figure.suptitle("Dashed: a part that gains a tenth of the nats lost without it", fontsize=10)
    figure.savefig(path, dpi=110)


def main():
    """Print the table, and draw the picture if it is wanted."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--picture")
    options = parser.parse_args()
    warnings.simplefilter("ignore", cavity.SettingsWarning)  # rows of other days
    tables, result = {name: table(name) for name in ("flights", "diamonds")}, {}
    print(f"Measured with cavity {cavity.__version__}.\n")
    print("| stream | exchange | nats lost | log bound | exchanges | seconds |\n|---|---|---|---|---|---|")
    for stream, (data, n, *settings) in STREAMS.items():
        X, y, truth = tables[data]
        result[stream] = {}
        for part in PARTS:
            with changed(part):
                lost, bound, exchanges, seconds = result[stream][part] = streamed(X[:n], y[:n], truth, *settings)
            print(f"| {stream} | {part} | {lost:.1f} | {bound:.1f} | {exchanges} | {seconds:.1f} |", flush=True)
    if options.picture:
        drawn(result, options.picture)


if __name__ == "__main__":
    main()
