"""How people are told: on the console, by a webhook, or by a class of your own.

MEDIA_NOTIFIER=console|webhook|your_module:YourNotifier. The original sent WhatsApp messages.
"""

import pkgutil
from collections.abc import Callable
from typing import Protocol, cast

import httpx

from media_pipeline.notices import Notice
from media_pipeline.settings import Settings, WrongSetting

_SECONDS = 10.0


class Notifier(Protocol):
    """Tells a person something. What it raises is tried again later."""

    async def send(self, notice: Notice, key: str) -> None:
        """`key` is the same if the same notice is sent again."""


class ConsoleNotifier:
    def __init__(self, settings: Settings) -> None:
        pass

    async def send(self, notice: Notice, key: str) -> None:
        print(f"to {notice.to}: {notice.text}", flush=True)


class WebhookNotifier:
    """Posts each notice as JSON."""

    def __init__(self, settings: Settings) -> None:
        if not settings.webhook:
            raise WrongSetting("MEDIA_NOTIFIER=webhook needs MEDIA_WEBHOOK, the address to post to.")
        self._url = settings.webhook

    async def send(self, notice: Notice, key: str) -> None:
        async with httpx.AsyncClient(timeout=_SECONDS, trust_env=False) as client:
            answer = await client.post(self._url, json=notice.body(), headers={"Idempotency-Key": key})
            answer.raise_for_status()


_KNOWN: dict[str, Callable[[Settings], Notifier]] = {"console": ConsoleNotifier, "webhook": WebhookNotifier}


def notifier(settings: Settings) -> Notifier:
    """The one that the settings name."""
    known = _KNOWN.get(settings.notifier)
    if known is not None:
        return known(settings)
    if ":" not in settings.notifier:
        raise WrongSetting(f"MEDIA_NOTIFIER={settings.notifier}: use console, webhook, or module:class.")
    return cast("Notifier", pkgutil.resolve_name(settings.notifier)(settings))
