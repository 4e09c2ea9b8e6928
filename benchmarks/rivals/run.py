"""Other libraries beside cavity: `python benchmarks/rivals/run.py [TASK ...]` prints a table for each task.

Needs the rivals extra; what is not installed, fails or passes the caps of time and memory is named with its reason.
GPflow needs an older NumPy and so an environment of its own (pip install gpflow tensorflow-cpu tf-keras), whose
interpreter is given: `--python GPflow PATH`. Each task, library and number of threads has a process of its own, the
threads of which are set before any import. A fit is called until `REPEATS` calls or `ENOUGH` seconds are over: the
first call, in which compilers work, stands by itself, and "again" is the shortest of the others. Loading, data and
judging are not timed. `tasks` says what the columns are.
"""

import argparse
import importlib
import json
import os
import platform
import resource
import subprocess
import sys
import time
import warnings
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

HERE = Path(__file__).resolve().parent
TASKS = (
    "gp_regression",
    "gp_classification",
    "sparse_gp",
    "binary_regression",
    "gaussian_mixture",
    "robust_regression",
    "stream",
    "counts",
    "mixed_models",
)
PACKAGES = {  # library: what pip calls it and what it stands on
    "cavity": "numpy scipy",
    "scikit-learn": "scikit-learn",
    "GPy": "gpy",
    "GPyTorch": "gpytorch torch",
    "GPflow": "gpflow tensorflow tensorflow-cpu",
    "statsmodels": "statsmodels",
    "bayespy": "bayespy",
    "river": "river",
    "NumPyro": "numpyro jax",
    "GPBoost": "gpboost",
}
THREADS = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "TF_NUM_INTRAOP_THREADS",
    "TF_NUM_INTEROP_THREADS",
    "CAVITY_NUM_THREADS",
)
REPEATS, ENOUGH = 3, 4.0
ELSEWHERE = "the interpreter of a library that needs an environment of its own"
MARK = "RESULT "


def environment(threads):
    """Return the environment in which libraries use so many threads, and no accelerator."""
    xla = f"--xla_cpu_multi_thread_eigen={str(threads > 1).lower()} intra_op_parallelism_threads={threads}"
    settings = {"XLA_FLAGS": xla, "JAX_PLATFORMS": "cpu", "CUDA_VISIBLE_DEVICES": "", "TF_CPP_MIN_LOG_LEVEL": "3"}
    return {**os.environ, **dict.fromkeys(THREADS, str(threads)), **settings, "TF_USE_LEGACY_KERAS": "1"}


