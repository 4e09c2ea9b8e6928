"""Measure what sparse and streaming Gaussian processes lose; write what accuracy_streaming_gp.rst shows.

    python docs/scripts/accuracy_streaming_gp.py > docs/accuracy_streaming_gp_table.inc

also draws accuracy_streaming_gp.png beside itself. The first table is about rounding and jitter in long streams; what
it compares the library with is written out here: the state of whitened inducing variables with their jitter tracked
and not, and the formulas of [1] with their inverses. The others are about the approximation, beside exact processes
with the same settings. Needs matplotlib.

[1] T. D. Bui, C. V. Nguyen and R. E. Turner, Streaming sparse Gaussian process approximations, NIPS 2017.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from scipy.linalg import cholesky, solve_triangular
from threadpoolctl import threadpool_limits

import cavity
from cavity import covariances, data, likelihoods

HERE = Path(__file__).parents[1]
SEED, DPI = 1, 70
PROBLEMS = ((1.0, 0.1, 1e-8), (1.0, 0.1, 1e-6), (1.0, 0.1, 1e-4), (2.0, 1e-6, 1e-8))  # lengthscale, noise, jitter
BATCHES, BATCH, INDUCING = 300, 20, 20  # of the long streams, whose variance is 1
SHOWN = (10, 100, 300)  # batches
SIZES = (5, 10, 20, 40, 80, 160)  # inducing points
HELD_OUT, STREAM_BATCH = 10, 20  # every tenth row is held out; rows of a batch
METHODS = {"VFE": 0.0, "power 0.5": 0.5, "FITC": 1.0}
TABLED, GAPS = (10, 40, 160), {}  # what the table shows; what is drawn
COLORS = {
    "VFE": "#1b6ca8",
    "power 0.5": "#6b6b6b",
    "FITC": "#c8553d",
    "VFE, batches": "#8fc1e3",
    "VFE, in time": "#3d9970",
}
SMALLEST = 1e-9  # nats that are drawn


# ---------------------------------------------------------------------------------------------- long streams


@dataclass(frozen=True)
class Settings:
    """Inducing points and settings of a long stream."""

    z: np.ndarray
    lengthscale: float
    noise: float
    jitter: float

    def rbf(self, x):
        """Covariances of the inducing points with rows."""
        return np.exp(-0.5 * ((self.z[:, None] - x) / self.lengthscale) ** 2)

    @property
    def nugget(self):
        """What jitter adds to the covariance of the inducing variables."""
        return self.jitter * np.eye(len(self.z))


def lower(factor, matrix):
    """factor^-1 matrix."""
    return solve_triangular(factor, matrix, lower=True)


class Whitened:
    """The state A, r of u = L w, which is carried over to the same inducing points before each batch.

    `tracked`: the jitter belongs to the inducing variables, so that old and new ones share it.
    """

    def __init__(self, settings, tracked):
        self.settings, M = settings, len(settings.z)
        K = settings.rbf(settings.z)
        self.L = cholesky(K + settings.nugget, lower=True)
        across = K + settings.nugget if tracked else K
        self.V = lower(self.L, lower(self.L, across.T).T)
        self.P = lower(self.L, lower(self.L, K + settings.nugget).T) - self.V.T @ self.V
        self.A, self.r, self.constant = np.zeros((M, M)), np.zeros(M), 0.0

    def update(self, x, y):
        """Move, then take in a batch."""
        self.constant -= 0.5 * np.sum(self.A * self.P)
        self.A, self.r = self.V @ self.A @ self.V.T, self.V @ self.r
        self.add(x, y)

    def add(self, x, y):
        """Take in a batch."""
        W, noise = lower(self.L, self.settings.rbf(x)), self.settings.noise
        self.A, self.r = self.A + W @ W.T / noise, self.r + W @ y / noise
        residual = len(y) - np.sum(W**2)
        self.constant -= 0.5 * (len(y) * np.log(2 * np.pi * noise) + (y @ y + residual) / noise)
        self.factor = cholesky(np.eye(len(self.A)) + self.A, lower=True)

    def moments(self, x):
        """Mean and variance of f."""
        W = lower(self.L, self.settings.rbf(x))
        T = lower(self.factor, W)
        return T.T @ lower(self.factor, self.r), 1.0 - np.sum(W**2, axis=0) + np.sum(T**2, axis=0)

    @property
    def log_bound(self):
        """Sum of the increments."""
        c = lower(self.factor, self.r)
        return self.constant + 0.5 * c @ c - np.sum(np.log(np.diag(self.factor)))


class Inverses:
    """Mean m and covariance S of u by the formulas of [1], D^-1 = S^-1 - K^-1, jitter tracked."""

    log_bound = np.nan

    def __init__(self, settings):
        self.settings, self.K = settings, settings.rbf(settings.z) + settings.nugget
        self.m, self.S = np.zeros(len(settings.z)), self.K

    def update(self, x, y):
        """Take in a batch."""
        inverse, precision = np.linalg.inv(self.K), np.linalg.inv(self.S)
        across = inverse @ self.settings.rbf(x)
        truth = inverse @ self.K @ (precision - inverse) @ self.K @ inverse
        pull = inverse @ self.K @ precision @ self.m + across @ y / self.settings.noise
        self.S = np.linalg.inv(inverse + truth + across @ across.T / self.settings.noise)
        self.m = self.S @ pull

    def moments(self, x):
        """Mean and variance of f."""
        across = np.linalg.solve(self.K, self.settings.rbf(x))
        return across.T @ self.m, 1.0 - np.sum(across * ((self.K - self.S) @ across), axis=0)


class Ours:
    """The library's state."""

    def __init__(self, settings):
        covariance, noise = covariances.RBF(lengthscale=settings.lengthscale), likelihoods.Gaussian(settings.noise)
        model = cavity.StreamingGP(covariance, noise, inducing=settings.z[:, None], jitter=settings.jitter)
        self.state = model.fit(np.empty((0, 1)), np.empty(0), learn=False)

    def update(self, x, y):
        """Take in a batch."""
        self.state.update(x[:, None], y)

    def moments(self, x):
        """Mean and variance of f."""
        return self.state.predict(x[:, None])

    @property
    def log_bound(self):
        """Sum of the increments."""
        return self.state.log_bound


