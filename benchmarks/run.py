"""Run the benchmark suites and print one table of ratios: `python benchmarks/run.py`.

Every number comes from this one run. The suites are run three times over and each case keeps its shortest
time, so that a busy moment of the machine hits one pass of a case and not all of them.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

import cavity
from cavity import _core

HERE = Path(__file__).resolve().parent
SUITES = (
    "cases/bench_gaussian.py",
    "cases/bench_clutter.py",
    "cases/bench_sites.py",
    "cases/bench_glm.py",
    "cases/bench_diagonal.py",
    "cases/bench_unit_mixture.py",
    "cases/bench_gaussian_mixture.py",
    "cases/bench_factorized.py",
    "cases/bench_covariance.py",
    "cases/bench_gaussian_process.py",
    "cases/bench_streaming_gp.py",
    "cases/bench_sparse_cholesky.py",
)
OTHERS = {
    "blocked": "in blocks",
    "floats": "Python floats",
    "parts": "the sum of its parts",
    "sgd": "SGDClassifier.partial_fit",
    "sklearn": "scikit-learn",
    "in_place": "in place, N by K",
    "exponentials": "np.exp alone",
    "matvec": "matrix-vector product",
    "gpy": "GPy",
    "gpy, loose": "GPy, epsilon=1e-8",
    "refit": "a new fit",
    "dgemm": "its operations at dgemm's rate",
    "floor": "its operations at dgemm's rate and its exponentials",
    "refactored": "a new factor a row",
    "covariance": "covariance in place of the factor",
    "gpflow": "GPflow",
    "dense": "EP without inducing points",
    "splu": "SciPy's sparse LU, no inverse",
    "lapack": "LAPACK, the dense block alone",
}

# Bytes per element of the memory probes. NumPy stores through the caches, where a line is read before it is
# changed: a copy moves 3 doubles (source, target read, target written), a triad (a + b -> c) moves 4. Where
# the C library copies past the caches, only 2 move, and the shares of the bandwidth are understated.
PROBE_BYTES = {"memory copy": 24, "memory triad": 32}
MULTIPLY_BYTES = 72  # six doubles read and three written past the caches


def run_suites(quick):
    """Run the suites once; return their benchmarks as dicts from pytest-benchmark's JSON."""
    rounds, seconds = (1, 0.02) if quick else (4, 0.35)
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "benchmarks.json"
        command = [sys.executable, "-m", "pytest", *(str(HERE / suite) for suite in SUITES)]
        command += [f"--benchmark-json={target}", f"--benchmark-min-rounds={rounds}"]
        command += [f"--benchmark-max-time={seconds}", *(["--small"] if quick else [])]
        done = subprocess.run(command, cwd=HERE.parent, capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"{done.stdout}\n{done.stderr}\nthe suites failed")
        return json.loads(target.read_text())["benchmarks"]


def shortest_times(passes):
    """Return {case: {implementation: seconds per unit}} and {case: unit}: minima over all passes."""
    times, units = {}, {}
    for benchmark in (item for one in passes for item in one):
        info = benchmark["extra_info"]
        seconds = benchmark["stats"]["min"] / info["elements"]
        case = times.setdefault(info["case"], {})
        case[info["implementation"]] = min(seconds, case.get(info["implementation"], seconds))
        units[info["case"]] = info["unit"]
    return times, units


