"""The rows that a claim reads, and the claims that are made of them."""

from typing import NamedTuple

import msgspec

from pitboss.engines.sqlite.rows import tags_of
from pitboss.model.lifecycle import due_at
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
    run_at: int | None


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


class Key(msgspec.Struct, array_like=True):
    """A key and its owner. `moving`: it is on its way to another one. Without a key, both are empty."""

    partition: str | None
    owner: str | None
    moving: bool


class LookRow(Key, array_like=True):
    """What a slot needs to know of a waiting task, in the order of the columns that the statements name."""

    priority: int
    id: str
    row: int
    handler: str
    expires_at: int | None
    run_at: int | None
    created_at: int
    attempts: int
    batch: str | None
    want: str | None
    tried: str | None
    unique_key: str | None


class KeyItems(Key, array_like=True):
    """How many pending items of a batch have a key."""

    n: int


class KeyedRow(PendingRow, array_like=True):
    """A pending task with its key."""

    partition: str | None

    @classmethod
    def sketched(cls, one: LookRow, queue: str) -> "KeyedRow":
        """What decides on a task. The whole is read at the end, of all slots at once: params may be large."""
        return cls(
            priority=one.priority,
            id=one.id,
            row=one.row,
            handler=one.handler,
            queue=queue,
            params="",
            attempts=one.attempts,
            max_attempts=None,
            timeout=None,
            losses=0,
            crashes=0,
            created_at=one.created_at,
            expires_at=one.expires_at,
            parent=None,
            tags=None,
            claim=0,
            unique_key=one.unique_key,
            batch=one.batch,
            want=one.want,
            tried=one.tried,
            rotations=0,
            meta=None,
            run_at=one.run_at,
            partition=one.partition,
        )


pending_rows = msgspec.json.Decoder(list[PendingRow])
running_rows = msgspec.json.Decoder(list[RunningRow])
ranked_rows = msgspec.json.Decoder(list[RankedRow])
# Not strict, because SQLite has no booleans.
look_rows = msgspec.json.Decoder(list[LookRow], strict=False)
key_items = msgspec.json.Decoder(list[KeyItems], strict=False)
keyed_rows = msgspec.json.Decoder(list[KeyedRow])
key_names = msgspec.json.Decoder(list[str])
# Of a task: its priority and its id.
Rank = tuple[int, str]
BEFORE_ALL: Rank = (-(2**63), "")
# By the row of a task: the number of the member that is granted to it, and the member as its holder sees it.
Granted = dict[int, tuple[int, Leased]]


def rank(one: PendingRow | RankedRow | LookRow) -> Rank:
    return one.priority, one.id


class ClaimedRows(NamedTuple):
    """What a claim has taken. The thread that asked makes `Claimed` of it: the writing thread is the busiest one."""

    request: ClaimRequest
    now: int
    slots: list[list[PendingRow]]
    granted: Granted
    next_due: int | None
    shortages: tuple[Shortage, ...]
    partitioned: bool

    def claimed(self) -> Claimed:
        claims = [self._claim(one, slot) for slot, found in enumerate(self.slots) for one in found]
        return Claimed(claims, self.next_due, self.shortages, self.partitioned)

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
            due_at=due_at(
                one.created_at,
                one.run_at,
                claim=token.claim,
                attempts=one.attempts,
                losses=one.losses,
                rotations=one.rotations,
                batch=one.batch,
            ),
        )
