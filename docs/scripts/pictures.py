"""Draw the pictures of the pages on mixtures, processes and mixed models: `python docs/scripts/pictures.py`."""

from pathlib import Path

import numpy as np

import cavity
from cavity import covariances, likelihoods
from cavity.plot.pictures import picture

HERE = Path(__file__).parents[1]
DPI = 100


def main():
    """Draw all."""
    mixtures()
    processes()
    stream()
    groups()


def mixtures():
    """Fit Old Faithful, from one start so that the way there can be seen, and for several numbers of components."""
    columns, about = cavity.data.table("faithful")
    X = np.column_stack(list(columns.values()))
    names = [f"{name} [{about['unit']}]" for name in columns]
    posterior = cavity.GaussianMixture(2).fit(X, init="principal")
    figure = picture(posterior, X, names=names, title=about["title"], trace=True)
    figure.savefig(HERE / "faithful.png", dpi=DPI)
    selection = cavity.select_components(cavity.GaussianMixture(1), X, moves=True)
    picture(selection).savefig(HERE / "faithful_selection.png", dpi=DPI)


def processes():
    """Fit the motorcycle accident and the banana's first 400 rows, as `cavity fit gp` does."""
    columns, about = cavity.data.table("motorcycle")
    X, y = columns["time"][:, None], columns["acceleration"]
    model = cavity.GaussianProcess(covariances.RBF(2000.0, 5.0), likelihoods.Gaussian(500.0), mean="constant")
    labels = [f"{name} [{unit}]" for name, unit in about["units"].items()]
    figure = picture(model.fit(X, y), names=labels[:1], target=labels[1], title=about["title"])
    figure.savefig(HERE / "motorcycle.png", dpi=DPI)
    columns, about = cavity.data.table("banana")
    X, y = np.column_stack([columns["x"], columns["y"]])[:400], columns["class"][:400] > 0
    posterior = cavity.GaussianProcess(covariances.RBF(4.0, [1.0, 1.0]), likelihoods.Probit()).fit(X, y)
    words = dict(names=["x", "y"], target="class", classes=("-1", "1"))
    figure = picture(posterior, **words, title=about["title"])
    figure.savefig(HERE / "banana.png", dpi=DPI)


def stream():
    """Take in the carbon dioxide year by year, as the page on streams does."""
    columns, about = cavity.data.table("co2")
    X, y = columns["year"][:, None], columns["co2"]
    covariance = covariances.RBF(4.0, 3.0) + covariances.RBF(10.0, 100.0) * covariances.Periodic(1.0, 1.0, 1.0)
    model = cavity.StreamingGP(covariance, likelihoods.Gaussian(0.15), mean=[315.0 - 1.3 * 1959, 1.3])
    state = model.fit(X[:12], y[:12], learn=False)
    for start in range(12, len(y), 12):
        state.update(X[start : start + 12], y[start : start + 12])
    target = f"co2 [{about['units']['co2']}]"
    figure = picture(state, X, y, names=["year"], target=target, title=about["title"])
    figure.savefig(HERE / "co2.png", dpi=DPI)


def groups():
    """Fit who uses contraceptives, with effects of towns by district."""
    women, about = cavity.data.table("contraception", as_frame=True)
    formula = "use ~ age + I(age**2) + I(livch != '0') + urban + (urban | district)"
    posterior = cavity.MixedGLM(formula, "logit").fit(women)
    picture(posterior, title=about["title"]).savefig(HERE / "contraception.png", dpi=DPI)


if __name__ == "__main__":
    main()
