"""What a RabbitMQ server knows of its queues and connections, asked in milliseconds."""

import re
from typing import NamedTuple

from tests.servers.rabbitmq import RabbitServer

# A connection that is being opened has no properties yet.
_NAMED = 'P <- [proplists:get_value(client_properties, C)], is_list(P), lists:keymember(<<"connection_name">>, 1, P)'


class QueueFacts(NamedTuple):
    """Messages that wait, messages that consumers hold, and consumers."""

    ready: int
    held: int
    consumers: int


def queue_facts(server: RabbitServer, queue: str, vhost: str = "/") -> QueueFacts:
    name = f'rabbit_misc:r(<<"{vhost}">>, queue, <<"{queue}">>)'
    keys = "[messages_ready, messages_unacknowledged, consumers]"
    answer = server.evaluate(
        f"{{ok, Q}} = rabbit_amqqueue:lookup({name}), list_to_tuple([V || {{_, V}} <- rabbit_amqqueue:info(Q, {keys})])"
    )
    return QueueFacts(*(int(number) for number in re.findall(r"\d+", answer)))


def named_connections(server: RabbitServer) -> set[str]:
    """The broker's ids of the connections that have a name: those of Pitboss."""
    every = "rabbit_networking:connection_info_all([pid, client_properties])"
    ids = f"[pid_to_list(proplists:get_value(pid, C)) || C <- {every}, {_NAMED}]"
    return set(re.findall(r"<[\d.]+>", server.evaluate(ids)))
