"""The stores that a source puts tasks into, each with the one RabbitMQ of the run."""

from pathlib import Path

import pytest

from tests.servers.rabbitmq import RabbitServer
from tests.sources.stage import Stage


@pytest.fixture(params=["sqlite", "postgres"])
def stage(request: pytest.FixtureRequest, tmp_path: Path, rabbit_server: RabbitServer, rabbit_vhost: str) -> Stage:
    """On SQLite and on PostgreSQL."""
    if request.param == "sqlite":
        return Stage(f"sqlite:///{tmp_path}/store.db", rabbit_server, rabbit_vhost)
    schema = request.getfixturevalue("emptied_schema")
    schema.empty()
    joint = "&" if "?" in schema.dsn else "?"
    return Stage(f"{schema.dsn}{joint}schema={schema.name}", rabbit_server, rabbit_vhost)


@pytest.fixture
def sqlite_stage(tmp_path: Path, rabbit_server: RabbitServer, rabbit_vhost: str) -> Stage:
    """For what does not depend on the store."""
    return Stage(f"sqlite:///{tmp_path}/store.db", rabbit_server, rabbit_vhost)
