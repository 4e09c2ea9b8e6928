"""The command line: `cavity fit MODEL DATA` and `cavity predict POSTERIOR DATA`.

One file per model; reading, saving and plotting are shared.
"""

import argparse
import os
import sys
import warnings

from .. import __version__
from . import clutter, glm, gp, mixture, predict, streaming_gp, unit_mixture
from . import options as shared

MODELS = (clutter, glm, gp, mixture, streaming_gp, unit_mixture)


def parser():
    """Return the argument parser of the `cavity` command."""
    top = argparse.ArgumentParser(prog="cavity", description="Fast deterministic approximate Bayesian inference.")
    top.add_argument("--version", action="version", version=f"cavity {__version__}")
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")
    fit = commands.add_parser("fit", help="fit a model to a table and print the posterior")
    models = fit.add_subparsers(dest="model", required=True, metavar="MODEL")
    for model in MODELS:
        model.add(models)
    predict.add(commands)
    return top


def main(arguments=None):
    """Run the command; 0 if all went well, 1 if a fit did not converge, 2 with one sentence for bad input."""
    options = parser().parse_args(arguments)
    try:
        shared.check_numbers(options)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what they say is part of the printed result
            status = options.run(options)
            sys.stdout.flush()
            return status
    except BrokenPipeError:  # the reader of our output, `head` for example, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (ValueError, TypeError, ArithmeticError, OSError, ImportError, MemoryError) as error:
        words = " ".join(str(error).split()) or "the memory of the machine is too small"
        print(f"cavity: error: {shared.as_typed(words, options)}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("cavity: interrupted", file=sys.stderr)
        return 130