def affinity(threads):
    """Keep this process to so many cores, where the system can: the pools of XLA take what there is."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[-threads:])


def measure(task, case, library, threads, small):
    """Return times of calls and scores of the fit, in this process."""
    affinity(threads)
    warnings.simplefilter("ignore")  # libraries warn at different times
    module = importlib.import_module(f"tasks.{task}")
    data = module.data(case, small)
    fit, score_fit = module.LIBRARIES[library](data, threads)
    seconds = []
    while not seconds or (len(seconds) < REPEATS and sum(seconds) < ENOUGH):
        start = time.perf_counter()
        fitted = fit()
        seconds.append(time.perf_counter() - start)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"seconds": seconds, "megabytes": memory, "scores": score_fit(fitted)}


def run_as_child(arguments, limit):
    """Measure in this process; print the result, or the reason why there is none, as JSON."""
    if limit:
        resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    task, case, library, threads, small = arguments
    try:
        result = measure(task, case, library, int(threads), small == "small")
    except (Exception, SystemExit) as error:  # of any library: the table names it
        text = " ".join(str(error).split())
        result = {"reason": f"{type(error).__name__}: {text}"[:160]}
    print(MARK + json.dumps(result), flush=True)


def run_child(task, case, library, threads, options):
    """Measure in a process of its own; return its result."""
    message = [task, case, library, str(threads), "small" if options.small else "whole"]
    python = dict(options.python).get(library, sys.executable)
    command = [python, str(HERE / "run.py"), "--child", *message, "--gigabytes", str(options.gigabytes)]
    try:
        done = subprocess.run(
            command, env=environment(threads), capture_output=True, text=True, timeout=options.seconds
        )
    except subprocess.TimeoutExpired:
        return {"reason": f"not done after {options.seconds:g} s"}
    for line in done.stdout.splitlines():
        if line.startswith(MARK):
            return json.loads(line.removeprefix(MARK))
    last = (done.stderr.strip().splitlines() or ["no message"])[-1]
    return {"reason": f"ended with status {done.returncode}: {last}"[:160]}


def times_of(row):
    """Return the first call and the shortest of the others, as text."""
    first, *others = row["seconds"]
    return f"{first:.3g}", f"{min(others):.3g}" if others else "-"


def table(rows, threads, columns):
    """Return the lines of a table: a row per library, times for each number of threads, and scores of the fits."""
    heads = ["library", *(f"{n} thread{'s' * (n > 1)}: first s | again s" for n in threads), "MB", *columns]
    heads = " | ".join(heads)
    lines = [f"| {heads} |", "|---" * (heads.count("|") + 1) + "|"]
    for library, by_threads in rows.items():
        good = {n: row for n, row in by_threads.items() if "reason" not in row}
        if not good:
            lines.append(f"| {library} | {next(iter(by_threads.values()))['reason'].replace('|', '/')} |")
            continue
        cells = [text for n in threads for text in (times_of(good[n]) if n in good else ("failed", "-"))]
        row = good[min(good)]
        result = (f"{row['scores'][name]:.5g}" if name in row["scores"] else "-" for name in columns)
        lines.append("| " + " | ".join([library, *cells, f"{row['megabytes']:.0f}", *result]) + " |")
    return "\n".join(lines)


def versions():
    """Return the versions of what takes part, as text."""
    results = []
    for package in dict.fromkeys(" ".join(PACKAGES.values()).split()):
        try:
            results.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            continue
    return ", ".join(results)


def processor():
    """Return the name of the processor."""
    path = Path("/proc/cpuinfo")
    lines = path.read_text().splitlines() if path.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def measure_case(module, task, case, options):
    """Return the rows of a table: {library: {threads: result}}; threads alternate within a library."""
    chosen = options.libraries or module.LIBRARIES
    rows = {library: {} for library in module.LIBRARIES if library in chosen}
    for library, row in rows.items():
        for threads in options.threads:
            row[threads] = run_child(task, case, library, threads, options)
    return rows


def main():
    """Measure and print, in the parent or in a child process."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tasks", nargs="*", metavar="TASK", help=f"some of {', '.join(TASKS)}; all by default")
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--libraries", nargs="+", choices=PACKAGES, help="only these")
    parser.add_argument("--cases", nargs="+", help="only these of the tasks")
    parser.add_argument("--python", nargs=2, action="append", default=[], metavar=("LIBRARY", "PYTHON"), help=ELSEWHERE)
    parser.add_argument("--seconds", type=float, default=300.0, help="cap of time of a process")
    parser.add_argument("--gigabytes", type=float, default=8.0, help="cap of memory of a process")
    parser.add_argument("--small", action="store_true", help="tiny sizes: a smoke test")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the numbers to FILE")
    parser.add_argument("--child", nargs=5, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        return run_as_child(options.child, int(options.gigabytes * 2**30))
    unknown = set(options.tasks).difference(TASKS)
    if unknown:
        parser.error(f"there is no task {min(unknown)!r}")
    print(f"Measured with cavity {version('cavity')}.\n")
    results = {}
    for task in options.tasks or TASKS:
        module = importlib.import_module(f"tasks.{task}")
        for case in options.cases or module.CASES:
            rows = results[f"{task} {case}"] = measure_case(module, task, case, options)
            print(f"{module.CASES[case]}\n\n{table(rows, options.threads, module.COLUMNS)}\n", flush=True)
            if options.json:
                options.json.write_text(json.dumps(results, indent=1))
    load = f", load {os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else ""
    print(f"{processor()}, {os.cpu_count()} CPUs{load}, Python {platform.python_version()}\n{versions()}")


if __name__ == "__main__":
    main()
