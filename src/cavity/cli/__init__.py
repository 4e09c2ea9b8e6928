"""The command line: `cavity fit MODEL DATA`, `cavity predict POSTERIOR DATA`, and commands about files and machines.

Only the module of the typed command is imported, and only its options are built.
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
from importlib import import_module

from cavity import __version__
from cavity.cli import standard_output
from cavity.cli.options import OptionError, name_arguments_as_typed

COMMAND_TABLE = (  # name of the command, module and name of its Command there, and one line of help
    ("fit clutter", "clutter.fit", "the mean of a signal when some points are background clutter"),
    ("fit glm", "glm.fit", "regression and classification: coefficients with their uncertainty"),
    ("fit gp", "gp.fit", "regression and classification by smooth functions of the columns"),
    ("fit linear-regression", "regression.linear", "linear regression whose prior and noise are learnt, by mean field"),
    ("fit logistic-regression", "regression.logistic", "logistic regression whose prior is learnt, by mean field"),
    ("fit many", "many.fit", "one model of many columns: an effect in all of them, with parameters shrunk across"),
    ("fit mixed", "mixed.fit", "regression and classification with effects that differ by group"),
    ("fit mixture", "mixture.fit", "a mixture of Gaussians with means and covariances of their own"),
    ("fit streaming-gp", "streaming_gp.fit", "the same as gp for tables of any length, batch by batch"),
    ("fit unit-mixture", "unit_mixture.fit", "a mixture of Gaussians of one common variance in one dimension"),
    ("predict", "predict.run", "predict the rows of a table from a saved posterior"),
    ("compare", "compare.run", "compare saved posteriors of the same rows"),
    ("info", "info.show", "show the contents of a saved file"),
    ("data", "info.show_data", "the data sets that come with the package"),
    ("doctor", "doctor.examine", "what this installation uses, and whether it works"),
)
EXIT_STATUS_HELP = """exit status:
  0    all went well
  1    a fit did not converge; its posterior is printed and saved all the same
  2    bad input, with a message of one line; nothing was written, except
       a posterior that could not be printed or plotted afterwards, and the state
       saved by a checkpoint or a stream before the error
  130  ended by Ctrl-C, 143 by SIGTERM: no partial file remains
