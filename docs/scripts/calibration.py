"""Calibrate every likelihood by simulation, and write the table and the picture of calibration.rst.

    python docs/scripts/calibration.py > docs/calibration_table.inc

also draws calibration.png beside the page. Coefficients are drawn from their prior, observations from the likelihood,
and a GLM and a MixedGLM are fitted with parameters fixed at those of the draw: DRAWS datasets each, by
tests/support/calibration.py. Results are stored in build/calibration, one file for each likelihood and model, and used
again where they are as many; names of likelihoods as arguments compute these files only. Needs matplotlib.
"""

import argparse
import os
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
from scipy.special import ndtr

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT / "tests"))
from support.calibration import LEVELS, calibrate, cover  # noqa: E402
from support.responses import MISSPECIFIED, NOISELESS, TABLE  # noqa: E402

import cavity  # noqa: E402

DRAWS, SEED = 2000, 1
STORE = ROOT / "build" / "calibration"
PARTS = ("coefficients", "predictor", "levels")
FLAGGED = 3.0  # standard errors
MAX_MISS = 0.02  # of a share, beyond which the script fails
DPI = 70
COLORS = {"coefficients": "#1b6ca8", "predictor": "#c8553d", "levels": "#6b6b6b"}
COLUMNS_OF_PANELS = 5


def compute(name, grouped, draws):
    """Return z by part and the number of fits that converged, from the store where it is there."""
    path = STORE / f"{name.replace(', ', '_').replace(' ', '_')}_{'mixed' if grouped else 'glm'}.npz"
    if path.exists() and len(np.load(path)["coefficients"]) >= draws:
        return path
    values, converged = calibrate(name, draws, SEED, grouped)
    STORE.mkdir(parents=True, exist_ok=True)
    np.savez(path, converged=converged, **dict(zip(PARTS, values, strict=True)))
    return path


def format_share(share, error, level):
    """The share in per cent; with its difference from the level where this is beyond FLAGGED standard errors."""
    text, miss = f"{100 * share:.1f}", share - level
    return f"**{text}** ({100 * miss:+.1f})" if abs(miss) > FLAGGED * error else text


def list_cells(name, grouped, stored):
    """The cells of a row of the table."""
    yield "" if grouped else name
    yield "MixedGLM" if grouped else "GLM"
    for part in PARTS[: 3 if grouped else 2]:
        share, error = cover(stored[part])
        yield ", ".join(map(format_share, share, error, LEVELS))
    if not grouped:
        yield ""
    spread = np.sqrt(np.mean(stored["coefficients"] ** 2)) - 1
    yield f"{100 * spread:+.1f} %"
    yield str(len(stored["coefficients"]) - int(stored["converged"]))
    yield str(len(stored["coefficients"]))


def print_table(results):
    """Print the rows; every share has three numbers, of 50, 90 and 95 % intervals."""
    header = (
        "likelihood",
        "model",
        "coefficients: 50, 90, 95 %",
        "linear predictor",
        "levels of the group",
        "error / sd of coefficients",
        "not converged",
        "datasets",
    )
    print(".. Written by docs/scripts/calibration.py.\n")
    print(f"Measured with cavity {cavity.__version__}.\n")
    print(".. list-table:: Share of drawn values inside intervals, in per cent\n   :header-rows: 1\n")
    for row in (header, *(list_cells(*key, stored) for key, stored in results.items())):
        print("\n".join(f"   {' ' if i else '*'} - {cell}".rstrip() for i, cell in enumerate(row)))


def list_misses(results):
    """Yield (name, part) where a share is away from its level by what neither chance nor EP explains."""
    for (name, _), stored in results.items():
        for part in PARTS if name not in MISSPECIFIED | NOISELESS else ():
            share, error = cover(stored[part]) if stored[part].size else (LEVELS, np.ones(3))
            if np.any(np.abs(share - LEVELS) > np.maximum(MAX_MISS, FLAGGED * error)):
                yield name, part


def draw_picture(results):
    """Draw, for each likelihood, how far the distribution of Phi(z) is from uniform, with a band of three errors."""
    from matplotlib.figure import Figure

    names = list(dict.fromkeys(name for name, _ in results))
    rows = -(-len(names) // COLUMNS_OF_PANELS)
    figure = Figure(figsize=(2.6 * COLUMNS_OF_PANELS, 1.9 * rows), dpi=DPI, layout="constrained")
    panels = figure.subplots(rows, COLUMNS_OF_PANELS, sharex=True, sharey=True)
    grid = np.linspace(0, 1, 101)
    for name, panel in zip(names, panels.flat, strict=False):
        fewest = min(len(results[name, grouped]["coefficients"]) for grouped in (False, True))
        band = 100 * FLAGGED * np.sqrt(grid * (1 - grid) / fewest)
        panel.fill_between(grid, -band, band, color="0.9", lw=0)
        for grouped, style in ((False, "-"), (True, ":")):
            for part in PARTS[: 3 if grouped else 2]:
                u = np.sort(ndtr(results[name, grouped][part]), axis=None)
                share = np.searchsorted(u, grid, side="right") / u.size
                panel.plot(grid, 100 * (share - grid), style, color=COLORS[part], lw=1.2)
        panel.set_title(name.replace(", ", ",\n") if name in MISSPECIFIED else name, fontsize=9)
        panel.set_ylim(-5, 5)
    for panel in panels.flat[len(names) :]:
        panel.set_axis_off()
    handles = [
        *(panels.flat[0].plot([], [], color=color, label=part)[0] for part, color in COLORS.items()),
        panels.flat[0].plot([], [], "k-", label="GLM")[0],
        panels.flat[0].plot([], [], "k:", label="MixedGLM")[0],
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=5, frameon=False)
    figure.supylabel("per cent above uniform", fontsize=9)
    figure.savefig(ROOT / "docs" / "calibration.png")


def main():
    """Compute what is not in the store; print the table and draw the picture."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*", help="likelihoods to compute only; all, and the page's parts, by default")
    parser.add_argument("--draws", type=int, default=DRAWS)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    arguments = parser.parse_args()
    keys = [(name, grouped) for name in arguments.names or TABLE for grouped in (False, True)]
    with ProcessPoolExecutor(arguments.jobs) as pool:
        futures = {key: pool.submit(compute, *key, arguments.draws) for key in keys}
        results = {key: dict(np.load(future.result())) for key, future in futures.items()}
    if arguments.names:
        return
    print_table(results)
    draw_picture(results)
    misses = [f"{name} of {part}" for name, part in list_misses(results)]
    if misses:
        sys.exit("intervals far from their levels: " + "; ".join(misses))


if __name__ == "__main__":
    main()
