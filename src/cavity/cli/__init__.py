"""The command line: `cavity fit MODEL DATA`, `cavity predict POSTERIOR DATA`, and what is said of files and machines.

One file per model; reading, saving and plotting are shared.
"""

import argparse
import difflib
import errno
import os
import signal
import sys
import threading
import warnings
from contextlib import contextmanager
from functools import partial

from cavity import __version__
from cavity.cli import (
    bench,
    clutter,
    doctor,
    glm,
    gp,
    info,
    linear_regression,
    logistic_regression,
    mixed,
    mixture,
    predict,
    streaming_gp,
    streams,
    unit_mixture,
)
from cavity.cli import options as shared
from cavity.cli.config import with_config

MODELS = (  # a command has the name of its file
    *(clutter, glm, gp, linear_regression, logistic_regression, mixed, mixture, streaming_gp, unit_mixture),
)
STATUSES = """exit status:
  0    all went well
  1    a fit did not converge; its posterior is printed and saved all the same
  2    bad input, told in one sentence; nothing was written, except
       a posterior that then could not be printed or drawn, and the work before
       the error that a checkpoint or a stream keeps
  130  ended by Ctrl-C, 143 by SIGTERM: no half-written file is left
Results that standard output does not take as it is closed, before the start or
by its reader, are no error; characters that its encoding lacks are escaped.
"""


def parser():
    """Return the argument parser of the `cavity` command; `commands` are those of its commands by their words."""
    top = argparse.ArgumentParser(
        prog="cavity",
        description="Fast deterministic approximate Bayesian inference.",
        epilog=STATUSES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    top.add_argument("-V", "--version", action="version", version=f"cavity {__version__}")
    commands = top.add_subparsers(dest="command", metavar="COMMAND")
    fit = commands.add_parser("fit", help="fit a model to a table and print the posterior")
    models = fit.add_subparsers(dest="model", required=True, metavar="MODEL")
    top.commands = {}
    for model in MODELS:
        name = model.__name__.rpartition(".")[2].replace("_", "-")
        command = models.add_parser(name, help=model.HELP, description=model.fit.__doc__)
        command.add_argument("data", help=model.DATA)
        model.add_options(command)
        shared.output(command, model.DRAWN)
        command.set_defaults(run=partial(shared.fit_and_deliver, model.fit))
        top.commands["fit", name] = command
    for other in (predict, info, doctor, bench):
        top.commands |= {(name,): command for name, command in other.add(commands).items()}
    return top


class Terminated(KeyboardInterrupt):
    """SIGTERM: everything is left as it is on Ctrl-C."""


def main(arguments=None):
    """Run the command; 0 if all went well, 1 if a fit did not converge, 2 with one sentence for bad input.

    130 after Ctrl-C, 143 after SIGTERM: no half-written file is left, and a stream has saved what it has absorbed.
    """
    streams.prepare()
    options = argparse.Namespace()
    try:
        try:
            return run(sys.argv[1:] if arguments is None else arguments, options)
        finally:
            streams.write_out()
    except shared.OptionError as error:
        streams.complain(f"error: {error}")
        return 2
    except (ValueError, TypeError, ArithmeticError, MemoryError, OSError, ImportError) as error:
        streams.complain(f"error: {sentence(error, options)}")
        if getattr(error, "filename", None) == streams.STDOUT_NAME:
            streams.discard(sys.stdout)
        return 2
    except Terminated:
        streams.complain("terminated")
        return 128 + signal.SIGTERM
    except KeyboardInterrupt:
        streams.complain("interrupted")
        return 130


def run(arguments, options):
    """Run the command that was typed, whose options go where they are told to; return the exit status."""
    top = parser()
    with_config(arguments, top.commands)
    _, unknown = top.parse_known_args(arguments, options)
    check_known(unknown, top.commands, options)
    if options.command is None:
        top.print_help()
        return 0
    with hearing_sigterm(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what they say is part of the printed result
        warnings.filterwarnings("always", message="checkpoint ")
        warnings.showwarning = lambda message, *_: streams.complain(message)
        return options.run(options)


def check_known(unknown, commands, options):
    """Raise OptionError for what was typed and is no option of the command, with the nearest one."""
    if not unknown:
        return
    words = tuple(word for word in (options.command, getattr(options, "model", None)) if word is not None)
    known = [name for action in commands[words]._actions for name in action.option_strings] if words in commands else []
    near = difflib.get_close_matches(unknown[0].partition("=")[0], known, n=1)
    hint = f"; is it {near[0]}?" if near else f"; see cavity {' '.join(words)} --help"
    raise shared.OptionError(f"{' '.join(words)} has no option {unknown[0]}{hint}")


@contextmanager
def hearing_sigterm():
    """Raise Terminated when SIGTERM comes, once: those that follow must not disturb what is done about the first."""
    if threading.current_thread() is not threading.main_thread() or signal.getsignal(signal.SIGTERM) != signal.SIG_DFL:
        yield  # somebody else decides
        return

    def end(*_):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        raise Terminated

    signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def sentence(error, options):
    """Return an error in one line, which names the file of the data unless it is about an option or another file."""
    words = " ".join(shared.as_typed(error, options).split())
    if isinstance(error, MemoryError):
        words = words or "there is not enough memory"
    if isinstance(error, OverflowError) and error.args[:1] == (errno.ERANGE,):  # Python's own, of a power
        words = "squares of the numbers leave the range of float64; rescale the columns"
    if isinstance(error, OSError) and error.errno is not None and error.filename is not None:
        words = f"{os.fsdecode(error.filename)}: {os.strerror(error.errno)}"
    data = getattr(options, "data", None)
    files = [getattr(options, name, None) for name in ("data", "posterior", "resume", "output", "plot")]
    named = getattr(error, "filename", None) is not None or any(file is not None and file in words for file in files)
    if named or str(error).startswith("--") or isinstance(error, ImportError) or not os.path.exists(data or ""):
        return words
    return f"{words} (data: {data})"
