"""What happens once a minute beside the checks: which niches need a batch, and what an operator is told."""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple

import httpx

from pitboss.model.batch import OVER, Batch
from pitboss.model.resource import EntryKind, Resource
from story_checker.database import Database
from story_checker.settings import SystemSettings

_TAKEN_OUT = (EntryKind.BLACKLISTED, EntryKind.DISABLED)
_MICROSECONDS = 1_000_000


class Notice(NamedTuple):
    """Something that an operator is told once: a second notice with the same key changes nothing."""

    key: str
    subject: str
    body: str


def due_niches(niches: Iterable[str], batches: Iterable[Batch], now: float, interval: float) -> list[str]:
    """The niches without an open batch whose last one was created at least `interval` seconds ago."""
    latest: dict[str, float] = {}
    for batch in batches:
        began = batch.created_at / _MICROSECONDS if batch.status in OVER else now
        latest[batch.name] = max(began, latest.get(batch.name, 0.0))
    return [niche for niche in niches if latest.get(niche, 0.0) + interval <= now]


def taken_out(members: Iterable[Resource], told: Mapping[str, int]) -> list[tuple[str, int, Notice]]:
    """Proxies that were taken out since the moment up to which the operator was told: name, moment, notice."""
    found = []
    for member in members:
        for entry in member.record.history:
            if entry.what in _TAKEN_OUT and entry.at > told.get(member.name, 0):
                until = "until it is enabled" if entry.until is None else f"until {_time(entry.until)}"
                body = f"{member.name} is not used {until}: {entry.why or 'no reason was given'}"
                notice = Notice(f"{member.name}-{entry.at}", f"proxy {member.name} is {entry.what}", body)
                found.append((member.name, entry.at, notice))
    return found


def batch_notice(key: str, niche: str, figures: Mapping[str, Any]) -> Notice:
    said = ", ".join(f"{name}: {value}" for name, value in figures.items())
    return Notice(key, f"batch of {niche} is {figures['status']}", said)


async def deliver(notice: Notice, system: SystemSettings, database: Database) -> str:
    """To the webhook if there is one, and always to the outbox. Harmless to repeat. Returns where it went."""
    where = "outbox"
    if system.notification_webhook:
        async with httpx.AsyncClient(timeout=10.0, trust_env=False) as client:
            headers = {"Idempotency-Key": notice.key}
            answer = await client.post(system.notification_webhook, json=notice._asdict(), headers=headers)
            answer.raise_for_status()
        where = "webhook and outbox"
    database.put_in_outbox(notice.key, system.notification_email or "operator", notice.subject, notice.body)
    return where


def _time(moment: int) -> str:
    return f"{datetime.fromtimestamp(moment / _MICROSECONDS, UTC):%Y-%m-%d %H:%M:%S} UTC"
