"""Memory that calls do not give back: `python benchmarks/stories/leaks.py [CASE ...] [--fits 5000]`.

A process for each case repeats it on a problem of twelve rows: every model, every likelihood, updates of streams,
predictions, files, checkpoints and commands. Its resident memory is read after WARM calls, which load what is loaded
once, and after --fits more; before each reading the garbage collector runs, and the C library gives free pages back to
the system (`malloc_trim`, where there is glibc). Where that is MOST or more, --fits others are made: a leak grows as
much again, an arena of the allocator is taken once. Prints a table; the exit status is 1 if a case grew by MOST or more
both times. For Linux.
"""

import argparse
import ctypes
import gc
import io
import os
import sys
import tempfile
import time
from contextlib import redirect_stdout, suppress
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # of the benchmarks
import numpy as np
from processes import printed

import cavity
from cavity import covariances, distributions, likelihoods
from cavity.cli import main as main_of_cli

WARM = 500  # calls before the first reading
MOST = 1.0  # MB that the calls between the two readings may leave
SHARED = Path("/dev/shm")  # files in memory, whose fsync takes no time

RNG = np.random.default_rng(0)
X = RNG.normal(size=(12, 2))
F = X[:, 0] + 0.5 * RNG.normal(size=12)
LABELS, COUNTS = (F > 0).astype(float), np.round(np.exp(F))
PASSES = {"max_iter": 5}  # there are many fits
GROUPS = {"g": np.arange(12) % 3}
RBF, NOISE = covariances.RBF(1.0, [1.0, 1.0]), likelihoods.Gaussian(0.1)
FOLDER = tempfile.TemporaryDirectory(dir=SHARED if SHARED.is_dir() else None)
FILE = Path(FOLDER.name)


class Cauchy(likelihoods.Likelihood):
    """A likelihood of a user."""

    def log_p(self, y, f):
        return -np.log(np.pi * (1 + (y - f) ** 2))


class Location(cavity.mean_field.Model):
    """A mean-field model of a user: a Gaussian of unknown mean and precision."""

    n_samples = len(F)

    def initial(self):
        return {"mean": cavity.Gaussian(0.0, 0.01), "precision": distributions.Gamma(1.0, 1.0)}

    def update(self, name, q):
        if name == "mean":
            tau = q["precision"].mean
            return cavity.Gaussian(tau * F.sum(), 0.01 + tau * len(F))
        return distributions.Gamma(1.0 + len(F) / 2, 1.0 + self.squares(q) / 2)

    def squares(self, q):
        return np.sum((F - q["mean"].mean) ** 2) + len(F) * q["mean"].variance

    def expected_log_joint(self, q):
        mean, precision = q["mean"], q["precision"]
        likelihood = 0.5 * len(F) * precision.statistics[0] - 0.5 * precision.mean * self.squares(q)
        return likelihood - 0.005 * (mean.mean**2 + mean.variance) - precision.mean


LIKELIHOODS = {
    "Binomial": (likelihoods.Binomial(), np.column_stack([COUNTS, COUNTS + 2])),
    "Binomial, probit": (likelihoods.Binomial("probit"), np.column_stack([COUNTS, COUNTS + 2])),
    "Clutter": (likelihoods.Clutter(), F),
    "Gaussian": (likelihoods.Gaussian(0.1), F),
    "Interval": (likelihoods.Interval(), np.column_stack([F - 1, F + 1])),
    "Laplace": (likelihoods.Laplace(0.5), F),
    "Logit": (likelihoods.Logit(), LABELS),
    "NegativeBinomial": (likelihoods.NegativeBinomial(2.0), COUNTS),
    "OrderedProbit": (likelihoods.OrderedProbit((-0.5, 0.5)), np.digitize(F, [-0.5, 0.5])),
    "Poisson": (likelihoods.Poisson(), COUNTS),
    "Probit": (likelihoods.Probit(), LABELS),
    "Step": (likelihoods.Step(), LABELS),
    "StudentT": (likelihoods.StudentT(4.0, 0.5), F),
    "of a user": (Cauchy(), F),
}


def glm(likelihood, y, **options):
    return cavity.GLM(likelihood, prior_mean=1.0, intercept=True).fit(X, y, **PASSES | options)


def process(likelihood, y, learn=False):
    return cavity.GaussianProcess(RBF, likelihood).fit(X, y, learn=learn, **PASSES)


def stream(likelihood, y):
    return cavity.StreamingGP(RBF, likelihood, n_inducing=5).fit(X, y, learn=False, **PASSES)


def mixed(likelihood, y, variance=0.5):
    values = None if variance is None else {"g": variance}
    model = cavity.MixedGLM(cavity.RandomEffects("g"), likelihood, 1.0, intercept=True, effect_covariances=values)
    return model.fit(X, y, groups=GROUPS, **PASSES)


def mixture(covariance="full", **options):
    return cavity.GaussianMixture(2, covariance).fit(X, **PASSES, **options)


