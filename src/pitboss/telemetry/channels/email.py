"""E-mail: one message by SMTP, in a thread of its own that ends with its connection."""

import asyncio
import smtplib
import socket
import ssl
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from email.message import EmailMessage
from email.utils import formatdate

from pitboss.model.alert_message import AlertMessage, ChannelSpec
from pitboss.model.duration import SECOND
from pitboss.telemetry.channels.errors import SendError


async def send(channel: ChannelSpec, message: AlertMessage) -> None:
    """Returns when the server has taken it. A cancellation ends the thread too: a server that answers byte by byte
    would keep it for ever, since the time limit of a socket is that of each read."""
    connected = await _connected(channel)
    # Not those of the loop: other channels look names up in them.
    connection, threads = connected.dup(), ThreadPoolExecutor(1, "mail")
    try:
        await asyncio.get_running_loop().run_in_executor(threads, _send, channel, _mail(channel, message), connected)
    finally:
        with connection, suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)
        threads.shutdown(wait=False)


async def _connected(channel: ChannelSpec) -> socket.socket:
    loop, error = asyncio.get_running_loop(), OSError("it has no address")
    try:
        found = await loop.getaddrinfo(channel.host, channel.port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as unknown:
        raise SendError(f"the name {channel.host} cannot be looked up: {unknown}") from unknown
    for family, kind, number, _, address in found:
        one = socket.socket(family, kind, number)
        one.setblocking(False)
        try:
            await loop.sock_connect(one, address)
        except OSError as failed:
            one.close()
            error = failed
        except BaseException:
            one.close()
            raise
        else:
            return one
    raise _unreachable(channel, error) from error


def _mail(channel: ChannelSpec, message: AlertMessage) -> EmailMessage:
    mail = EmailMessage()
    mail["Subject"] = message.subject
    mail["From"], mail["To"] = channel.sender, ", ".join(channel.to)
    mail["Date"] = formatdate(message.at / SECOND)
    # Not taken for a person's message: no out-of-office answers.
    mail["Auto-Submitted"] = "auto-generated"
    mail.set_content(message.text)
    return mail


class _Session(smtplib.SMTP):
    """Over a socket that is connected already. It says its address where its name would have to be looked up."""

    def __init__(self, channel: ChannelSpec, connected: socket.socket) -> None:
        self._connected, name, address = connected, socket.gethostname(), connected.getsockname()[0]
        own = name if "." in name else f"[{'IPv6:' if ':' in address else ''}{address}]"
        super().__init__(channel.host, channel.port, local_hostname=own, timeout=channel.timeout / SECOND)

    def _get_socket(self, *_: object) -> socket.socket:
        return self._connected


def _send(channel: ChannelSpec, mail: EmailMessage, connected: socket.socket) -> None:
    safe = ssl.create_default_context()
    connected.settimeout(channel.timeout / SECOND)
    try:
        with connected:
            if channel.security == "tls":
                connected = safe.wrap_socket(connected, server_hostname=channel.host)
            with _Session(channel, connected) as server:
                if channel.security == "starttls":
                    server.starttls(context=safe)
                if channel.user:
                    server.login(channel.user, channel.password)
                server.send_message(mail)
    except smtplib.SMTPResponseException as error:
        raise SendError(f"{channel.host} answered {error.smtp_code}") from error
    except smtplib.SMTPRecipientsRefused as error:
        raise SendError(f"{channel.host} refused {', '.join(sorted(error.recipients))}") from error
    except (smtplib.SMTPException, OSError) as error:
        raise _unreachable(channel, error) from error


def _unreachable(channel: ChannelSpec, error: Exception) -> SendError:
    return SendError(f"{channel.host}:{channel.port}: {type(error).__name__} {error}".rstrip())
