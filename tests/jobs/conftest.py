"""What tests of processes that end early share."""

import os

import pytest
from support.jobs import Server


@pytest.fixture(scope="session")
def server():
    """Starts fits in processes of their own."""
    if os.name != "posix":
        pytest.skip("it forks")
    server = Server()
    yield server
    server.close()
