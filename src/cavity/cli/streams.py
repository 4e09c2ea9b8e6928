"""Standard output and error of the commands: there, able to take every character, and no reason to fail at the end."""

import os
import sys

from cavity.base.errors import naming

STDOUT_NAME = "standard output"  # where results go, for messages


def prepare():
    """Replace output streams that the caller closed by the null device; escape what an encoding does not have."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115  for as long as the process
        elif getattr(stream, "errors", None) in ("strict", "surrogateescape") and hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")


def write_out(text=""):
    """Write text, and what was printed before, to standard output; OSError where it cannot, with its name as the file.

    Where its reader has closed it, as `head` does when it has seen enough, the text is thrown away.
    """
    try:
        with naming(STDOUT_NAME):
            print(text, end="", flush=True)
    except BrokenPipeError:
        discard(sys.stdout)


def complain(words):
    """Print a line to standard error; that it cannot be printed changes nothing about how a command ends."""
    try:
        print(f"cavity: {words}", file=sys.stderr, flush=True)
    except OSError:
        discard(sys.stderr)


def discard(stream):
    """Throw away what a stream did not take, which Python would try to write once more at the end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
