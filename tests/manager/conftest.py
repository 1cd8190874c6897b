"""A house per test, on both stores that real processes can share."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.manager.house import TROUBLE, House


@pytest.fixture(params=["sqlite", "postgres"])
def house(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[House]:
    on_file = request.param == "sqlite"
    house = House(f"sqlite:///{tmp_path}/shop.db" if on_file else request.getfixturevalue("postgres_dsn"), tmp_path)
    try:
        yield house
    finally:
        house.close()


@pytest.fixture
def lite_house(tmp_path: Path) -> Iterator[House]:
    house = House(f"sqlite:///{tmp_path}/shop.db", tmp_path)
    try:
        yield house
    finally:
        house.close()


@pytest.fixture
def troubled(tmp_path: Path) -> Iterator[House]:
    """A house whose app has handlers that do what supervisors fear."""
    house = House(f"sqlite:///{tmp_path}/shop.db", tmp_path, TROUBLE)
    try:
        yield house
    finally:
        house.close()