def disagreement(passes):
    """Return by how much the two best passes of a timing differ: (median, largest, where the largest is)."""
    results = []
    for same in zip(*passes, strict=True):
        first, second = sorted(benchmark["stats"]["min"] for benchmark in same)[:2]
        info = same[0]["extra_info"]
        results.append((second / first - 1.0, f"{info['case']} ({info['implementation']})"))
    results.sort()
    return results[len(results) // 2][0], *results[-1]


def rows_of(times, units):
    """Return one row per timing of cavity, as dicts of numbers; "dgemm of NAME" stands beside NAME only."""
    rows = []
    for case, by_name in times.items():
        for name in (name for name in by_name if name.startswith("cavity")):
            seconds, label = by_name[name], case + name.removeprefix("cavity")
            others = {other.removesuffix(f" of {name}"): other for other in by_name if not other.startswith("cavity")}
            ratios = {other: by_name[full] / seconds for other, full in others.items() if " of " not in other}
            rows.append({"case": label, "unit": units[case], "nanoseconds": 1e9 * seconds, "ratios": ratios})
    return rows


def memory_of(times):
    """Return the bandwidths in GB/s of the probes and of multiply at N=1e7, a dict per number of threads."""
    rows = []
    for n_threads, name in ((1, "cavity"), (2, "cavity, 2 threads")):
        probes = {case: times[case][f"{n_threads} thread(s)"] for case in PROBE_BYTES}
        row = {case: PROBE_BYTES[case] / seconds / 1e9 for case, seconds in probes.items()}
        row["multiply"] = MULTIPLY_BYTES / times["multiply N=1e7"][name] / 1e9
        rows.append({"threads": n_threads, **row})
    return rows


def speed(row):
    """Return the time per element, or the rate of updates, as text."""
    if row["unit"] == "update":
        return f"{1e3 / row['nanoseconds']:.1f} M updates/s"
    if row["unit"] == "problem":
        return f"{row['nanoseconds'] / 1e3:.2f} us a problem"
    if row["unit"] == "fit":
        return f"{row['nanoseconds'] / 1e6:.3g} ms"
    if row["nanoseconds"] >= 1e3:
        return f"{row['nanoseconds'] / 1e3:.3g} us"
    return f"{row['nanoseconds']:.3g} ns"


def ratio(row, name):
    """Return the factor by which another implementation is slower, as text."""
    return f"{row['ratios'][name]:.3g}" if name in row["ratios"] else "-"


def other_ratios(row):
    """Return the factors of the implementations that not every case has, as text."""
    results = [f"{ratio(row, name)} ({label})" for name, label in OTHERS.items() if name in row["ratios"]]
    return ", ".join(results) or "-"


def markdown(rows):
    """Return the table as text."""
    heads = "case", "cavity", "times expert NumPy", "times naive NumPy", "times other"
    lines = ["| " + " | ".join(heads) + " |", "|---" * len(heads) + "|"]
    for row in rows:
        cells = row["case"], speed(row), ratio(row, "expert"), ratio(row, "naive"), other_ratios(row)
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def memory_text(rows):
    """Return the lines on memory bandwidth."""
    lines = []
    for row in rows:
        probes = ", ".join(f"{name} {row[name]:.1f}" for name in PROBE_BYTES)
        share = row["multiply"] / max(row[name] for name in PROBE_BYTES)
        lines.append(
            f"multiply N=1e7, {row['threads']} thread(s): {row['multiply']:.1f} GB/s, "
            f"{share:.0%} of the best probe ({probes})"
        )
    return "\n".join(lines)


def main():
    """Run, print, and write JSON if asked to."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a smoke test: one short pass, rough ratios")
    parser.add_argument("--passes", type=int, default=3, help="over all suites, of which the shortest times count")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the numbers to FILE")
    options = parser.parse_args()
    start = time.perf_counter()
    passes = [run_suites(options.quick) for _ in range(1 if options.quick else options.passes)]
    times, units = shortest_times(passes)
    memory = memory_of(times)
    rows = rows_of({case: by_name for case, by_name in times.items() if case not in PROBE_BYTES}, units)
    seconds = time.perf_counter() - start
    print(f"Measured with cavity {cavity.__version__}.\n")
    print(markdown(rows))
    print(f"\n{memory_text(memory)}")
    machine = platform.processor() or platform.machine()
    variant = _core.variants("clutter")[-1]
    print(f"\n{len(passes)} pass(es) in {seconds:.0f} s on {machine}, {os.cpu_count()} CPUs")
    print(f"Python {platform.python_version()}, NumPy {np.__version__}, kernels of variant {variant}")
    if not options.quick:
        median, largest, case = disagreement(passes)
        print(f"the two best passes differ by {median:.1%} in the median, by {largest:.0%} at most: {case}")
    if options.json:
        content = {"seconds": seconds, "rows": rows, "memory_gigabytes_per_second": memory}
        options.json.write_text(json.dumps(content, indent=1))


if __name__ == "__main__":
    main()
