"""UnitMixture over a .npy file: memory and speed beside the same points in memory: `python benchmarks/large_file.py`.

Writes the file to a temporary folder (0.8 GB for the default 1e8 points), then starts a process for each way of
reading it, which prints seconds a pass, the largest resident memory, and the ELBO, whose bits must agree.
"""

import argparse
import resource
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np

import cavity

COMPONENTS, PASSES = 10, 3
WARM_UP = 2
BLOCK = 1 << 20  # points written at a time


def write(path, points):
    """Write draws of a mixture block by block."""
    rng = np.random.default_rng(0)
    centres = np.linspace(-9.0, 9.0, COMPONENTS)
    header = {"descr": "<f8", "fortran_order": False, "shape": (points,)}
    with open(path, "wb") as file:  # a memory map would count as memory of this process, and of its children
        np.lib.format.write_array_header_1_0(file, header)
        for start in range(0, points, BLOCK):
            size = min(BLOCK, points - start)
            rng.normal(rng.choice(centres, size=size), 1.0).tofile(file)


def run(path, where, threads):
    """Fit a few passes and print what they took: the time of the last ones, after the first have warmed the cache."""
    y = np.load(path) if where == "memory" else path
    stamps = []

    def callback(n_iter, elbo):
        stamps.append(time.perf_counter())
        return n_iter >= WARM_UP + PASSES

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", cavity.ConvergenceWarning)
        means = np.linspace(-8.0, 8.5, COMPONENTS)
        post = cavity.UnitMixture(COMPONENTS).fit(
            y, initial_means=means, accelerate=False, callback=callback, n_threads=threads
        )
    seconds = min(np.diff(stamps)[WARM_UP - 1 :])
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"{where} {threads} {seconds} {peak} {post.elbo.hex()}")


def main():
    """Write, start the processes, print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--points", type=int, default=10**8)
    parser.add_argument("--run", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.run:
        run(options.run[0], options.run[1], int(options.run[2]))
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "points.npy"
        write(path, options.points)
        rows = []
        for threads in (1, 2):
            for where in ("memory", "file"):
                command = [sys.executable, __file__, "--run", str(path), where, str(threads)]
                rows.append(subprocess.run(command, capture_output=True, text=True, check=True).stdout.split())
    print(f"{options.points} points, {path.suffix} file, K = {COMPONENTS}, best of {PASSES} passes")
    print("| from | threads | ns a point | rate, of the one in memory | peak memory, MB |\n|---|---|---|---|---|")
    for where, threads, seconds, peak, _ in rows:
        memory = next(float(row[2]) for row in rows if row[0] == "memory" and row[1] == threads)
        share = memory / float(seconds)
        print(
            f"| {where} | {threads} | {1e9 * float(seconds) / options.points:.2f} | {share:.2f} | {float(peak):.0f} |"
        )
    print("same bits" if len({row[4] for row in rows}) == 1 else "THE BITS DIFFER")


if __name__ == "__main__":
    main()
