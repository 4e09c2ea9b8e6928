"""Options of the commands, with their checks and their help."""

import argparse
from dataclasses import dataclass
from functools import partial

from cavity.base import arrays
from cavity.runs.executors import THREADS_VARIABLE, resolve_n_threads

KEYWORD_OF_OPTION = {  # options whose argument in the library has another name
    "components": "n_components",
    "inducing": "n_inducing",
    "seed": "rng",
    "sep": "separator",
    "starts": "n_init",
    "threads": "n_threads",
    "tweedie_power": "power",
    "weights": "sample_weight",
}
OPTION_OF_KEYWORD = {keyword: option for option, keyword in KEYWORD_OF_OPTION.items()}
OPTION_OF_KEYWORD |= {"n_starts": "starts", "power": "power"}
INTERNAL_ATTRIBUTES = ("command", "data", "model", "posterior", "run")


# ------------------------------------------------------------------------------------------ numbers


class OptionError(Exception):
    """A number outside of the domain of its option; not caught by argparse."""


NUMBER_DOMAINS = {  # what a number must be, as messages say it: its type, and the library's own check
    "finite": (float, partial(arrays.check_number, name="")),
    "positive": (float, partial(arrays.check_number, name="", low=0)),
    "at least 0": (float, partial(arrays.check_number, name="", low=0, closed_low=True)),
    "at least 0 and below 1": (float, partial(arrays.check_number, name="", low=0, high=1, closed_low=True)),
    "between 0 and 1": (float, partial(arrays.check_number, name="", low=0, high=1)),
    "between 1 and 2": (float, partial(arrays.check_number, name="", low=1, high=2)),
    "above 0 and at most 1": (float, partial(arrays.check_number, name="", low=0, high=1, closed_high=True)),
    "from 0 to 1": (float, partial(arrays.check_number, name="", low=0, high=1, closed_low=True, closed_high=True)),
    "at least 1": (int, partial(arrays.check_integer, name="", low=1)),
    "a whole number from 0": (int, partial(arrays.check_integer, name="", low=0)),
    "at least 1, or -1 for all cores": (int, resolve_n_threads),
}


@dataclass(frozen=True, slots=True)
class Number:
    """An option that takes a number, or several separated by commas, or one of some words."""

    option: str
    domain: str  # a key of NUMBER_DOMAINS
    metavar: str | None = None
    help: str | None = None
    default: object = None
    several: bool = False
    texts: tuple = ()

    @property
    def name(self):
        """The name of the attribute in the namespace of argparse."""
        return self.option[2:].replace("-", "_")

    def __call__(self, text):
        """Return the value of a typed text; raise OptionError for a number outside of the domain."""
        if text in self.texts:
            return text
        number_type, check = NUMBER_DOMAINS[self.domain]
        try:
            values = [number_type(part) for part in (text.split(",") if self.several else [text])]
        except ValueError:
            several = f"{', '.join(self.texts)} or numbers" if self.texts else "numbers, one or several"
            expected = f"{several} separated by commas," if self.several else number_type.__name__
            raise argparse.ArgumentTypeError(f"invalid {expected} value: {text!r}") from None
        for value in values:
            try:
                check(value)
            except ValueError as error:
                shown = str(value).removesuffix(".0")
                raise OptionError(f"{self.option} must be {self.domain}, got {shown}") from error
        return values if self.several else values[0]

    def add_to(self, parser):
        """Add the option to a parser or to a group of it."""
        parser.add_argument(self.option, type=self, metavar=self.metavar, default=self.default, help=self.help)


class Option:
    """An option whose value is no number, or a positional argument.

    `values` are the allowed values, or a string that stands for them in the help; `settings` are those of argparse.
    """

    def __init__(self, name, values=None, help=None, default=None, *, alias=(), **settings):
        choices = {"metavar": values} if isinstance(values, str) else {"choices": values} if values else {}
        self.names, self.settings = (name, *alias), choices | settings | {"help": help, "default": default}

    def add_to(self, parser):
        """Add the option to a parser or to a group of it."""
        parser.add_argument(*self.names, **self.settings)


