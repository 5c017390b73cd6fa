"""Fixtures of the client's own tests."""

import shutil
import sys
import time
from pathlib import Path

import pytest

from belay.testing import Server

REPOSITORY = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(Path(__file__).resolve().parent))


@pytest.fixture
def own_server():
    """A server of one test, which may kill it."""
    with Server() as server:
        yield server


@pytest.fixture
def eventually():
    """Calls a function until it returns something true, for at most `timeout` seconds, and returns that."""

    def call(function, timeout=20.0):
        end = time.monotonic() + timeout
        while not (found := function()):
            assert time.monotonic() < end, f"not within {timeout} s: {function}"
            time.sleep(0.02)
        return found

    return call


@pytest.fixture(scope="session")
def openssl():
    """The path of openssl."""
    found = shutil.which("openssl")
    if found is None:
        pytest.skip("no openssl on the PATH")
    return found
