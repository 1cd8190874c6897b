"""What is written about a claim when something came of it, and how the store answers."""

from typing import NamedTuple

import msgspec

from pitboss.model.batch import BatchId
from pitboss.model.duration import Span
from pitboss.model.ids import TaskId
from pitboss.model.outcome import Transition
from pitboss.model.resource import Report
from pitboss.model.task import Token


class Settlement(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """One transition to write under one token. `ran` is how long the handler ran, for the attempt's record.

    `queue`, `batch` and `resource` (its id) are the claim's, for whoever knows them: they save the store a look, and
    tell it what to lock first. `report` is what the run came to for the resource; None says nothing about it.
    """

    id: TaskId
    token: Token
    transition: Transition
    worker: str | None = None
    ran: Span | None = None
    queue: str | None = None
    batch: BatchId | None = None
    resource: str | None = None
    report: Report | None = None


class SettleAnswer(NamedTuple):
    """Applied, or refused with the reason: the writer's token is stale and it must drop the task."""

    applied: bool
    why: str | None = None


APPLIED = SettleAnswer(True)
STALE_TASK = SettleAnswer(False, "the task does not exist")
STALE_SESSION = SettleAnswer(False, "the session is over")
STALE_CLAIM = SettleAnswer(False, "the task is not running under this claim")
