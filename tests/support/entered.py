"""Which files of the library a call enters: how much code a reader has to open to follow it."""

import sys
import threading
from pathlib import Path

import cavity

SOURCE = Path(cavity.__file__).parent


def files_entered(function):
    """Return the files, relative to the folder of cavity, of which at least one function runs during function().

    The body of a module, which runs when it is imported, does not count; nor do the compiled kernels.
    """
    filenames = set()

    def record(frame, event, _):
        if event == "call" and frame.f_code.co_name != "<module>" and not is_body_of_class(frame):
            filenames.add(frame.f_code.co_filename)

    previous = sys.getprofile()
    threading.setprofile(record)
    sys.setprofile(record)
    try:
        function()
    finally:
        sys.setprofile(previous)
        threading.setprofile(None)
    paths = (Path(filename) for filename in filenames)
    return {path.relative_to(SOURCE).as_posix() for path in paths if path.is_relative_to(SOURCE)}


def is_body_of_class(frame):
    """Whether a frame runs the body of a class statement, or what else runs while its module is imported."""
    while frame is not None and frame.f_code.co_filename != __file__:
        if frame.f_code.co_name == "<module>":
            return True
        frame = frame.f_back
    return False