def long_streams():
    """Yield the rows of the first table."""
    new = np.linspace(0.0, 10.0, 201)
    for problem in PROBLEMS:
        settings = Settings(np.linspace(0.0, 10.0, INDUCING), *problem)
        rng = np.random.default_rng(SEED)
        x = rng.uniform(0.0, 10.0, size=BATCHES * BATCH)
        y = np.sin(2.0 * x / settings.lengthscale) + rng.normal(0.0, np.sqrt(settings.noise), size=len(x))
        streams = {
            "the library": Ours(settings),
            "whitened, tracked": Whitened(settings, True),
            "whitened, not tracked": Whitened(settings, False),
            "inverses, tracked": Inverses(settings),
        }
        full, result = Whitened(settings, True), {name: [] for name in streams}
        for k in range(BATCHES):
            part = slice(k * BATCH, (k + 1) * BATCH)
            full.add(x[part], y[part])
            for name, stream in streams.items():
                stream.update(x[part], y[part])
                if k + 1 in SHOWN:
                    result[name].append(difference(stream, full, new))
        for name, cells in result.items():
            yield ["{:g}, {:g}, {:g}".format(*problem) if name == "the library" else "", name, *cells]


def difference(stream, full, x):
    """Say how far a stream is from one batch: mean in standard deviations, log bound in nats."""
    expected, variance = full.moments(x)
    mean = np.max(np.abs(stream.moments(x)[0] - expected) / np.sqrt(variance))
    bound = abs(stream.log_bound - full.log_bound)
    return f"{mean:.0e}" + ("" if np.isnan(bound) else f", {bound:.0e}")


# ---------------------------------------------------------------------------------------------- approximations


