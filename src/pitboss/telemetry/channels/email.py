"""E-mail: one message by SMTP, in a thread."""

import asyncio
import smtplib
import ssl
from email.message import EmailMessage
from email.utils import formatdate

from pitboss.model.alert_message import AlertMessage, ChannelSpec
from pitboss.model.duration import SECOND
from pitboss.telemetry.channels.errors import SendError


async def send(channel: ChannelSpec, message: AlertMessage) -> None:
    """Returns when the server has taken it. The thread ends by the server's or its own time limit."""
    await asyncio.to_thread(_send, channel, _mail(channel, message))


def _mail(channel: ChannelSpec, message: AlertMessage) -> EmailMessage:
    mail = EmailMessage()
    mail["Subject"] = message.title
    mail["From"], mail["To"] = channel.sender, ", ".join(channel.to)
    mail["Date"] = formatdate(message.at / SECOND)
    # Not taken for a person's message: no out-of-office answers.
    mail["Auto-Submitted"] = "auto-generated"
    mail.set_content(message.text)
    return mail


def _send(channel: ChannelSpec, mail: EmailMessage) -> None:
    seconds = channel.timeout / SECOND
    safe = ssl.create_default_context()
    try:
        if channel.security == "tls":
            server: smtplib.SMTP = smtplib.SMTP_SSL(channel.host, channel.port, timeout=seconds, context=safe)
        else:
            server = smtplib.SMTP(channel.host, channel.port, timeout=seconds)
        with server:
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
        raise SendError(f"{channel.host}:{channel.port}: {type(error).__name__} {error}".rstrip()) from error
