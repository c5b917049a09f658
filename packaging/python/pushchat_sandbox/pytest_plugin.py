"""The fixture `push_sandbox`."""

import pytest

from . import Sandbox


@pytest.fixture(scope="session")
def _push_sandbox_process():
    with Sandbox() as sandbox:
        yield sandbox


@pytest.fixture
def push_sandbox(_push_sandbox_process):
    """A `pushchat_sandbox.Sandbox` with an empty inbox and without faults. All tests of a session share its process."""
    _push_sandbox_process.reset()
    return _push_sandbox_process
