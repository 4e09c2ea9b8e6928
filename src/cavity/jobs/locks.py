"""One process at a time: a lock on a file, which the operating system drops with the process that holds it.

Where a file system has no locks, the number of the process and its host stand in the file; those of processes of this
host that have ended do not count.
"""

import errno
import os
from contextlib import suppress
from pathlib import Path

from cavity.base.errors import name_file_in_errors
from cavity.base.persistence import get_host_name, has_ended

# errors of locking a file that another process has locked, and where a file system has no locks
LOCK_HELD_ERRORS = (errno.EWOULDBLOCK, errno.EAGAIN, errno.EACCES, errno.EDEADLK)
NO_LOCKS_ERRORS = (errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EINVAL)
LOCKED_BYTE = 1 << 30  # the byte that is locked where bytes are: those before it can be read meanwhile
MAX_OWNER_BYTES = 1000  # bytes of a process and its host


class FileLock:
    """A lock named after a file; `take` and `drop` it.

    Parameters
    ----------
    path : path-like
        The file; that of the lock, beside it, has ".lock" added to its name.
    """

    def __init__(self, path):
        self.path = Path(f"{os.fspath(path)}.lock")
        self._handle = None

    def take(self):
        """Take the lock; return None, or a description of the process that holds it."""
        while self._handle is None:
            with name_file_in_errors(self.path):
                handle = os.open(self.path, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o666)
                try:
                    holder = _owner(handle)
                    granted = _granted(handle)
                    if granted is None:
                        granted = holder is None or (holder[1] == get_host_name() and has_ended(holder[0]))
                    if not granted:
                        return self._describe_holder(holder)
                    if self._is_still(handle):  # and not one that its last holder has removed meanwhile
                        os.ftruncate(handle, 0)
                        os.lseek(handle, 0, os.SEEK_SET)
                        os.write(handle, f"{os.getpid()} {get_host_name()}".encode())
                        self._handle = handle
                finally:
                    if self._handle is None:
                        os.close(handle)
        return None

    def drop(self):
        """Give the lock back and remove its file."""
        handle, self._handle = self._handle, None
        if handle is not None:
            with suppress(OSError):  # an open file cannot be removed on Windows; the lock is given back all the same
                os.unlink(self.path)
            os.close(handle)

    def _is_still(self, handle):
        """Whether the file of the lock is still the one that was opened."""
        try:
            return os.path.samestat(os.fstat(handle), os.stat(self.path))
        except FileNotFoundError:
            return False

    def _describe_holder(self, holder):
        if holder is None:
            return "another process"
        process, machine = holder
        if machine == get_host_name():
            return f"process {process}"
        return f"process {process} on {machine} (if that has ended, remove {self.path})"


def _owner(handle):
    """Return the (process, host) that stand in the file of a lock, or None."""
    try:
        process, machine = os.read(handle, MAX_OWNER_BYTES).decode().split()
        return int(process), machine
    except (ValueError, PermissionError):  # not yet written, or not to be read while it is locked
        return None


def _granted(handle):
    """Lock an open file; return whether the system gave us the lock, None where there are none."""
    try:
        try:
            import fcntl
        except ImportError:
            import msvcrt

            os.lseek(handle, LOCKED_BYTE, os.SEEK_SET)
            msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)
        else:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in LOCK_HELD_ERRORS:
            return False
        if error.errno in NO_LOCKS_ERRORS:
            return None
        raise
    return True