def make_flag(name, help):
    """Return an Option without a value."""
    return Option(name, help=help, default=False, action="store_true")


class OptionGroup:
    """Options with a heading of their own in the help."""

    def __init__(self, title, *options, description=None):
        self.title, self.options, self.description = title, options, description

    def add_to(self, parser):
        """Add the group to a parser."""
        group = parser.add_argument_group(self.title, self.description)
        for option in self.options:
            option.add_to(group)


class Command:
    """A command: the function that runs it and returns the exit status, its description, and its options in order."""

    def __init__(self, run, description, *options):
        self.run, self.description, self.options = run, description, options

    def add_to(self, parser):
        """Make a parser that of the command."""
        parser.description = self.description
        parser.set_defaults(run=self.run)
        for option in self.options:
            option.add_to(parser)


def command(description, *options):
    """Return a decorator that makes a Command of the function that runs it."""
    return lambda run: Command(run, description, *options)


def format_option(name):
    """Return the option of an attribute as it is typed."""
    return f"--{name.replace('_', '-')}"


def name_arguments_as_typed(error, options):
    """Return the message of an error with the names of arguments replaced by those of typed options."""
    message = str(error)
    for name in getattr(error, "arguments", ()):
        option = OPTION_OF_KEYWORD.get(name, name)
        if option in INTERNAL_ATTRIBUTES or getattr(options, option, None) is None:
            continue  # it was not typed
        before, mentioned, after = message.partition(name)
        if after.startswith("="):  # as it is written in Python
            after = f" {after[1:]}" if after[1] != "'" else f" {after[2:].replace(chr(39), '', 1)}"
        message = f"{before}{format_option(option)}{after}" if mentioned else message
    for name in getattr(error, "advised", ()):  # advice with names of the library
        message = message.replace(f"{name}=", f"{format_option(OPTION_OF_KEYWORD.get(name, name))} ")
    message = message.replace("missing='nan' gives NaN in such rows", "missing='drop' leaves such rows out")
    return message.replace("missing='drop'", "--missing drop") if hasattr(options, "missing") else message


# ------------------------------------------------------------------------------------------ options of a fit

THREADS_HELP = f"-1 for all cores; same result for any number (default ${THREADS_VARIABLE}, or as the work is worth)"
THREADS_OPTION = Number("--threads", "at least 1, or -1 for all cores", help=THREADS_HELP)
CHECKPOINT_HELP = "save the state of the fit in this file; the same command resumes from it, with the same final bits"
INTERVAL_HELP = "seconds from one writing of the checkpoint to the next (default 60)"
CHECKPOINT_OPTION = Option("--checkpoint", "FILE", CHECKPOINT_HELP)
INTERVAL_OPTION = Number("--checkpoint-every", "at least 0", "S", INTERVAL_HELP)
CHECKPOINT_OPTIONS = OptionGroup("checkpoint", CHECKPOINT_OPTION, INTERVAL_OPTION)
ASCENT_OPTIONS = (  # options of coordinate ascent
    Number("--starts", "at least 1", "S", "starts for each K; more need --seed", 1),
    Number("--seed", "a whole number from 0", help="seed of the random starts"),
)
COMMON_OPTIONS = (
    make_flag("--json", "print one JSON object in place of text"),
    Option("--config", "FILE", "a TOML file with options, like components = 3; those that are typed win"),
    make_flag("--quiet", "show no progress on a terminal"),
)
DATA_HELP = "a shipped data set ({}), or a table: .csv, .tsv, .txt (also .gz), .parquet, .npy; - is standard input"


def make_site_options(power, *schedules):
    """Return the options of expectation propagation and assumed-density filtering; the first schedule is the default.

    `power` is the range of the power, for the help.
    """
    return (
        Option("--method", ("ep", "adf"), default="ep"),
        Number("--damping", "above 0 and at most 1", default=1.0),
        Number("--power", "above 0 and at most 1", help=f"power of power EP, in {power}; 1 is EP", default=1.0),
        Option("--schedule", schedules, default=schedules[0]),
    )
