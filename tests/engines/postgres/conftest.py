import pytest

from tests.engines.postgres.yard import Yard


@pytest.fixture
def yard(postgres_dsn: str) -> Yard:
    return Yard(postgres_dsn)