def told(posterior):
    """A call of all that a posterior of a function says of rows with labels."""

    def call():
        posterior.predict(X), posterior.predict_proba(X), posterior.log_density(X, LABELS)
        posterior.sample_y(X, 3, rng=0), posterior.summary(), repr(posterior)

    return call


def told_of_effects():
    """The same of a mixed model."""
    posterior = mixed("probit", LABELS)

    def call():
        rows = posterior.rows(X, GROUPS)
        posterior.predict(rows), posterior.log_density(rows, LABELS), posterior.effects("g"), posterior.sample(3, rng=0)
        posterior.leave_group_out("g", X, LABELS, groups=GROUPS), posterior.summary(), repr(posterior)

    return call


def told_of_mixture(posterior, rows):
    """The same of a mixture."""

    def call():
        posterior.predict(rows), posterior.responsibilities(rows), posterior.log_density(rows)
        posterior.sample(3, rng=0), posterior.summary(), repr(posterior)

    return call


def saved(posterior):
    """A call that saves and loads."""

    def call():
        posterior.save(FILE / "posterior.npz")
        cavity.load(FILE / "posterior.npz")

    return call


def updated(likelihood, y):
    """Calls that go on with one state: it takes rows in batches and alone, and forgets."""
    state = stream(likelihood, y)

    def call():
        state.update(X, y).update(X[:1], y[:1]).forget(0.5)

    return call


def copied():
    """A call that copies a state, learns and merges."""
    state, other = stream(NOISE, F), stream(NOISE, F)

    def call():
        one = state.copy()
        one.update(X, F).learn()
        state.copy().merge(other)

    return call


def resumed():
    """A call with a fit that stops after its first pass, and goes on from its checkpoint."""

    def call():
        path = FILE / "fit.checkpoint"
        for stop in (True, False):
            stored = dict(checkpoint=path, checkpoint_every=0, callback=lambda event, stop=stop: stop)
            cavity.UnitMixture(2).fit(F, **PASSES, **stored)
        path.unlink()

    return call


def refused():
    """A call with errors of arguments and files, whose tracebacks hold arrays."""
    (FILE / "bad.csv").write_text("a,b\n1,x\n")

    def call():
        for fit in (
            lambda: glm("probit", np.full(12, np.nan)),
            lambda: cavity.load(FILE / "bad.csv"),
            lambda: cavity.GaussianMixture(2).fit(FILE / "bad.csv"),
        ):
            with suppress(ValueError, TypeError):
                fit()

    return call


def read(name):
    """A call with a fit to a file."""
    np.save(FILE / "rows.npy", X)
    lines = [f"{a!r},{b!r},{y:g}" for (a, b), y in zip(X.tolist(), LABELS, strict=True)]
    (FILE / "rows.csv").write_text("\n".join(["a,b,y", *lines, ""]))
    return lambda: cavity.GLM("probit", prior_mean=1.0).fit(
        FILE / name, "y" if name.endswith(".csv") else LABELS, n_threads=2, **PASSES
    )


def commands():
    """A call with commands that fit, predict and describe."""
    read("rows.csv")
    table, posterior = str(FILE / "rows.csv"), str(FILE / "posterior.npz")

    def call():
        with redirect_stdout(io.StringIO()):
            main_of_cli(["fit", "glm", table, "--target", "y", "--max-iter", "5", "--output", posterior])
            main_of_cli(["predict", posterior, table, "--output", str(FILE / "out.csv")])
            main_of_cli(["info", posterior])

    return call


def algebra():
    one, other = cavity.Gaussian([0.0, 1.0], [1.0, 2.0]), cavity.Gaussian([1.0, 1.0], [2.0, 1.0])
    return lambda: (one * other / other, cavity.kl(one, other), repr(one))


def each(name, fit, but=()):
    """Cases of a fit with every likelihood but some."""
    return {f"{name}, {kind}": partial(partial, fit, *LIKELIHOODS[kind]) for kind in LIKELIHOODS if kind not in but}


