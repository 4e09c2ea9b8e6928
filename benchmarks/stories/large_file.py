"""Mixtures over a .npy file: memory and speed beside the same rows in memory.

`python benchmarks/stories/large_file.py`

Writes a file of 1e8 numbers to a temporary folder (0.8 GB), as points on a line for UnitMixture and as rows of 8
columns for GaussianMixture. A process for each way of reading it prints seconds a pass, the largest resident memory
before and after, and the ELBO, whose bits must agree.
"""

import argparse
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # of the benchmarks
from processes import resident

import cavity

PASSES = 3
WARM_UP = 2
BLOCK = 1 << 17  # rows written at a time
LINE = np.linspace(-9.0, 9.0, 10)[:, None]
SPACE = 3.0 * np.random.default_rng(1).normal(size=(8, 8))
MODELS = {  # centres of the components, and what to fit
    "UnitMixture": (LINE, cavity.UnitMixture(len(LINE)), LINE[:, 0] + 0.5),
    "GaussianMixture": (SPACE, cavity.GaussianMixture(len(SPACE)), SPACE + 0.5),
}


def write(path, centres, rows):
    """Write draws of a mixture block by block."""
    rng, dim = np.random.default_rng(0), centres.shape[1]
    header = {"descr": "<f8", "fortran_order": False, "shape": (rows, dim) if dim > 1 else (rows,)}
    with open(path, "wb") as file:  # a memory map would count as memory of this process, and of its children
        np.lib.format.write_array_header_1_0(file, header)
        for start in range(0, rows, BLOCK):
            chosen = centres[rng.integers(0, len(centres), min(BLOCK, rows - start))]
            rng.normal(chosen, 1.0).tofile(file)


def run(path, name, where, threads):
    """Fit a few passes and print what they took: the time of the last ones, after the first have warmed the cache."""
    _, model, means = MODELS[name]
    data = np.load(path) if where == "memory" else path
    stamps = []

    def callback(event):
        stamps.append(time.perf_counter())
        return event.n_iter >= WARM_UP + PASSES

    options = dict(initial_means=means, accelerate=False, callback=callback)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", cavity.ConvergenceWarning)
        few = np.random.default_rng(0).normal(size=(100, *means.shape[1:]))
        model.fit(few, initial_means=means, max_iter=1)  # what is imported is no memory of the fit
        before = resident()
        post = model.fit(data, **options, n_threads=threads)
    seconds = min(np.diff(stamps)[WARM_UP - 1 :])
    print(f"{where} {threads} {seconds} {resident()} {resident() - before} {post.elbo.hex()}")


def table(name, numbers):
    """Write the file of a model, start the processes, print the table."""
    centres = MODELS[name][0]
    rows = numbers // centres.shape[1]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.npy"
        write(path, centres, rows)
        found = []
        for threads in (1, 2):
            for where in ("memory", "file"):
                command = [sys.executable, __file__, "--run", str(path), name, where, str(threads)]
                found.append(subprocess.run(command, capture_output=True, text=True, check=True).stdout.split())
    print(f"\n{name}: {rows} rows of {centres.shape[1]}, K = {len(centres)}, best of {PASSES} passes\n")
    print("| from | threads | ns a row | rate, of the one in memory | peak memory, MB | of it by the fit |")
    print("|---|---|---|---|---|---|")
    for where, threads, seconds, peak, added, _ in found:
        memory = next(float(row[2]) for row in found if row[0] == "memory" and row[1] == threads)
        cells = f"{1e9 * float(seconds) / rows:.2f}", f"{memory / float(seconds):.2f}", f"{float(peak):.0f}"
        print(f"| {where} | {threads} | {' | '.join(cells)} | {float(added):.0f} |")
    print("same bits" if len({row[-1] for row in found}) == 1 else "THE BITS DIFFER")


def main():
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--numbers", type=int, default=10**8)
    parser.add_argument("--run", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.run:
        path, name, where, threads = options.run
        run(path, name, where, int(threads))
        return
    for name in MODELS:
        table(name, options.numbers)


if __name__ == "__main__":
    main()
