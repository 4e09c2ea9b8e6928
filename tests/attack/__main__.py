"""An attack on the numbers: random problems, compared with slow twins and many digits, for some minutes.

    python tests/attack [--minutes 5] [--seed 0] [--only NAME ...] [--trial K] [--processes P] [--list]

Attacks take turns, so that each has the same time; trial K of an attack is the same problem wherever and whenever it
is made. The rule is in rule.py. What breaks it is printed with the command that repeats it, and the exit status is 1.
"""

import argparse
import multiprocessing
import os
import sys
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from attack.trials import ATTACKS, trial, turns


def main():
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", nargs="+", choices=sorted(ATTACKS), metavar="NAME", default=sorted(ATTACKS))
    parser.add_argument("--trial", type=int, help="this one alone, with its traceback")
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    parser.add_argument("--list", action="store_true", help="what is attacked")
    options = parser.parse_args()
    if options.list:
        for name, attack in sorted(ATTACKS.items()):
            print(f"{name:24} {attack.__doc__.splitlines()[0]}")
        return 0
    if options.trial is not None:
        for name in options.only:
            trial(name, options.seed, options.trial)
        return 0
    shares = [(options.only, options.seed, options.minutes, k, options.processes) for k in range(options.processes)]
    with multiprocessing.get_context("spawn").Pool(options.processes) as pool:
        results = pool.starmap(turns, shares)
    done = sum((value for value, _ in results), Counter())
    for name in options.only:
        print(f"{name:24} {done[name]:7d} trials")
    wrong = [item for _, some in results for item in some]
    for name, k, message in wrong:
        print(f"\n{name}: {message}\n    python tests/attack --seed {options.seed} --only {name} --trial {k}")
    print(f"{sum(done.values())} trials of {len(options.only)} attacks, {len(wrong)} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