A closed standard output is no error; characters that its encoding lacks are
escaped.
"""


def build_parser(arguments=None):
    """Return the argument parser of the `cavity` command, with the options of the typed command only.

    Without arguments it has the options of all commands. The attribute `commands` holds the parsers that have options,
    by the words of the command.
    """
    top = argparse.ArgumentParser(
        prog="cavity",
        description="Fast deterministic approximate Bayesian inference.",
        epilog=EXIT_STATUS_HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    top.add_argument("-V", "--version", action="version", version=f"cavity {__version__}")
    commands = top.add_subparsers(dest="command", metavar="COMMAND")
    fit = commands.add_parser("fit", help="fit a model to a table and print the posterior")
    models = fit.add_subparsers(dest="model", required=True, metavar="MODEL")
    typed = None if arguments is None else [argument for argument in arguments if not argument.startswith("-")]
    top.commands = {}
    for name, command_name, help_line in COMMAND_TABLE:
        command_words = tuple(name.split())
        command = (models if len(command_words) > 1 else commands).add_parser(command_words[-1], help=help_line)
        if typed is None or command_words == tuple(typed[: len(command_words)]):
            file, _, function = command_name.partition(".")
            getattr(import_module(f"cavity.cli.{file}"), function).add_to(command)
            top.commands[command_words] = command
    return top


class SigtermInterrupt(KeyboardInterrupt):
    """SIGTERM was received; handled like Ctrl-C."""


def main(arguments=None):
    """Run the command; 0 on success, 1 if a fit did not converge, 2 with a message of one line for bad input.

    130 after Ctrl-C, 143 after SIGTERM: no partial file remains, and a stream has saved its state.
    """
    standard_output.prepare_streams()
    options = argparse.Namespace()
    try:
        try:
            return run(sys.argv[1:] if arguments is None else arguments, options)
        finally:
            standard_output.write_output()
    except OptionError as error:
        standard_output.print_error(f"error: {error}")
        return 2
    except (ValueError, TypeError, ArithmeticError, MemoryError, OSError, ImportError) as error:
        standard_output.print_error(f"error: {format_error(error, options)}")
        if getattr(error, "filename", None) == standard_output.STDOUT_NAME:
            standard_output.discard_output(sys.stdout)
        return 2
    except SigtermInterrupt:
        standard_output.print_error("terminated")
        return 128 + signal.SIGTERM
    except KeyboardInterrupt:
        standard_output.print_error("interrupted")
        return 130


def run(arguments, options):
    """Run the typed command, with its options stored in the namespace `options`; return the exit status."""
    arguments = name_many(list(arguments))
    top = build_parser(arguments)
    if any(len(argument) > 3 and "--config".startswith(argument.partition("=")[0]) for argument in arguments):
        from cavity.cli.config import with_config

        arguments = with_config(arguments, top.commands)
    _, unknown = top.parse_known_args(arguments, options)
    refuse_unknown_options(unknown, top.commands, options)
    if options.command is None:
        top.print_help()
        return 0
    with raise_on_sigterm(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the printed result contains their content
        warnings.filterwarnings("always", message="checkpoint ")
        warnings.showwarning = lambda message, *_: standard_output.print_error(message)
        return options.run(options)


def name_many(arguments):
    """Return arguments with `fit many` for `fit glm` and `fit mixed` where the target has an asterisk.

    Other marks of patterns stand for themselves there, as names of columns may be questions.
    """
    pairs = zip(arguments, [*arguments[1:], ""], strict=False)  # none of no arguments
    targets = [value if name == "--target" else name for name, value in pairs if name.startswith("--target")]
    is_pattern = any("*" in target for target in targets)
    if arguments[:2] in (["fit", "glm"], ["fit", "mixed"]) and is_pattern:
        return ["fit", "many", *arguments[2:]]
    return arguments


def refuse_unknown_options(unknown, commands, options):
    """Raise OptionError for options that the command does not have, with the most similar one."""
    if not unknown:
        return
    command_words = tuple(part for part in (options.command, getattr(options, "model", None)) if part is not None)
    actions = commands[command_words]._actions if command_words in commands else ()
    option_names = [name for action in actions for name in action.option_strings]
    similar = difflib.get_close_matches(unknown[0].partition("=")[0], option_names, n=1)
    hint = f"; is it {similar[0]}?" if similar else f"; see cavity {' '.join(command_words)} --help"
    raise OptionError(f"{' '.join(command_words)} has no option {unknown[0]}{hint}")


@contextmanager
def raise_on_sigterm():
    """Raise Terminated when SIGTERM comes, once: those that follow must not disturb what is done about the first."""
    if threading.current_thread() is not threading.main_thread() or signal.getsignal(signal.SIGTERM) != signal.SIG_DFL:
        yield  # another handler is installed
        return

    def end(*_):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        raise SigtermInterrupt

    signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def format_error(error, options):
    """Return an error as one line, with the path of the data unless it names an option or another file."""
    message = " ".join(name_arguments_as_typed(error, options).split())
    if isinstance(error, MemoryError):
        message = message or "there is not enough memory"
    if isinstance(error, OverflowError) and error.args[:1] == (errno.ERANGE,):  # raised by Python's power
        message = "squares of the numbers leave the range of float64; rescale the columns"
    if isinstance(error, OSError) and error.errno is not None and error.filename is not None:
        message = f"{os.fsdecode(error.filename)}: {os.strerror(error.errno)}"
    data = getattr(options, "data", None)
    files = [getattr(options, name, None) for name in ("data", "posterior", "resume", "output", "plot")]
    is_named = getattr(error, "filename", None) is not None or any(file and file in message for file in files)
    if is_named or str(error).startswith("--") or isinstance(error, ImportError) or not os.path.exists(data or ""):
        return message
    return f"{message} (data: {data})"
