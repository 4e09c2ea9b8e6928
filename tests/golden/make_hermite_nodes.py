"""Write cython_core/include/cavity_hermite.h: nodes of Gauss-Hermite rules, and logs of what the integrand is times.

A rule of n nodes integrates exp(-x^2/2) times polynomials of degree 2 n - 1. With weights w that add up to sqrt(2 pi)
the integral of exp(h) is the sum of exp(h(x) + log w + x^2/2).
"""

import sys
from pathlib import Path

from mpmath import mp

sys.path.append(str(Path(__file__).resolve().parents[1]))
from reference.sites import hermite

COUNTS = (3, 5, 7, 10, 14, 24)
HEADER = Path(__file__).resolve().parents[2] / "cython_core" / "include" / "cavity_hermite.h"
WIDTH = max(COUNTS)


def write_rows(name, rows, filler):
    """Return the C definition of a table."""
    lines = [f"static const double {name}[CV_HERMITE_RULES][CV_HERMITE_WIDTH] = {{"]
    for row in rows:
        padded = [repr(float(value)) for value in row] + [filler] * (WIDTH - len(row))
        body = [", ".join(padded[k : k + 4]) for k in range(0, WIDTH, 4)]
        lines.append("    {" + ",\n     ".join(body) + "},")
    return [*lines, "};"]


def main():
    nodes, logs = [], []
    with mp.workdps(40):
        for count in COUNTS:
            x, weights = hermite(count, 40)
            order = sorted(range(count), key=lambda k: x[k])
            nodes.append([x[k] for k in order])
            logs.append([mp.log(weights[k]) + mp.log(2 * mp.pi) / 2 + x[k] ** 2 / 2 for k in order])
    lines = [
        "/* Gauss-Hermite rules, by tests/golden/make_hermite_nodes.py: nodes x, and log w + x^2/2 of weights w whose",
        " * sum is sqrt(2 pi). */",
        "#ifndef CAVITY_HERMITE_H",
        "#define CAVITY_HERMITE_H",
        "",
        "#include <math.h>",
        "",
        f"#define CV_HERMITE_RULES {len(COUNTS)}",
        f"#define CV_HERMITE_WIDTH {WIDTH}",
        "",
        f"static const int cv_hermite_counts[{len(COUNTS)}] = {{{', '.join(map(str, COUNTS))}}};",
        "",
        *write_rows("cv_hermite_nodes", nodes, "0.0"),
        "",
        *write_rows("cv_hermite_logs", logs, "-INFINITY"),  # beyond the last node nothing
        "",
        "#endif",
    ]
    HEADER.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
