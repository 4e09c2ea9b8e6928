"""Whether a file is still the one that was opened."""

import os
from dataclasses import dataclass
from hashlib import blake2b

import numpy as np

from cavity.base.errors import name_file_in_errors

SAMPLED_PLACES = 16  # places at which a file is compared with what it was
BYTES_PER_SAMPLE = 512  # most bytes there


@dataclass(frozen=True, slots=True)
class FileState:
    """What a file was like when it was opened."""

    path: str  # as messages call it
    stamp: tuple  # size, time of modification, inode, time of status change
    offset: int  # of the first byte that counts
    sample: bytes  # digest of bytes here and there

    @classmethod
    def of(cls, file, path, offset=0):
        """Return the state of an open file."""
        stamp = _stamp(file)
        return cls(path, stamp, offset, _sample(file, offset, stamp[0]))

    @classmethod
    def of_path(cls, path):
        """Return the state of the file at a path."""
        with name_file_in_errors(path), open(path, "rb", buffering=0) as file:
            return cls.of(file, path)

    def check_path(self, path):
        """Raise ValueError if the file at a path is another one, or has changed, see `check`."""
        with open(path, "rb", buffering=0) as file:
            self.check(file)

    def check(self, file):
        """Raise ValueError if an open file is another one, or has changed.

        A new name or other rights change the time of status alone; so does a program that writes and sets the time
        of modification back. Then some of its bytes are compared.
        """
        *now, status_time = _stamp(file)
        *then, status_time_then = self.stamp
        if now == then and (
            status_time == status_time_then or _sample(file, self.offset, self.stamp[0]) == self.sample
        ):
            return
        raise ValueError(f"{self.path} has changed while it was in use; start again with the file as it is now")


def _stamp(file):
    """Return what differs once an open file has changed.

    Where a system has no time of status change (the field is then the time of creation, as on Windows), that is 0.
    """
    status = os.fstat(file.fileno())
    return status.st_size, status.st_mtime_ns, status.st_ino, status.st_ctime_ns if os.name == "posix" else 0


def _sample(file, offset, size):
    """Return a digest of the bytes at equal distances between the header of an open file and its end."""
    digest = blake2b(digest_size=16)
    for start in np.linspace(offset, max(offset, size - BYTES_PER_SAMPLE), SAMPLED_PLACES, dtype=np.int64).tolist():
        file.seek(start)
        digest.update(file.read(BYTES_PER_SAMPLE))
    return digest.digest()
