"""Counts of many regions in many years: `python benchmarks/stories/areas.py [REGIONS [YEARS]]`.

A grid of regions with a bym2 field and a Matern chain in time, Poisson counts, four hyperparameters learnt. Prints
processor seconds of one thread and what was learnt.
"""

import argparse
from time import process_time

import numpy as np

import cavity


def make_grid(side):
    """Return the pairs of neighbours of a grid of side x side regions."""
    index = np.arange(side * side).reshape(side, side)
    ends = (index[:-1], index[1:]), (index[:, :-1], index[:, 1:])
    return np.concatenate([np.stack([one.ravel(), other.ravel()], axis=1) for one, other in ends])


def make_counts(side, years):
    """Return a table of counts: a smooth surface, effects of regions of their own, and a wave in time."""
    rng = np.random.default_rng(0)
    x, z = np.meshgrid(np.arange(side) / side, np.arange(side) / side)
    surface = 0.5 * np.sin(6.0 * x) * np.cos(5.0 * z) + 0.15 * rng.normal(size=(side, side))
    region, year = np.repeat(np.arange(side * side), years), np.tile(np.arange(years), side * side)
    exposure = rng.uniform(1.0, 10.0, len(region))
    y = rng.poisson(exposure * np.exp(surface.ravel()[region] + 0.3 * np.sin(year / 2.0)))
    return {"region": region, "year": year, "exposure": exposure, "y": y.astype(np.float64)}


def main():
    """Fit, and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("regions", type=int, nargs="?", default=3025)
    parser.add_argument("years", type=int, nargs="?", default=20)
    arguments = parser.parse_args()
    side = round(arguments.regions**0.5)
    table, graphs = make_counts(side, arguments.years), {"W": make_grid(side)}
    model = cavity.MixedGLM("y ~ bym2(region, W) + matern32(year)", "poisson", graphs=graphs)
    start = process_time()
    posterior = model.fit(table, exposure="exposure")
    print(f"{len(table['y'])} rows, {process_time() - start:.2f} s", posterior.variance_components(), sep="\n")


if __name__ == "__main__":
    main()
