"""What the driver's errors and the broker's refusals mean to a caller."""

import re
import ssl

from pika import exceptions

from pitboss.engines.amqp.address import Address
from pitboss.engines.broker_protocol import BrokerError
from pitboss.model.errors import InvalidInput
from pitboss.model.source import SourceState
from pitboss.model.text import counted

_FORBIDDEN, _NOT_FOUND, _LOCKED, _PRECONDITION, _NOT_ALLOWED = 403, 404, 405, 406, 530
# The driver keeps a refusal while it connects only as text.
_REFUSAL = re.compile(r"ConnectionClosedByBroker: \((\d+)\) ['\"](.*)['\"]")
# It also gives up the connection over a message that it cannot decode.
_UNREADABLE = re.compile(r"Stream connection lost: ((?:ValueError|OverflowError|OSError\(75|InvalidField|error\().*)")
_CONNECTS_AGAIN = "it is connected again by itself"
_TLS = "check that the port is that of TLS (usually 5671), or begin the URL with amqp:// instead of amqps://"
_CHECK_SERVER = "check that RabbitMQ runs, and that host and port are right"


def unreachable(address: Address, error: BaseException) -> BrokerError:
    """No connection was made."""
    refusal = _REFUSAL.search(f"{error}")
    if refusal and int(refusal[1]) in (_FORBIDDEN, _NOT_ALLOWED):
        return _refused_entry(address, refusal[2])
    cause = _root(error)
    if isinstance(cause, ssl.SSLCertVerificationError):
        return BrokerError(
            SourceState.REFUSED,
            f"the certificate of RabbitMQ at {address} is not trusted",
            why=_text(cause),
            fix="add ?cacertfile=<file> with your own authority to the URL, and use the host in the certificate",
        )
    if isinstance(cause, ssl.SSLError):
        return BrokerError(SourceState.AWAY, f"no TLS connection to RabbitMQ at {address}", why=_text(cause), fix=_TLS)
    why = refusal[2] if refusal else _text(cause)
    return BrokerError(SourceState.AWAY, f"RabbitMQ at {address} cannot be reached", why=why, fix=_CHECK_SERVER)


def no_connection_in_time(address: Address, seconds: float) -> BrokerError:
    what, why = f"RabbitMQ at {address} cannot be reached", f"it did not answer within {seconds:g} s"
    return BrokerError(SourceState.AWAY, what, why=why, fix=_CHECK_SERVER)


def lost(address: Address, error: BaseException) -> BrokerError:
    """The connection ended, and not by our wish."""
    what = f"the connection to RabbitMQ at {address} was lost"
    cause = _root(error)
    if isinstance(cause, exceptions.ConnectionClosedByBroker):
        return BrokerError(SourceState.AWAY, what, why=f"{cause.reply_text}", fix=_CONNECTS_AGAIN)
    if unreadable := _UNREADABLE.search(_text(cause)):
        return BrokerError(
            SourceState.AWAY,
            f"the driver cannot read a message from RabbitMQ at {address}, and gave up the connection",
            why=unreadable[1],
            fix="remove the first message of the queue; a header with a time after the year 9999 has this effect",
        )
    return BrokerError(SourceState.AWAY, what, why=_text(cause), fix=_CONNECTS_AGAIN)


def no_answer(address: Address, seconds: float) -> BrokerError:
    what, why = f"RabbitMQ at {address} does not answer", f"a call got no answer within {seconds:g} s"
    return BrokerError(SourceState.AWAY, what, why=why, fix="look at the load and the log of RabbitMQ")


def closed(address: Address) -> BrokerError:
    return BrokerError(SourceState.AWAY, f"the connection to RabbitMQ at {address} is closed", why="close was called")


def channel_closed(error: exceptions.ChannelClosed) -> BrokerError:
    """The broker closes the channel on which it refuses a call."""
    code, text = error.reply_code, f"{error.reply_text}"
    state = _channel_state(code, text)
    match state:
        case SourceState.REFUSED if code == _FORBIDDEN:
            what = "RabbitMQ refuses access"
            fix = "give the user the right with rabbitmqctl set_permissions, or name another user in the URL"
        case SourceState.REFUSED:
            what, fix = "RabbitMQ refuses the call", "compare the settings with those of the queue or exchange"
        case SourceState.MISSING:
            what, fix = "RabbitMQ has no such queue or exchange", "create it, or correct its name or the virtual host"
        case SourceState.IN_USE:
            what = "another consumer has the queue for itself"
            fix = "stop the other consumer, or let all share the queue (competing = true)"
        case _:
            what, fix = "RabbitMQ ended the consumption or the call", _channel_fix(text)
    return BrokerError(state, what, why=text, fix=fix)