@dataclass(frozen=True)
class Case:
    """Data, those held out, and an exact process whose settings were learnt."""

    name: str
    X: np.ndarray
    y: np.ndarray
    X_new: np.ndarray
    y_new: np.ndarray
    exact: object

    @classmethod
    def of(cls, name, covariance, noise):
        """Of a shipped table of two columns."""
        x, y = data.table(name)[0].values()
        stored = np.arange(len(x)) % HELD_OUT != HELD_OUT // 2
        x, y = x - x[stored].mean(), y - y[stored].mean()
        exact = cavity.GaussianProcess(covariance, likelihoods.Gaussian(noise)).fit(x[stored, None], y[stored])
        return cls(name, x[stored, None], y[stored], x[~stored, None], y[~stored], exact)

    def model(self, alpha, **inducing):
        """A sparse process with the same settings."""
        truth = self.exact.model
        return cavity.StreamingGP(truth.covariance, truth.likelihood, alpha=alpha, **inducing)

    def sparse(self, size, alpha):
        """One fit with at most so many inducing points, chosen among all rows."""
        return self.model(alpha, n_inducing=size, tolerance=0.0).fit(self.X, self.y, learn=False)

    def stream(self, model, order):
        """The state after all rows in that order, in batches."""
        state = model.fit(self.X[:0], self.y[:0], learn=False)
        for start in range(0, len(order), STREAM_BATCH):
            part = order[start : start + STREAM_BATCH]
            state.update(self.X[part], self.y[part])
        return state

    def streams(self, size):
        """Yield streams: shuffled, with the inducing points of one fit; in time, with those it chooses on its way."""
        shuffled = np.random.default_rng(SEED).permutation(len(self.y))
        yield "VFE, batches", self.stream(self.model(0.0, inducing=self.sparse(size, 0.0).inducing), shuffled)
        yield "VFE, in time", self.stream(self.model(0.0, n_inducing=size), np.argsort(self.X[:, 0]))

    def cells(self, method, size, result, evidence):
        """A row of the second table."""
        mean, variance = result.predict(self.X_new, noise=True)
        error = self.y_new - mean
        density = 0.5 * np.mean(np.log(2 * np.pi * variance) + error**2 / variance)
        truth, spread = self.exact.predict(self.X_new, noise=True)
        yield from (method, size, f"{evidence:.3f}", f"{np.sqrt(np.mean(error**2)):.4f}", f"{density:.4f}")
        yield f"{np.max(np.abs(mean - truth) / np.sqrt(spread)):.1e}"
        yield f"{np.max(np.abs(np.sqrt(variance / spread) - 1.0)):.1e}"


def cases():
    """The two data sets with their settings, learnt from these starts."""
    yield Case.of("motorcycle", covariances.RBF(variance=1000.0, lengthscale=5.0), 500.0)
    trend = covariances.RBF(variance=2000.0, lengthscale=40.0)
    season = covariances.Periodic(variance=5.0, fixed=("period",))
    season *= covariances.RBF(lengthscale=50.0, fixed=("variance",))
    yield Case.of("co2", trend + season + covariances.Matern32(variance=0.5, lengthscale=1.0), 0.05)


def approximations(case):
    """Yield the rows of the second table about a case, and fill in the gaps of the log evidence."""
    evidence, gaps = case.exact.log_evidence, {}
    yield [f"{case.name}, {len(case.y)} rows", *case.cells("exact", "-", case.exact, evidence)]
    for size in (size for size in SIZES if size < len(case.y)):
        result = {name: case.sparse(size, alpha) for name, alpha in METHODS.items()}
        for name, state in (result | dict(case.streams(size))).items():
            gaps.setdefault(name, {})[state.n_inducing] = evidence - state.log_bound
            if size in TABLED:
                yield ["", *case.cells(name, state.n_inducing, state, state.log_bound)]
    GAPS[case.name] = gaps


def draw_gaps():
    """Draw how far the bounds are from the log evidence."""
    figure = Figure(figsize=(11.0, 4.2), layout="constrained")
    for axes, (name, gaps) in zip(figure.subplots(1, len(GAPS), squeeze=False)[0], GAPS.items(), strict=True):
        for method, points in gaps.items():
            look = "-o" if method in METHODS else "--o"
            values = np.maximum(np.abs(list(points.values())), SMALLEST)
            axes.plot(list(points), values, look, color=COLORS[method], ms=4, lw=1.2, label=method)
        axes.set(xscale="log", yscale="log", xlabel="inducing points", title=name)
        axes.set_ylabel("|log evidence - bound|, nats")
        axes.legend(fontsize=8)
    return figure


def main():
    """Print the tables, draw the picture."""
    print(".. Written by docs/scripts/accuracy_streaming_gp.py.\n")
    print(f"Measured with cavity {cavity.__version__}.\n")
    header = ("lengthscale, noise, jitter", "state", *(f"after {shown} batches" for shown in SHOWN))
    print_table("Distance from one batch: mean in sd, log bound in nats", header, long_streams())
    print(".. The second table.\n")
    header = "data", "method", "M", "log evidence or bound", "RMSE", "NLPD", "mean off by, sd", "sd off by, relative"
    print_table("Held-out rows", header, (row for case in cases() for row in approximations(case)))
    draw_gaps().savefig(HERE / "accuracy_streaming_gp.png", dpi=DPI)


def print_table(title, header, rows):
    """Print a reStructuredText table."""
    print(f".. list-table:: {title}\n   :header-rows: 1\n")
    for cells in (header, *rows):
        print("\n".join(f"   {' ' if i else '*'} - {cell}".rstrip() for i, cell in enumerate(cells)))
    print()


if __name__ == "__main__":
    with threadpool_limits(1):
        main()
