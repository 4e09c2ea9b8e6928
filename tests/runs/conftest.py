"""What tests of executors and passes share."""

import threading

import pytest


@pytest.fixture
def no_thread_is_left():
    before = set(threading.enumerate())
    yield
    assert set(threading.enumerate()) <= before  # one that has just ended may still be listed before
