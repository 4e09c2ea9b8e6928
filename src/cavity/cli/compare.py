"""`cavity compare`: saved posteriors of the same rows by log evidence and leave-one-out predictions."""

import warnings

from cavity.cli.options import COMMON_OPTIONS, Option, command
from cavity.cli.standard_output import print_result, table_as_json
from cavity.models.comparison import compare
from cavity.models.saved import load


@command(
    "Compare saved posteriors of the same rows: log evidence or bound, and how well each row is predicted from the "
    "others. The best one is first.",
    Option("posteriors", "FILE", "a .npz file that --output of `cavity fit` wrote", nargs="+"),
    *COMMON_OPTIONS,
)
def run(options):
    """Print the table of `cavity.compare`."""
    warnings.simplefilter("always")  # until the end of the command: they say which rows and evidences are doubtful
    table = compare({path: load(path) for path in options.posteriors})
    return print_result(options, repr(table).splitlines(), lambda: table_as_json(table))
