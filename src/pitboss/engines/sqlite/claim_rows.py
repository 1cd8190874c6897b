"""The rows that a claim reads, and the claims that are made of them."""

from typing import NamedTuple

import msgspec

from pitboss.engines.sqlite.rows import tags_of
from pitboss.model.resource import Leased, Shortage
from pitboss.model.session import Claimed, ClaimRequest
from pitboss.model.task import Claim, Token


class PendingRow(msgspec.Struct, array_like=True):
    """A pending task, in the order of the columns that the statements name; the first two are its rank."""

    priority: int
    id: str
    row: int
    handler: str
    queue: str
    params: str
    attempts: int
    max_attempts: int | None
    timeout: int | None
    losses: int
    crashes: int
    created_at: int
    expires_at: int | None
    parent: str | None
    tags: str | None
    claim: int
    unique_key: str | None
    batch: str | None
    want: str | None
    tried: str | None
    rotations: int
    meta: str | None


class RunningRow(PendingRow, array_like=True):
    """A claim that is given again."""

    claim_key: str
    session: int
    started_at: int
    claim_expires_at: int


class RankedRow(msgspec.Struct, array_like=True):
    """What an order needs of a pending task."""

    priority: int
    id: str
    row: int
    created_at: int
    attempts: int


pending_rows = msgspec.json.Decoder(list[PendingRow])
running_rows = msgspec.json.Decoder(list[RunningRow])
ranked_rows = msgspec.json.Decoder(list[RankedRow])
# By the row of a task: the number of the member that is granted to it, and the member as its holder sees it.
Granted = dict[int, tuple[int, Leased]]


class ClaimedRows(NamedTuple):
    """What a claim has taken. The thread that asked makes `Claimed` of it: the writing thread is the busiest one."""

    request: ClaimRequest
    now: int
    slots: list[list[PendingRow]]
    granted: Granted
    next_due: int | None
    shortages: tuple[Shortage, ...]

    def claimed(self) -> Claimed:
        claims = [self._claim(one, slot) for slot, found in enumerate(self.slots) for one in found]
        return Claimed(claims, self.next_due, self.shortages)

    def _claim(self, one: PendingRow, slot: int) -> Claim:
        granted, lasts = self.granted.get(one.row), self.request.slots[slot].lasts
        token, since = Token(self.request.session, one.claim + 1), self.now
        until = None if lasts is None else self.now + lasts
        if isinstance(one, RunningRow):
            token, since, until, granted = Token(one.session, one.claim), one.started_at, one.claim_expires_at, None
        return Claim(
            id=one.id,
            token=token,
            handler=one.handler,
            queue=one.queue,
            params=one.params,
            attempt=one.attempts + 1,
            priority=one.priority,
            max_attempts=one.max_attempts,
            timeout=one.timeout,
            losses=one.losses,
            crashes=one.crashes,
            created_at=one.created_at,
            claimed_at=since,
            expires_at=one.expires_at,
            parent=one.parent,
            tags=() if one.tags is None else tags_of(one.tags),
            slot=slot,
            leased=None if granted is None else granted[1],
            batch=one.batch,
            rotations=one.rotations,
            claim_expires_at=until,
            meta=one.meta,
        )
