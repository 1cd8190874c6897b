import pytest

from tests.operate.bench import Bench


@pytest.fixture
def store() -> Bench:
    """An empty store in memory."""
    return Bench()