CASES = {  # functions that return what is called again and again
    **each("GLM", glm),
    "GLM, sequential": lambda: lambda: glm("probit", LABELS, schedule="sequential"),
    "GLM, stochastic": lambda: lambda: glm("probit", LABELS, schedule="stochastic"),
    "GLM, adf": lambda: lambda: glm("probit", LABELS, method="adf"),
    "GLM, diagonal": lambda: (
        lambda: cavity.GLM("probit", prior_mean=1.0, approximation="diagonal").fit(X, LABELS, **PASSES)
    ),
    "GLM, learnt": lambda: lambda: glm(likelihoods.Gaussian(None), F, learn=True),
    "GLM, predictions": lambda: told(glm("probit", LABELS)),
    "GLM, save and load": lambda: saved(glm("probit", LABELS)),
    "GLM, update": lambda: partial(glm("probit", LABELS).update, X, LABELS),
    **each("GaussianProcess", process, but=("of a user",)),  # it is slow
    "GaussianProcess, learnt": lambda: lambda: process(likelihoods.Gaussian(None), F, learn=True),
    "GaussianProcess, predictions": lambda: told(process("probit", LABELS)),
    "GaussianProcess, save and load": lambda: saved(process("probit", LABELS)),
    "GaussianProcess, update": lambda: partial(process("probit", LABELS).update, X, LABELS),
    **each("StreamingGP", stream),
    "StreamingGP, update, Gaussian": lambda: updated(NOISE, F),
    "StreamingGP, update, Probit": lambda: updated("probit", LABELS),
    "StreamingGP, copy, learn and merge": copied,
    "StreamingGP, predictions": lambda: told(stream("probit", LABELS)),
    "StreamingGP, save and load": lambda: saved(stream("probit", LABELS)),
    "MixedGLM, Gaussian, learnt": lambda: lambda: mixed(likelihoods.Gaussian(None), F, None),
    "MixedGLM, Probit": lambda: lambda: mixed("probit", LABELS),
    "MixedGLM, predictions": told_of_effects,
    "MixedGLM, save and load": lambda: saved(mixed("probit", LABELS)),
    **{f"GaussianMixture, {kind}": partial(partial, mixture, kind) for kind in ("full", "tied", "diag", "spherical")},
    "GaussianMixture, moves": lambda: lambda: mixture("diag", moves=True, n_init=2, rng=0),
    "GaussianMixture, two threads": lambda: lambda: mixture("diag", n_threads=2),
    "GaussianMixture, minibatches": lambda: partial(
        cavity.GaussianMixture(2).fit_stochastic, X, batch_size=5, initial_means=X[:2]
    ),
    "GaussianMixture, update": lambda: partial(mixture().update, X),
    "GaussianMixture, predictions": lambda: told_of_mixture(mixture(), X),
    "GaussianMixture, save and load": lambda: saved(mixture()),
    "select_components": lambda: lambda: cavity.select_components(cavity.GaussianMixture(1), X, (1, 2), **PASSES),
    "UnitMixture": lambda: lambda: cavity.UnitMixture(2).fit(F, **PASSES),
    "UnitMixture, predictions": lambda: told_of_mixture(cavity.UnitMixture(2).fit(F), F),
    "UnitMixture, save and load": lambda: saved(cavity.UnitMixture(2).fit(F)),
    "Clutter": lambda: lambda: cavity.Clutter().fit(F),
    "Clutter, parallel": lambda: lambda: cavity.Clutter().fit(X, schedule="parallel"),
    "Clutter, save and load": lambda: saved(cavity.Clutter().fit(F)),
    "LinearRegression": lambda: lambda: cavity.LinearRegression(intercept=False, ard=True).fit(X, F, **PASSES),
    "LogisticRegression": lambda: lambda: cavity.LogisticRegression(intercept=False).fit(X, LABELS),
    "LogisticRegression, predictions": lambda: told(cavity.LogisticRegression(intercept=False).fit(X, LABELS)),
    "FactorizedGaussian": lambda: cavity.FactorizedGaussian(np.zeros(2), np.array([[2.0, 0.5], [0.5, 1.0]])).fit,
    "mean_field, of a user": lambda: partial(cavity.mean_field.fit, Location()),
    "Gaussian, algebra": algebra,
    "files, .npy": partial(read, "rows.npy"),
    "files, .csv": partial(read, "rows.csv"),
    "checkpoint": resumed,
    "errors": refused,
    "command line": commands,
}


def held():
    """Resident memory in MB, after all has been given back that can be."""
    gc.collect()
    with suppress(OSError, AttributeError):  # another C library
        ctypes.CDLL(None).malloc_trim(0)
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


def run(name, fits):
    """Be the process of a case: print MB after WARM calls, what more calls have added, and milliseconds of one."""
    call = CASES[name]()
    for _ in range(WARM):
        call()
    for _ in range(2):
        before, start = held(), time.perf_counter()
        for _ in range(fits):
            call()
        seconds, growth = time.perf_counter() - start, held() - before
        if growth < MOST:
            break
    print(before, growth, 1e3 * seconds / fits)


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("cases", nargs="*", help="what their names begin with; all by default")
    parser.add_argument("--fits", type=int, default=5000)
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        run(options.child, options.fits)
        return 0
    chosen = [name for name in CASES if not options.cases or name.startswith(tuple(options.cases))]
    if not chosen:
        parser.error(f"there is no such case; there is {'; '.join(CASES)}")
    grown = []
    print(f"{'case':<36} {'MB':>7} {'growth':>8} {'ms a call':>10}")
    for name in chosen:
        before, growth, milliseconds = map(
            float, printed("-W", "ignore", __file__, "--child", name, "--fits", options.fits).split()
        )
        print(f"{name:<36} {before:7.1f} {growth:+8.2f} {milliseconds:10.2f}", flush=True)
        grown += [name] * (growth >= MOST)
    print(f"grown by {MOST:g} MB or more in {options.fits} calls: {'; '.join(grown) or 'none'}")
    return 1 if grown else 0


if __name__ == "__main__":
    sys.exit(main())
