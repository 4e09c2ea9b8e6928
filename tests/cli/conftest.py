"""Commands run in the process of the tests."""

import pytest
from support.commands import runner


@pytest.fixture
def run(capsys, request):
    """Run `cavity`, or the COMMAND of a test module, or another one: status, printed text, errors."""
    return runner(capsys, *getattr(request.module, "COMMAND", ()))
