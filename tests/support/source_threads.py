"""Threads that read one source at the same time."""

import threading

import numpy as np


def check_threads_read(source, X):
    """Assert that seven threads, each with its own ranges of 50 rows, read what X has."""
    equal = []

    def read(start):
        rows = np.empty((50, X.shape[1]))
        for low in range(start, len(X) - 50, 70):
            source.fill(rows, low)
            equal.append(np.array_equal(rows, X[low : low + 50], equal_nan=True))

    threads = [threading.Thread(target=read, args=(start,)) for start in range(0, 70, 10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(equal) > 40
    assert all(equal)
