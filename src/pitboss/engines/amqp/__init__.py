"""RabbitMQ, the broker of sources: messages come in from its queues and go out to its exchanges."""

from pitboss.engines.amqp.broker import AmqpBroker

__all__ = ["AmqpBroker"]
