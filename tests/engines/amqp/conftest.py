import pytest

from tests.engines.amqp.connections import Connections
from tests.servers.rabbitmq import RabbitServer


@pytest.fixture
def connections(rabbit_server: RabbitServer, rabbit_vhost: str) -> Connections:
    return Connections(rabbit_server.url(rabbit_vhost))