def in_use(queue: str, consumers: int) -> BrokerError:
    return BrokerError(
        SourceState.IN_USE,
        "another consumer has the queue",
        why=f'queue "{queue}" has {counted(consumers, "other consumer")}, and only one at a time keeps its order',
        fix="stop the other consumer, or let all share the queue (competing = true)",
    )


def consumer_cancelled(queue: str) -> BrokerError:
    return BrokerError(
        SourceState.MISSING,
        f'RabbitMQ ended the consumption of queue "{queue}"',
        why="the queue was deleted, or the node that it lives on went down",
        fix="create the queue again, or look at the nodes of RabbitMQ",
    )


def unroutable(exchange: str, routing_key: str, reason: str) -> BrokerError:
    return BrokerError(
        SourceState.UNROUTABLE,
        f"no queue takes a message for {_target(exchange, routing_key)}",
        why=reason,
        fix="create the queue and its binding, or correct the name",
    )


def not_taken(exchange: str, routing_key: str) -> BrokerError:
    return BrokerError(
        SourceState.REJECTED,
        f"RabbitMQ did not take a message for {_target(exchange, routing_key)}",
        why="it answered with a nack: the queue is full and refuses more (reject-publish), or the node failed",
        fix="look at the length of the queue and at the log of RabbitMQ",
    )


def _target(exchange: str, routing_key: str) -> str:
    return f'exchange "{exchange}" with routing key "{routing_key}"' if exchange else f'queue "{routing_key}"'


def not_confirmed(address: Address, seconds: float) -> BrokerError:
    return BrokerError(
        SourceState.AWAY,
        "RabbitMQ did not confirm the message",
        why=f"no answer from {address} within {seconds:g} s; it may or may not be stored",
        fix="look at the load of RabbitMQ, and at whether the queue has a leader",
    )


def blocked(reason: str) -> BrokerError:
    return BrokerError(
        SourceState.BLOCKED,
        "RabbitMQ takes no messages at the moment",
        why=f"it has raised an alarm: {reason}",
        fix="free memory or disk space on the nodes of RabbitMQ; publishing goes on by itself",
    )


def unsendable(error: Exception) -> InvalidInput:
    return InvalidInput(
        "the message cannot be sent",
        why=_text(error),
        fix="keep names and ids within 255 bytes, and numbers in headers within 64 bits",
    )


def _refused_entry(address: Address, text: str) -> BrokerError:
    return BrokerError(
        SourceState.REFUSED,
        f'RabbitMQ at {address} refuses the user "{address.user}"',
        why=text,
        fix="check user, password and virtual host in the URL, and the user's rights (rabbitmqctl set_permissions)",
    )


def _channel_state(code: int, text: str) -> SourceState:
    if code == _FORBIDDEN:
        return SourceState.IN_USE if "exclusive use" in text else SourceState.REFUSED
    if code == _NOT_FOUND:
        # A queue whose node is down has the same code as one that does not exist.
        return SourceState.AWAY if "is down or inaccessible" in text else SourceState.MISSING
    if code == _LOCKED:
        return SourceState.IN_USE
    if code == _PRECONDITION and "timed out" not in text:
        return SourceState.REFUSED
    return SourceState.AWAY


def _channel_fix(text: str) -> str:
    if "timed out" in text:
        return "raise consumer_timeout of RabbitMQ, or lower the source's prefetch"
    return "look at the log of RabbitMQ"


def _root(error: BaseException) -> BaseException:
    """The driver wraps the cause several times."""
    parts = (*getattr(error, "exceptions", ()), getattr(error, "exception", None), *error.args)
    inner = [part for part in parts if isinstance(part, BaseException)]
    return _root(inner[-1]) if inner else error


def _text(error: BaseException) -> str:
    return f"{error}".strip() or type(error).__name__
