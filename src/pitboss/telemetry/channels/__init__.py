"""Channels of alerts: each sends one message to the outside, within a time limit, or says why it cannot."""

import asyncio

from pitboss.model.alert_message import AlertMessage, ChannelSpec
from pitboss.model.duration import SECOND, Moment, spoken
from pitboss.telemetry.channels import email, webhook
from pitboss.telemetry.channels.errors import SendError

__all__ = ["SendError", "send"]


async def send(channel: ChannelSpec, message: AlertMessage, now: Moment) -> None:
    """Returns when the other side has taken it; `SendError` otherwise. `now` is by the wall clock."""
    try:
        async with asyncio.timeout(channel.timeout / SECOND):
            match channel.type:
                case "webhook" | "slack":
                    await webhook.post(channel, message, now)
                case "email":
                    await email.send(channel, message)
    except TimeoutError:
        raise SendError(f"no answer within {spoken(channel.timeout)}") from None
